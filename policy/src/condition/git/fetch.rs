//! A fetch: the request of upload-pack in protocol v0, v1 (the same lines) and v2 (gitprotocol-v2).
//!
//! Which refs a fetch reads cannot be bounded by its lines: it asks for object ids, and what an id belongs to is known to the
//! server only. The lines are read so that nothing but a fetch passes for one.

use super::pkt::{NoPkt, Pkt, next};
use crate::Reason;
use crate::condition::Miss;
use crate::limits::GIT_LINES_MAX;

/// Commands of protocol v2 that read refs and objects.
const COMMANDS: [&[u8]; 3] = [b"ls-refs", b"fetch", b"object-info"];

/// Lines of v0 and v1 by their first word.
const WORDS: [&[u8]; 8] =
    [b"want", b"have", b"shallow", b"deepen", b"deepen-since", b"deepen-not", b"filter", b"done"];

pub(super) fn read(mut bytes: &[u8]) -> Result<(), Miss> {
    let mut lines = 0_usize;
    let mut version_2 = None;
    while !bytes.is_empty() {
        lines += 1;
        if lines > GIT_LINES_MAX {
            return Err(Miss::new(Reason::InspectionTooComplex, "a fetch of too many lines"));
        }
        let line = match next(&mut bytes) {
            Ok(Pkt::Line(line)) => line.strip_suffix(b"\n").unwrap_or(line),
            Ok(Pkt::Flush) => continue,
            Ok(Pkt::Delimiter) if version_2 == Some(true) => continue,
            Ok(_) | Err(NoPkt::Malformed) => return Err(malformed("a fetch that is not in pkt-lines")),
            Err(NoPkt::Incomplete) => {
                return Err(Miss::new(Reason::InspectionTruncated, "a fetch that ends inside a line"));
            }
        };
        let command = line.strip_prefix(b"command=");
        match (version_2, command) {
            (None, Some(command)) if COMMANDS.contains(&command) => version_2 = Some(true),
            (_, Some(_)) => return Err(malformed("a command that is none of a fetch's")),
            (Some(true), None) => {}
            (_, None) => {
                version_2 = Some(false);
                let word = line.split(|byte| *byte == b' ').next().unwrap_or_default();
                if !WORDS.contains(&word) {
                    return Err(malformed("a line that is none of a fetch's"));
                }
            }
        }
    }
    match version_2 {
        Some(_) => Ok(()),
        None => Err(malformed("a fetch that asks for nothing")),
    }
}

fn malformed(detail: &'static str) -> Miss {
    Miss::new(Reason::InspectionMalformed, detail)
}
