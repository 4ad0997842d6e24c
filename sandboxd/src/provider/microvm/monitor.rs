//! Asks QEMU about itself by its machine protocol (QMP): one JSON object per line, answers carry the question's id.

use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use serde_json::{Value, json};

use super::limits;

/// The monitor of a machine.
pub(super) struct Monitor {
    socket: UnixStream,
    read: Vec<u8>,
    questions: u64,
}

impl Monitor {
    /// Opens it. Asked a second time, QEMU says that it is open already, which is as good.
    pub(super) fn open(socket: &OwnedFd) -> io::Result<Self> {
        let socket = UnixStream::from(socket.try_clone()?);
        socket.set_nonblocking(false)?;
        socket.set_read_timeout(Some(limits::ANSWER_LIMIT))?;
        socket.set_write_timeout(Some(limits::ANSWER_LIMIT))?;
        let mut monitor = Self { socket, read: Vec::new(), questions: 0 };
        monitor.answer("qmp_capabilities")?;
        Ok(monitor)
    }

    /// The answer to a question without arguments.
    pub(super) fn ask(&mut self, question: &str) -> io::Result<Value> {
        let mut answer = self.answer(question)?;
        match answer.get_mut("return") {
            Some(value) => Ok(value.take()),
            None => Err(io::Error::other(format!("QEMU answers {question} with {answer}"))),
        }
    }

    fn answer(&mut self, question: &str) -> io::Result<Value> {
        self.questions += 1;
        let id = format!("{question}-{}", self.questions);
        let mut line = serde_json::to_vec(&json!({ "execute": question, "id": id }))?;
        line.push(b'\n');
        self.socket.write_all(&line)?;
        for _ in 0..limits::LINES {
            let answer: Value = serde_json::from_slice(&self.line()?)?;
            if answer.get("id").is_some_and(|known| *known == *id) {
                return Ok(answer);
            }
        }
        Err(io::Error::other(format!("QEMU does not answer {question}")))
    }

    fn line(&mut self) -> io::Result<Vec<u8>> {
        loop {
            if let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
                let rest = self.read.split_off(end + 1);
                return Ok(std::mem::replace(&mut self.read, rest));
            }
            let mut buffer = [0; 4096];
            let read = self.socket.read(&mut buffer)?;
            if read == 0 || self.read.len() > limits::LINE_BYTES {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.read.extend_from_slice(buffer.get(..read).unwrap_or_default());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};

    use super::*;

    #[test]
    fn an_answer_belongs_to_its_question() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let qemu = std::thread::spawn(move || {
            let mut lines = BufReader::new(theirs.try_clone().unwrap()).lines();
            let mut theirs = theirs;
            theirs.write_all(b"{\"QMP\": {}}\n").unwrap();
            while let Some(Ok(line)) = lines.next() {
                let question: Value = serde_json::from_str(&line).unwrap();
                let (event, id) = (json!({ "event": "RESUME" }), &question["id"]);
                let answer = match question["execute"].as_str().unwrap() {
                    "query-kvm" => json!({ "return": { "enabled": true }, "id": id }),
                    "qmp_capabilities" => json!({ "return": {}, "id": id }),
                    _ => json!({ "error": { "class": "CommandNotFound" }, "id": id }),
                };
                theirs.write_all(format!("{event}\n{answer}\n").as_bytes()).unwrap();
            }
        });
        let ours = OwnedFd::from(ours);
        for _ in 0..2 {
            let mut monitor = Monitor::open(&ours).unwrap();
            assert_eq!(monitor.ask("query-kvm").unwrap(), json!({ "enabled": true }));
            assert!(monitor.ask("human-monitor-command").is_err());
        }
        drop(ours);
        qemu.join().unwrap();
    }
}
