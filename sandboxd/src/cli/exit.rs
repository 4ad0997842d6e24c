//! Exit codes.

use std::process::ExitCode;

/// How the program ends. `run` passes on the status of what it ran and keeps 125 to 127 for itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// 0: done.
    Success,
    /// 1: a command failed, or `doctor` found something that keeps runs from working.
    Failure,
    /// 2: the command line does not parse (`run`: 125).
    Usage,
    /// `run`: the status of the program; 124 at the deadline, 128 + signal when one killed it, 134 for a trap of the
    /// engine, 137 when memory ran out.
    Guest(u8),
    /// 125 of `run`: bad arguments or configuration, or something on this host or at the broker does not work. Nothing
    /// ran.
    NotStarted,
    /// 126 of `run`: refused by a floor, a grant or a limit. Nothing ran.
    Refused,
    /// 127 of `run`: the sandbox failed after the program was released. It may have run.
    Lost,
    /// 130: interrupted; `run` has killed the program.
    Interrupted,
}

impl Exit {
    pub const fn code(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::Failure => 1,
            Self::Usage => 2,
            Self::Guest(code) => code,
            Self::NotStarted => 125,
            Self::Refused => 126,
            Self::Lost => 127,
            Self::Interrupted => 130,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        exit.code().into()
    }
}

impl std::process::Termination for Exit {
    fn report(self) -> ExitCode {
        self.into()
    }
}
