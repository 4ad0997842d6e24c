//! What is allowed: parse -> check -> evaluate -> explain.
//!
//! Policy text goes in, answers come out. This crate never reads a file, a clock, a socket or the
//! environment, and has nothing asynchronous: the caller hands it every fact that a decision needs.
//! The only way to a [`Permit`] is [`Policy::evaluate`].

#![forbid(unsafe_code)]

pub mod address;
mod decision;
mod diagnostic;
mod host;
pub mod limits;
mod model;
mod question;
mod source;
mod target;
mod tier;

pub use address::{AddressClass, AddressRange, AddressRangeError};
pub use decision::{Decision, Fault, Permit, Reason, Refusal, RuleId};
pub use diagnostic::{Code, Diagnostic, Place, Related, Severity, render_all};
pub use host::{Host, HostError};
pub use model::{ApiView, CredentialView, GrantView, Loaded, Policy, SecretReference, SurfaceView};
pub use question::{DestinationQuestion, RequestQuestion, Route, RunScope, ScopeQuestion};
pub use source::SourceFile;
pub use target::{Target, TargetError};
pub use tier::Tier;
