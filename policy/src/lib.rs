//! What is allowed: parse -> check -> evaluate -> explain.
//!
//! Policy text goes in, answers come out. This crate never reads a file, a clock, a socket or the
//! environment, and has nothing asynchronous: the caller hands it every fact that a decision needs.
//! The only way to a [`Permit`] is [`Policy::evaluate`].

#![forbid(unsafe_code)]

mod decision;
mod host;
mod model;
mod question;
mod target;
mod tier;

pub use decision::{Decision, Fault, Permit, Reason, Refusal, RuleId};
pub use host::{Host, HostError};
pub use model::{ApiView, CredentialView, GrantView, Policy, SecretReference};
pub use question::{DestinationQuestion, RequestQuestion, Route, RunScope, ScopeQuestion};
pub use target::{Target, TargetError};
pub use tier::Tier;
