//! Output to stdout that ends quietly when the reader goes away.

use std::io::{self, Write};

use super::Exit;

/// Buffered stdout.
#[derive(Debug)]
pub struct Output(io::BufWriter<io::Stdout>);

impl Output {
    pub fn new() -> Self {
        Self(io::BufWriter::new(io::stdout()))
    }

    /// Writes one line.
    ///
    /// # Errors
    /// The exit code to end with: success when the reader went away (`| head`).
    pub fn line(&mut self, text: &str) -> Result<(), Exit> {
        writeln!(self.0, "{text}").map_err(|error| ended(&error))
    }

    /// Makes what was written visible.
    ///
    /// # Errors
    /// As for `line`.
    pub fn flush(&mut self) -> Result<(), Exit> {
        self.0.flush().map_err(|error| ended(&error))
    }
}

impl Default for Output {
    fn default() -> Self {
        Self::new()
    }
}

fn ended(error: &io::Error) -> Exit {
    if error.kind() == io::ErrorKind::BrokenPipe { Exit::Success } else { Exit::System }
}

/// Writes text to stdout.
pub fn print(text: &str) -> Exit {
    let mut output = Output::new();
    let written = output.line(text.trim_end_matches('\n')).and_then(|()| output.flush());
    written.err().unwrap_or(Exit::Success)
}
