//! The path as a whole, in one process: a guest's bytes in, the upstream's recording and the run's trace out.

mod approvals;
mod conditions;
mod lab;
mod metrics;
mod proxy;
mod smuggling;
