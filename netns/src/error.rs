//! One enum per stage, one variant per cause that a caller treats differently.

use std::path::PathBuf;

use crate::plan::{Place, Step};

/// Why a specification does not become a plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    #[error("port {0} cannot be granted: the gate needs it for {1}")]
    Reserved(u16, &'static str),
    #[error("port 0 cannot be granted")]
    PortZero,
    #[error("{0} granted ports are more than the limit of {max}", max = crate::limits::MAX_GRANTED_PORTS)]
    TooManyPorts(usize),
    #[error("`{0}` is not a run id of 8 to 64 lower-case hex digits")]
    RunId(String),
}

/// A step of a plan failed; what had been done before it was undone.
#[derive(Debug, thiserror::Error)]
#[error("cannot {step} in the {place} namespace")]
pub struct ApplyError {
    pub place: Place,
    pub step: Step,
    #[source]
    pub source: std::io::Error,
}

/// Why a joined gate could not be made, adopted or removed.
#[derive(Debug, thiserror::Error)]
pub enum GuardError {
    #[error("cannot make a network namespace")]
    Create(#[source] std::io::Error),
    #[error("cannot keep the namespace at `{path}`")]
    Name {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("cannot remove the namespace at `{path}`")]
    Remove {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("cannot read the folder of namespaces `{path}`")]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error(transparent)]
    Run(#[from] PlanError),
    #[error(transparent)]
    Apply(#[from] ApplyError),
}
