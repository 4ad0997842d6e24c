//! The real `sandboxd run`: a program behind the `native` provider, with the lab's broker.

use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::broker::program;
use crate::lab::{CALLER, Lab};

/// Who starts `sandboxd`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum User {
    /// Whoever runs the tests.
    Own,
    /// Uid 65534, the broker's user: everything must work without root too.
    Nobody,
}

/// What a run gave.
#[derive(Debug)]
pub struct Ran {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
    pub time: Duration,
}

impl Ran {
    /// Fails unless the program ended with 0.
    #[track_caller]
    pub fn succeeded(self) -> Self {
        assert_eq!(self.code, Some(0), "{self:#?}");
        self
    }
}

impl Lab {
    /// Runs a command behind `native` with these grants.
    pub fn sandbox(&self, grants: &[&str], command: &[&str]) -> Ran {
        self.sandbox_as(User::Own, grants, &[], command)
    }

    /// Runs a shell program behind `native`.
    pub fn shell(&self, grants: &[&str], script: &str) -> Ran {
        self.sandbox(grants, &["/bin/sh", "-c", script])
    }

    /// With more arguments for `sandboxd run`.
    pub fn sandbox_as(&self, user: User, grants: &[&str], more: &[&str], command: &[&str]) -> Ran {
        let mut run = self.sandbox_command(user, grants, more, command);
        let begun = Instant::now();
        let output = run.output().unwrap();
        let ran = Ran {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            time: begun.elapsed(),
        };
        self.assert_no_secret("what the program printed", ran.stdout.as_bytes());
        self.assert_no_secret("what sandboxd printed", ran.stderr.as_bytes());
        ran
    }

    /// The command that [`Lab::sandbox_as`] runs, for tests that kill it.
    pub fn sandbox_command(&self, user: User, grants: &[&str], more: &[&str], command: &[&str]) -> Command {
        let mut run = Command::new(program("sandboxd"));
        run.arg("run").arg("--config").arg(self.broker.config_file());
        if !grants.is_empty() {
            run.args(["--caller", CALLER]);
        }
        for grant in grants {
            run.args(["--grant", grant]);
        }
        run.args(more).arg("--").args(command).stdin(Stdio::null());
        run.env_remove("XDG_RUNTIME_DIR");
        if user == User::Nobody && nix::unistd::geteuid().is_root() {
            run.uid(65534).gid(65534);
            run.env("HOME", self.folder()).env("XDG_RUNTIME_DIR", self.folder());
        }
        run
    }
}
