//! What runs between the daemon and the user's code.
//!
//! The **launcher** is a small process with one thread, forked from the daemon before the daemon starts any thread. It
//! makes the child of each run with `clone3` in new namespaces, so that the child may run ordinary Rust, and it holds no
//! secret that a child could inherit. When the daemon dies, the launcher sees the end of its socket and every run ends.
//!
//! ```text
//! daemon ──Create, channel end──► launcher ──clone3, Birth──► child: setup (boundary) ──► guest::run
//!    ▲  ◄──Created, pidfd──────────┘                             │
//!    └────────────── channel: Ready+doors, Job, output, Done ─────────────────────────────┘
//! ```

pub mod launcher;
pub mod message;
pub mod setup;
pub mod sys;
mod unborn;
