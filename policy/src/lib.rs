//! What is allowed: parse -> check -> evaluate -> explain.
//!
//! Policy text goes in, answers come out. This crate never reads a file, a clock, a socket or the
//! environment, and has nothing asynchronous: the caller hands it every fact that a decision needs.
//! The only way to a [`Permit`] is [`Policy::evaluate`], for rules that look at the body by way of [`PendingBody::inspect`], and
//! the only way to a [`ConnectionPermit`] is [`Policy::connect`].

#![forbid(unsafe_code)]

pub mod address;
mod automata;
mod canonical;
pub mod cases;
mod check;
mod compiled;
mod condition;
pub mod credential;
mod decision;
mod diagnostic;
pub mod diff;
mod draft;
mod evaluate;
pub mod explain;
pub mod export;
pub mod format;
mod host;
pub mod import;
pub mod learn;
pub mod limits;
mod model;
mod origin;
pub mod pages;
mod question;
mod read;
pub mod replay;
pub mod risk;
mod route;
mod schedule;
pub mod schema;
mod scope;
mod source;
mod suggest;
mod target;
mod tier;
mod traffic;
mod units;

pub use address::{AddressClass, AddressRange, AddressRangeError};
pub use condition::coding::BodyCoding;
pub use condition::fields::{HeaderFields, NoFields};
pub use condition::grpc::{BodyMeter, BodyMeterError};
pub use condition::pending::{HeldBody, PendingBody};
pub use decision::{AnswerTerms, ConnectionPermit, Decision, Fault, Permit, Reason, Refusal, RuleId};
pub use diagnostic::{Code, Diagnostic, Place, Related, Severity, render_all};
pub use host::{Host, HostError};
pub use model::{
    Allowed, ApiView, Approval, CredentialView, GrantView, HealthCheck, Loaded, PlaceholderView, Policy,
    SecretReference, SurfaceView, Window,
};
pub use question::{
    ConnectionQuestion, DestinationQuestion, RequestQuestion, Route, RunScope, ScopeQuestion,
};
pub use source::SourceFile;
pub use target::{Target, TargetError};
pub use tier::Tier;
pub use traffic::Traffic;
