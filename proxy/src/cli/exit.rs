//! Exit codes: an enum with a line each, and the way errors are printed.

use std::process::ExitCode;

use crate::app::StartError;

macro_rules! exits {
    ($($(#[doc = $doc:literal])* $variant:ident = $code:literal;)*) => {
        /// What `freeboard` ends with.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Exit { $($(#[doc = $doc])* $variant = $code,)* }

        impl Exit {
            pub const ALL: &'static [(Self, &'static str)] = &[$((Self::$variant, concat!($($doc),*)),)*];
        }
    };
}

exits! {
    /// Done; for `serve`: ended in order after SIGTERM or SIGINT.
    Success = 0;
    /// The answer is no: a check, test or verification found problems, which are listed.
    Problems = 1;
    /// The command line is wrong, or names files that cannot be read.
    Usage = 2;
    /// The configuration cannot be read or has mistakes.
    Config = 3;
    /// The policy cannot be read or has errors, or others can write it or read its secrets.
    Policy = 4;
    /// The interception CA is missing, exists already, or cannot be used.
    Ca = 5;
    /// The audit log cannot be opened, read or written, or its end does not verify.
    Audit = 6;
    /// A socket cannot be listened on.
    Listen = 7;
    /// Privileges could not be dropped, or the broker cannot confine itself.
    Privileges = 8;
    /// The system refused threads, descriptors or output.
    System = 9;
    /// A comparison of policies: something is taken away, nothing is added.
    Narrower = 10;
    /// A comparison of policies: something is newly allowed, or may be.
    Wider = 11;
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

impl From<&StartError> for Exit {
    fn from(error: &StartError) -> Self {
        match error {
            StartError::Ca(_) | StartError::Authority(_) => Self::Ca,
            StartError::Policy(_) | StartError::ReadableSecrets(_) => Self::Policy,
            StartError::Audit(_) | StartError::AuditRefused => Self::Audit,
            StartError::Listen { .. }
            | StartError::AlreadyListening { .. }
            | StartError::HandedOver { .. } => Self::Listen,
            StartError::Privileges(_) | StartError::Confine(_) => Self::Privileges,
            StartError::ExplicitRun { .. } | StartError::TokenHash { .. } | StartError::Guard(_) => {
                Self::Config
            }
            StartError::Lifeline(_) => Self::Usage,
            StartError::System(_) | StartError::Helpers(_) => Self::System,
        }
    }
}

/// Prints the error with its causes to stderr, once each, and gives the exit code.
pub fn report(exit: Exit, error: &dyn std::error::Error) -> Exit {
    eprintln!("error: {}", with_causes(error));
    exit
}

/// The error and its causes in one line, each said once.
pub fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        // A transparent error shows its cause as its own text.
        if !text.ends_with(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = error.source();
    }
    text
}

/// Prints what to do next to stderr.
pub fn hint(text: &str) {
    eprintln!("hint: {text}");
}
