//! The broker: it ends a guest's TLS, matches every request against the run's grants, attaches a credential that
//! the guest never sees, sends what was decided, and writes down what happened.
//!
//! ```text
//! accept ──► tls ──► request ──► decide ──► credential ──► upstream ──► record
//!   Client    Session   Request     Permit      Material       Answer       Outcome
//!                          │           │                                      ▲
//!                          └───────────┴────► Stop ──► respond ───────────────┘
//! ```
//!
//! Read [`pipeline`] first: it is one request from top to bottom; [`connection`] is the same for one that is passed on unread. Modules stand in the order in which data passes
//! through them; a stage may name types of the stages before it, never of those after it.
//!
//! Two structs are handed along: [`broker::Broker`], what is shared by all runs, and [`run::RunContext`], what
//! belongs to one run (identity, scope, budgets, names, upstream connections, trace, end).
//!
//! Every future of the path is `Send`. A gate lives on one worker thread (`accept::worker`), so its locks are
//! never contended.

#![forbid(unsafe_code)]

pub mod broker;
pub mod crypto;
pub mod error;
pub mod limits;
pub mod metrics;
pub mod operate;
pub mod run;
pub mod session;

pub mod accept;
pub mod tls;

pub mod http1;
pub mod request;

pub mod decide;

pub mod approvals;

pub mod credential;

pub mod upstream;

pub mod connection;
pub mod forward;
pub mod pipeline;
pub mod respond;

pub mod record;
pub mod traces;

pub mod dns;

pub mod app;
pub mod cli;
pub mod config;
pub mod confine;
pub mod control_server;
pub mod helpers;
pub mod privileges;
pub mod reload;
pub mod shutdown;
pub mod tasks;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
