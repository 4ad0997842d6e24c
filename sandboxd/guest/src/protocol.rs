//! The words between the daemon and the guest program.
//!
//! A frame is one byte of kind, four bytes of length (big endian), then the body. Bodies of the daemon's side and
//! reports are JSON; file contents and output are bytes as they are.

use std::io::{self, Read, Write};

use serde::{Deserialize, Serialize};

use crate::limits::MAX_FRAME_BYTES;

/// Where certificates are in every root.
pub const CERTIFICATES: &str = "/etc/ssl";

/// What a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Daemon: [`JobSpec`]. Files follow, then `Go`.
    Job = 1,
    /// Daemon: one file for the work directory ([`encode_file`]).
    File = 2,
    /// Daemon: run it.
    Go = 3,
    /// Daemon, instead of a first `Job`: calls follow, each a `Job` with its files and `Go`, until the channel ends. Empty.
    Session = 4,
    /// Daemon, between two calls: end the interpreters. Answered by `Done`. Empty.
    Suspend = 5,
    /// Daemon, during a call: nobody waits for it any more; it ends as at its deadline. Empty.
    Cancel = 6,
    /// Daemon, before the first `Job` or `Session`: one file below [`CERTIFICATES`] ([`encode_file`]), where the room was built
    /// by somebody who has none of ours.
    Place = 7,
    /// Daemon, after `Go` of a job with input: bytes of standard input for the steps.
    Stdin = 8,
    /// Daemon: no more of it follows. Empty.
    StdinEnd = 9,
    /// Guest: the boundary stands, [`Ready`].
    Ready = 16,
    /// Guest: the boundary could not be built, [`SetupFailure`].
    Failed = 17,
    /// Guest: a step begins; empty.
    StepBegins = 18,
    Stdout = 19,
    Stderr = 20,
    /// Guest: [`StepReport`].
    StepEnds = 21,
    /// Guest: one captured file ([`encode_file`]).
    Artifact = 22,
    /// Guest: [`Report`]. The last frame of a run, or of a call.
    Done = 23,
    /// Guest, before `Ready`: [`Doors`]; the gate's sockets come along. The guest has closed its own when `Ready` comes.
    Doors = 24,
}

impl Kind {
    const ALL: [Self; 18] = [
        Self::Job,
        Self::File,
        Self::Go,
        Self::Session,
        Self::Suspend,
        Self::Cancel,
        Self::Place,
        Self::Stdin,
        Self::StdinEnd,
        Self::Ready,
        Self::Failed,
        Self::StepBegins,
        Self::Stdout,
        Self::Stderr,
        Self::StepEnds,
        Self::Artifact,
        Self::Done,
        Self::Doors,
    ];

    pub fn from_byte(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// The job, without its files.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct JobSpec {
    pub program: Program,
    /// The whole environment of each step.
    pub environment: Vec<(String, String)>,
    pub artifacts: Vec<String>,
    pub timeout_ms: u64,
    /// Bytes sent per stream and step.
    pub output: OutputMode,
    /// Bytes of artifacts sent in all.
    pub artifact_limit: u64,
    /// The steps have standard input, which follows; else it is empty.
    #[serde(default)]
    pub input: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum OutputMode {
    /// Send this many bytes per stream and step, throw the rest away, kill a flood.
    Keep(u64),
    /// Send everything; a slow reader slows the step down.
    All,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Program {
    /// A script on the standard input of `interpreter` (an absolute path with its arguments).
    Script { interpreter: Vec<String>, code: String },
    /// In order, each through `/bin/sh -c`; stops after the first that fails.
    Steps { steps: Vec<String> },
    /// One command, looked up in the PATH of the environment.
    Command { argv: Vec<String> },
    /// Code for the session's living interpreter of this language; `interpreter` (an absolute path) starts it.
    Cell { language: Language, interpreter: String, code: String },
}

/// A language of cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Language {
    JavaScript,
    Python,
}

impl Language {
    pub const ALL: [Self; 2] = [Self::JavaScript, Self::Python];

    /// The word of the wire.
    pub const fn word(self) -> &'static str {
        match self {
            Self::JavaScript => "javascript",
            Self::Python => "python",
        }
    }

    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|language| language.word() == word)
    }
}

/// What the descriptors that come along are for; the reader of the frame knows the words.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Doors {
    pub doors: Vec<serde_json::Value>,
    /// The last descriptor is another channel, over which the guest program will speak; this one is then only for the
    /// failure of what runs around it. A kernel of the run's own closes what it was given in a way that all holders of a
    /// socket see.
    #[serde(default)]
    pub guest_channel: bool,
    /// The descriptor before that one is the line on which a machine can be asked about itself.
    #[serde(default)]
    pub monitor: bool,
}

/// The boundary stands.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Ready {
    /// What only the inside can say: name, value, and whether it is as required.
    pub facts: Vec<(String, String, bool)>,
}

/// Why no boundary stands.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SetupFailure {
    pub step: String,
    pub errno: Option<i32>,
    pub message: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepReport {
    pub exit_code: i32,
    pub timed_out: bool,
    pub stdout_truncated: bool,
    pub stderr_truncated: bool,
    pub duration_us: u64,
    /// Text for people where the exit code needs it.
    pub detail: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    pub ending: ReportedEnding,
    pub detail: String,
    pub artifacts_truncated: bool,
    /// The work directory had no free block or no free inode at the end.
    pub disk_full: bool,
    /// The same of /tmp.
    #[serde(default)]
    pub tmp_full: bool,
    /// What a kernel of the run's own counted, which no outside view shows.
    #[serde(default)]
    pub counted: Counted,
    /// How a call left its session.
    pub session: Option<SessionReport>,
}

/// Limits that were reached.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    /// Processes that were killed because the run's memory was used up.
    pub memory_kills: u64,
    /// Processes that could not be made.
    pub pids_refusals: u64,
}

impl Counted {
    /// What came since an earlier count.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            memory_kills: self.memory_kills.saturating_sub(before.memory_kills),
            pids_refusals: self.pids_refusals.saturating_sub(before.pids_refusals),
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReportedEnding {
    #[default]
    Completed,
    TimedOut,
    SetupFailed,
    /// A file of a cell could not be placed: its code was not run, and no interpreter was touched.
    FilesRefused,
    /// No interpreter came up for a cell: its code was not run.
    NoInterpreter,
}

/// What is left of a session's processes after a call.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionReport {
    /// Nothing else than the interpreters is alive, as far as the guest program sees.
    pub clean: bool,
    /// Interpreters that wait, stopped, for their next cell.
    pub interpreters: u32,
    /// The call began a fresh interpreter.
    pub started: bool,
    /// The call's interpreter ended in it.
    pub ended: bool,
}

/// Writes one frame.
pub fn write_frame(to: &mut impl Write, kind: Kind, body: &[u8]) -> io::Result<()> {
    let header = header(kind, body.len())?;
    // One write for what fits: a frame of output is one wake-up of the daemon.
    if body.len() <= 4096 {
        let mut frame = Vec::with_capacity(header.len() + body.len());
        frame.extend_from_slice(&header);
        frame.extend_from_slice(body);
        return to.write_all(&frame);
    }
    to.write_all(&header)?;
    to.write_all(body)
}

/// The first bytes of a frame.
pub fn header(kind: Kind, length: usize) -> io::Result<[u8; 5]> {
    let length = u32::try_from(length).ok().filter(|_| length <= MAX_FRAME_BYTES);
    let Some(length) = length else { return Err(io::Error::from(io::ErrorKind::InvalidInput)) };
    let [a, b, c, d] = length.to_be_bytes();
    Ok([kind as u8, a, b, c, d])
}

/// Kind and body length of a frame.
pub fn parse_header(header: [u8; 5]) -> io::Result<(Kind, usize)> {
    let [kind, a, b, c, d] = header;
    let length = u32::from_be_bytes([a, b, c, d]) as usize;
    match Kind::from_byte(kind) {
        Some(kind) if length <= MAX_FRAME_BYTES => Ok((kind, length)),
        _ => Err(io::Error::from(io::ErrorKind::InvalidData)),
    }
}

/// Reads one frame; the end of the stream is an error.
pub fn read_frame(from: &mut impl Read) -> io::Result<(Kind, Vec<u8>)> {
    let mut first = [0; 5];
    from.read_exact(&mut first)?;
    let (kind, length) = parse_header(first)?;
    let mut body = vec![0; length];
    from.read_exact(&mut body)?;
    Ok((kind, body))
}

/// A path and a content in one body: two bytes of path length, the path, the content.
pub fn encode_file(path: &str, content: &[u8]) -> io::Result<Vec<u8>> {
    let length = u16::try_from(path.len()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    let mut body = Vec::with_capacity(2 + path.len() + content.len());
    body.extend_from_slice(&length.to_be_bytes());
    body.extend_from_slice(path.as_bytes());
    body.extend_from_slice(content);
    Ok(body)
}

/// The reverse of [`encode_file`].
pub fn decode_file(body: &[u8]) -> Option<(&str, &[u8])> {
    let (length, rest) = body.split_first_chunk::<2>()?;
    let (path, content) = rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
    Some((std::str::from_utf8(path).ok()?, content))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_comes_back_as_it_was_written() {
        let mut wire = Vec::new();
        write_frame(&mut wire, Kind::Stdout, b"hello").unwrap();
        write_frame(&mut wire, Kind::Done, &vec![7; 10_000]).unwrap();
        let mut reader = wire.as_slice();
        assert_eq!(read_frame(&mut reader).unwrap(), (Kind::Stdout, b"hello".to_vec()));
        assert_eq!(read_frame(&mut reader).unwrap(), (Kind::Done, vec![7; 10_000]));
        assert!(read_frame(&mut reader).is_err(), "the end of the stream is an error");
    }

    #[test]
    fn refuses_unknown_kinds_and_oversize_frames() {
        assert!(parse_header([99, 0, 0, 0, 0]).is_err());
        assert!(parse_header([1, 0xff, 0, 0, 0]).is_err());
        assert!(header(Kind::File, MAX_FRAME_BYTES + 1).is_err());
    }

    #[test]
    fn a_file_comes_back_and_a_cut_one_does_not() {
        let body = encode_file("dir/a.txt", b"content").unwrap();
        assert_eq!(decode_file(&body), Some(("dir/a.txt", b"content".as_slice())));
        assert_eq!(decode_file(&[0, 9, b'a']), None);
        assert_eq!(decode_file(&[]), None);
    }
}
