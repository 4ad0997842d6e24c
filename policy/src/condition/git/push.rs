//! The commands of a push: what stands before its pack (gitprotocol-pack, "Reference Update Request and Packfile Transfer").

use super::RefChange;
use super::pkt::{NoPkt, Pkt, next};
use crate::limits::GIT_COMMANDS_MAX;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Push<'a> {
    pub(super) commands: Vec<Command<'a>>,
}

impl Push<'_> {
    /// Whether a pack follows the commands.
    pub(super) fn has_pack(&self) -> bool {
        self.commands.iter().any(|command| command.change != RefChange::Delete)
    }
}

/// `old-id new-id name`
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Command<'a> {
    pub(super) change: RefChange,
    pub(super) name: &'a [u8],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unreadable {
    /// More bytes are needed.
    Truncated,
    Malformed(&'static str),
}

impl From<NoPkt> for Unreadable {
    fn from(no: NoPkt) -> Self {
        match no {
            NoPkt::Incomplete => Self::Truncated,
            NoPkt::Malformed => Self::Malformed("a push that is not in pkt-lines"),
        }
    }
}

/// Capabilities that change what the lines mean, or name refs beside the commands.
const UNKNOWN_MEANING: [&[u8]; 1] = [b"push-cert"];

/// Reads the commands up to their flush, and what follows before the pack.
pub(super) fn read(mut bytes: &[u8]) -> Result<Push<'_>, Unreadable> {
    let mut commands = Vec::new();
    let mut options = false;
    loop {
        let line = match next(&mut bytes)? {
            Pkt::Line(line) => line,
            Pkt::Flush => break,
            _ => return Err(Unreadable::Malformed("a line of another protocol in a push")),
        };
        if commands.len() >= GIT_COMMANDS_MAX {
            return Err(Unreadable::Malformed("a push of too many refs"));
        }
        let line = if commands.is_empty() {
            let (command, capabilities) = split_at_nul(line);
            options |= has(capabilities, b"push-options");
            if UNKNOWN_MEANING.iter().any(|name| has(capabilities, name)) {
                return Err(Unreadable::Malformed("a signed push: its commands stand elsewhere"));
            }
            command
        } else {
            line
        };
        // A shallow clone says first where its history ends.
        if let Some(id) = line.strip_prefix(b"shallow ") {
            if object_id(id.strip_suffix(b"\n").unwrap_or(id)).is_none() {
                return Err(Unreadable::Malformed("a shallow line without an object id"));
            }
            continue;
        }
        commands.push(command(line)?);
    }
    // git sends a lone flush to learn whether it may write at all.
    if options {
        read_options(&mut bytes)?;
    }
    let push = Push { commands };
    // SECURITY: what follows the commands is a pack and nothing else; commands in a later part of the body would not
    // have been seen. Guarded by `a_push_is_its_commands_and_a_pack`.
    match bytes {
        b"" if !push.has_pack() => {}
        _ if !push.has_pack() => return Err(Unreadable::Malformed("bytes behind a push that has no pack")),
        _ if bytes.len() < 4 && b"PACK".starts_with(bytes) => return Err(Unreadable::Truncated),
        _ if !bytes.starts_with(b"PACK") => {
            return Err(Unreadable::Malformed("a push without a pack behind its commands"));
        }
        _ => {}
    }
    Ok(push)
}

fn read_options(bytes: &mut &[u8]) -> Result<(), Unreadable> {
    for _ in 0..GIT_COMMANDS_MAX {
        match next(bytes)? {
            Pkt::Line(_) => {}
            Pkt::Flush => return Ok(()),
            _ => return Err(Unreadable::Malformed("a line of another protocol in a push")),
        }
    }
    Err(Unreadable::Malformed("a push with too many options"))
}

fn command(line: &[u8]) -> Result<Command<'_>, Unreadable> {
    let wrong = Unreadable::Malformed("a line of a push that is no command");
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let mut parts = line.splitn(3, |byte| *byte == b' ');
    let (Some(old), Some(new), Some(name)) = (parts.next(), parts.next(), parts.next()) else {
        return Err(wrong);
    };
    let (Some(old), Some(new)) = (object_id(old), object_id(new)) else { return Err(wrong) };
    let change = match (old, new) {
        _ if !super::refs::is_ref(name) => return Err(Unreadable::Malformed("a push to what is no ref")),
        (Id::Null(a) | Id::Some(a), Id::Null(b) | Id::Some(b)) if a != b => return Err(wrong),
        (Id::Null(_), Id::Null(_)) => return Err(wrong),
        (Id::Null(_), Id::Some(_)) => RefChange::Create,
        (Id::Some(_), Id::Null(_)) => RefChange::Delete,
        (Id::Some(_), Id::Some(_)) => RefChange::Update,
    };
    Ok(Command { change, name })
}

/// An object id with its number of digits.
#[derive(Clone, Copy)]
enum Id {
    Null(usize),
    Some(usize),
}

/// SHA-1 or SHA-256 in lower-case hex.
fn object_id(text: &[u8]) -> Option<Id> {
    let good =
        matches!(text.len(), 40 | 64) && text.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    good.then(
        || if text.iter().all(|byte| *byte == b'0') { Id::Null(text.len()) } else { Id::Some(text.len()) },
    )
}

fn split_at_nul(line: &[u8]) -> (&[u8], &[u8]) {
    match line.iter().position(|byte| *byte == 0) {
        Some(at) => (line.get(..at).unwrap_or_default(), line.get(at + 1..).unwrap_or_default()),
        None => (line, &[]),
    }
}

fn has(capabilities: &[u8], name: &[u8]) -> bool {
    let trimmed = capabilities.trim_ascii();
    trimmed.split(|byte| *byte == b' ').any(|one| one.split(|byte| *byte == b'=').next() == Some(name))
}
