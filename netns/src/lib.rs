//! A network that a sandbox cannot leave except through the broker: plan → apply → guard.
//!
//! A *gate* is a network namespace in which every address is local and whose listening sockets belong to the
//! broker. Nothing is filtered on the way out, because there is no way out:
//!
//! ```text
//! Loopback                                  Joined (guests with a network stack of their own)
//! ┌─ the run's namespace ─────────────┐     ┌─ guest namespace ─┐   ┌─ gate namespace ──────────────┐
//! │ user code ── lo ── [::]:443 …     │     │ user code ── eth0 ├───┤ fb… ── [::]:443 …             │
//! │ local 0.0.0.0/0 and ::/0 dev lo   │     │ default via gate  │   │ local 0.0.0.0/0 and ::/0      │
//! └───────────────────────────────────┘     └───────────────────┘   └───────────────────────────────┘
//! ```
//!
//! - A TCP connection to any address reaches the door of its port; `getsockname` gives the destination that was meant.
//! - A port without a door answers with a reset, UDP without a door with port unreachable, ICMP echo with silence.
//! - Root inside gains nothing: there is no interface to configure that leads anywhere.
//!
//! Use: [`Plan::new`] (pure), then [`apply_here`] inside the run's own fresh namespace, or [`JoinedGate`]. Everything is
//! synchronous and needs no runtime. [`inspect`] reads back from outside what a namespace holds; [`offers`] says what
//! this kernel can do.
//!
//! Messages to the kernel are written by `message.rs` rather than by the rtnetlink crates: the same hundred lines serve
//! routes and nf_tables, without an async runtime in the process that builds the boundary.

#![deny(unsafe_code)]

mod apply;
mod error;
mod guard;
pub mod inspect;
mod kernel;
pub mod limits;
mod linux;
mod message;
mod netlink;
mod plan;
mod probe;
mod redirect;
mod sys;

pub use apply::{Gate, Missed, apply, apply_here};
pub use error::{ApplyError, GuardError, PlanError};
pub use guard::{Home, JoinedGate, Swept, sweep};
pub use kernel::{Kernel, Recorder, RecorderFailure};
pub use linux::LinuxKernel;
pub use plan::{
    CatchAll, DNS_PORT, Door, DoorKind, Families, Form, GUEST_LINK, GateSpec, JOINED_GATE_V4, JOINED_GATE_V6,
    JOINED_GUEST_V4, JOINED_GUEST_V6, Need, PROXY_PORT, Place, Plan, Planned, Redirect, Route,
    STANDING_PORTS, Step, Subnet, VethPair,
};
pub use probe::{Offer, Offers, offers};
