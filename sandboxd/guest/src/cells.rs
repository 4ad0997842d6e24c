//! The interpreters of a session: one per language, started by its first cell, alive until the session's end, its own, or
//! a deadline.
//!
//! An interpreter has a line to this program on descriptor 3: it says `H` when it has started. Before each cell it is asked `P` with
//! 16 random bytes and says `R` with the same; then it is sent `C`, 16 other random bytes, the length of the cell and the cell, and
//! says `D`, these 16 bytes and one byte of exit code. Until `R` came no code was sent, so a cell whose interpreter was
//! killed in between runs in a fresh one, and a cell without an interpreter is known not to have run; what a cell says on the line can shorten its own answer, but
//! never make this program send a cell twice.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags};

use crate::channel::Channel;
use crate::limits::{FLOOD_BYTES, LINE_BYTES, READ_CHUNK_BYTES, REAP_INTERVAL, START_WAIT};
use crate::processes::{Kept, kill, reap, reap_all, sweep, wake};
use crate::protocol::{Kind, Language, OutputMode, StepReport, write_frame};
use crate::step::{EXIT_FLOOD, EXIT_TIMED_OUT, Running, Start, spawn, wait_for_something};
use crate::user::StepUser;

/// Moves the line from standard input, where a program can be given one, to descriptor 3.
const OPEN_LINE: &str = "exec 3<&0 </dev/null; exec \"$0\" \"$@\"";
/// What runs cells inside an interpreter.
const PYTHON: &str = include_str!("cells/python.py");
const NODE: &str = include_str!("cells/node.js");

/// What an interpreter says when it is ready.
const READY: &[u8] = b"H";
/// Asks whether it still is; what comes before the number in question and answer.
const PING: u8 = b'P';
const PONG: u8 = b'R';
/// What comes before the number of a cell, and before it in its answer.
const CODE: u8 = b'C';
const DONE: u8 = b'D';
/// 128 + SIGKILL, for an interpreter whose own status nobody heard.
const EXIT_KILLED: i32 = 137;

/// The interpreters that are alive.
#[derive(Default)]
pub(crate) struct Cells {
    interpreters: Vec<Interpreter>,
    pub(crate) kept: Kept,
}

struct Interpreter {
    language: Language,
    running: Running,
    line: UnixStream,
}

/// One cell.
pub(crate) struct Cell<'a> {
    pub(crate) language: Language,
    pub(crate) interpreter: &'a str,
    pub(crate) code: &'a str,
    pub(crate) environment: &'a [(String, String)],
    pub(crate) user: Option<StepUser>,
    pub(crate) deadline: Instant,
    pub(crate) output: OutputMode,
}

/// What came of a cell.
pub(crate) enum Ran {
    /// Its code was not sent.
    NotReady(String),
    Over {
        step: StepReport,
        started: bool,
        ended: bool,
    },
}

/// How a conversation with an interpreter ended.
enum End {
    /// What was waited for came, with the byte after it.
    Heard(u8),
    /// The interpreter ended.
    Gone(i32),
    Deadline,
    Flood,
}

impl Cells {
    /// Ends all of them.
    pub(crate) fn end(&mut self) {
        self.interpreters.clear();
        self.kept.clear();
    }

    /// Lets go of those that ended, whoever ended them.
    pub(crate) fn forget_dead(&mut self) {
        let kept = &self.kept;
        self.interpreters.retain(|interpreter| kept.holds(interpreter.running.pid));
    }

    /// Runs one cell. When it returns nothing but the interpreters is alive, and they are stopped. An error means that the
    /// daemon is gone.
    pub(crate) fn run(&mut self, cell: &Cell<'_>, channel: &mut Channel) -> io::Result<Ran> {
        // One that an earlier call killed may have died only after it.
        reap_all(&mut self.kept);
        self.forget_dead();
        let (mut interpreter, started) = match self.living(cell, channel)? {
            Some(interpreter) => (interpreter, false),
            None => match self.start(cell, channel)? {
                Ok(interpreter) => (interpreter, true),
                Err(why) => return Ok(Ran::NotReady(why)),
            },
        };
        write_frame(channel, Kind::StepBegins, &[])?;
        let began = Instant::now();
        let end = interpreter.ask(cell, channel, &mut self.kept)?;
        let mut step = StepReport::default();
        let pid = interpreter.running.pid;
        let ended = match end {
            End::Heard(code) => {
                step.exit_code = i32::from(code);
                false
            }
            End::Gone(code) => {
                step.exit_code = code;
                true
            }
            End::Deadline => {
                step.exit_code = EXIT_TIMED_OUT;
                step.timed_out = true;
                self.kept.remove(pid);
                true
            }
            End::Flood => {
                step.exit_code = EXIT_FLOOD;
                step.detail = format!("a cell wrote more than {FLOOD_BYTES} bytes beyond what is kept");
                self.kept.remove(pid);
                true
            }
        };
        sweep(&mut self.kept);
        interpreter.running.drain(&mut step, &mut vec![0; READ_CHUNK_BYTES], cell.output, channel)?;
        step.duration_us = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        if !ended {
            self.interpreters.push(interpreter);
        }
        Ok(Ran::Over { step, started, ended })
    }

    /// The interpreter of this language, where there is one and it answers.
    fn living(&mut self, cell: &Cell<'_>, channel: &mut Channel) -> io::Result<Option<Interpreter>> {
        let known = self.interpreters.iter().position(|interpreter| interpreter.language == cell.language);
        let Some(place) = known else { return Ok(None) };
        let mut interpreter = self.interpreters.swap_remove(place);
        wake(interpreter.running.pid);
        interpreter.forget_words();
        let number = random()?;
        let (ping, pong) = (tagged(PING, &number), tagged(PONG, &number));
        let deadline = cell.deadline.min(Instant::now() + START_WAIT);
        let nothing = OutputMode::Keep(0);
        match interpreter.converse(&ping, &pong, 0, deadline, nothing, channel, &mut self.kept)? {
            End::Heard(_) => Ok(Some(interpreter)),
            End::Gone(_) | End::Deadline | End::Flood => {
                // Killed from another call, or busy in a thread that lets nobody in: not fit for a cell.
                self.kept.remove(interpreter.running.pid);
                sweep(&mut self.kept);
                Ok(None)
            }
        }
    }

    /// Starts an interpreter and waits until it is ready; else says why it is not.
    fn start(&mut self, cell: &Cell<'_>, channel: &mut Channel) -> io::Result<Result<Interpreter, String>> {
        let (line, theirs) = UnixStream::pair()?;
        line.set_nonblocking(true)?;
        let argv = command_line(cell);
        let start =
            Start { argv: &argv, stdin: Some(theirs.into()), environment: cell.environment, user: cell.user };
        let running = match spawn(start) {
            Ok(running) => running,
            Err((_, why)) => return Ok(Err(why.trim_end().to_owned())),
        };
        self.kept.add(running.pid);
        let mut interpreter = Interpreter { language: cell.language, running, line };
        let deadline = cell.deadline.min(Instant::now() + START_WAIT);
        let nothing = OutputMode::Keep(0);
        let heard = interpreter.converse(&[], READY, 0, deadline, nothing, channel, &mut self.kept)?;
        let why = match heard {
            End::Heard(_) => return Ok(Ok(interpreter)),
            End::Gone(code) => format!("the interpreter ended with {code} before it was ready"),
            End::Deadline => "the interpreter was not ready in time".to_owned(),
            End::Flood => "the interpreter wrote too much before it was ready".to_owned(),
        };
        self.kept.remove(interpreter.running.pid);
        Ok(Err(why))
    }
}

fn command_line(cell: &Cell<'_>) -> Vec<String> {
    let program: &[&str] = match cell.language {
        Language::Python => &["-u", "-c", PYTHON],
        Language::JavaScript => &["-e", NODE],
    };
    let line = ["/bin/sh", "-c", OPEN_LINE, cell.interpreter];
    line.iter().chain(program).map(|&word| word.to_owned()).collect()
}

impl Interpreter {
    fn ask(&mut self, cell: &Cell<'_>, channel: &mut Channel, kept: &mut Kept) -> io::Result<End> {
        self.running.begin_anew();
        self.forget_words();
        let number = random()?;
        let length =
            u32::try_from(cell.code.len()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        let request =
            [tagged(CODE, &number).as_slice(), &length.to_be_bytes(), cell.code.as_bytes()].concat();
        let answer = tagged(DONE, &number);
        self.converse(&request, &answer, 1, cell.deadline, cell.output, channel, kept)
    }

    /// What an earlier cell said after its answer is nobody's.
    fn forget_words(&mut self) {
        while matches!(self.line.read(&mut [0; LINE_BYTES]), Ok(1..)) {}
    }

    /// Sends `request` and waits for `answer` and as many bytes after it, passing output on.
    #[expect(clippy::too_many_arguments, reason = "one loop serves the start and each cell")]
    fn converse(
        &mut self,
        request: &[u8],
        answer: &[u8],
        after: usize,
        deadline: Instant,
        output: OutputMode,
        channel: &mut Channel,
        kept: &mut Kept,
    ) -> io::Result<End> {
        let mut unsent = request;
        let mut heard = Vec::new();
        let mut buffer = vec![0; READ_CHUNK_BYTES];
        let pid = self.running.pid;
        loop {
            let now = Instant::now();
            if now >= deadline {
                return Ok(End::Deadline);
            }
            let wanted = if unsent.is_empty() { PollFlags::IN } else { PollFlags::IN | PollFlags::OUT };
            let line = PollFd::new(&self.line, wanted);
            let longest = (deadline - now).min(REAP_INTERVAL);
            let ready = wait_for_something(&self.running, Some(line), channel, true, longest)?;
            if ready.spoken {
                return Ok(End::Deadline);
            }
            if ready.stdout {
                self.running.stdout.forward(&mut buffer, output, channel)?;
            }
            if ready.stderr {
                self.running.stderr.forward(&mut buffer, output, channel)?;
            }
            if self.running.is_flood() {
                return Ok(End::Flood);
            }
            if ready.line {
                unsent = self.send(unsent);
                if !self.hear(&mut heard) {
                    return Ok(End::Gone(kill(pid, kept).unwrap_or(EXIT_KILLED)));
                }
                if let Some(last) = find(&heard, answer, after) {
                    return Ok(End::Heard(last));
                }
            }
            if let Some(code) = reap(pid, kept) {
                return Ok(End::Gone(code));
            }
        }
    }

    /// Sends what the line takes now. A line that breaks is noticed when it is read.
    fn send<'a>(&mut self, unsent: &'a [u8]) -> &'a [u8] {
        if unsent.is_empty() {
            return unsent;
        }
        let sent = self.line.write(unsent).unwrap_or(0);
        unsent.get(sent..).unwrap_or_default()
    }

    /// Reads what is there. False at the end of the line.
    fn hear(&mut self, heard: &mut Vec<u8>) -> bool {
        let mut buffer = [0; LINE_BYTES];
        match self.line.read(&mut buffer) {
            Ok(0) => false,
            Ok(read) => {
                heard.extend_from_slice(buffer.get(..read).unwrap_or_default());
                let old = heard.len().saturating_sub(LINE_BYTES);
                heard.drain(..old);
                true
            }
            Err(error) => matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted),
        }
    }
}

fn random() -> io::Result<[u8; 16]> {
    let mut number = [0; 16];
    rustix::rand::getrandom(&mut number, rustix::rand::GetRandomFlags::empty())?;
    Ok(number)
}

fn tagged(tag: u8, number: &[u8; 16]) -> Vec<u8> {
    [[tag].as_slice(), number].concat()
}

/// Looks for `answer` with as many bytes after it; the last of them, or 0 when there are none.
fn find(heard: &[u8], answer: &[u8], after: usize) -> Option<u8> {
    let place = heard.windows(answer.len()).position(|window| window == answer)?;
    let rest = heard.get(place + answer.len()..)?;
    if after == 0 { Some(0) } else { rest.get(after - 1).copied() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_found_behind_other_words_and_only_when_it_is_whole() {
        assert_eq!(find(b"xxDabc\x07", b"Dabc", 1), Some(7));
        assert_eq!(find(b"xxDabc", b"Dabc", 1), None);
        assert_eq!(find(b"Dabd\x00", b"Dabc", 1), None);
        assert_eq!(find(b"H", READY, 0), Some(0));
    }
}
