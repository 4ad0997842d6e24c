//! Captures the files that were asked for, after the last step, when no process of the run is left to race with.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;

use crate::files::open_beneath;
use crate::protocol::{Kind, encode_file, write_frame};

/// Sends the artifacts that exist. Returns whether one was left out because it was over the limit.
///
/// What is no regular file below the work directory as the kernel resolves it without links is left out in silence:
/// it does not exist as far as the result is concerned.
pub(crate) fn send(
    channel: &mut impl Write,
    work: impl AsFd,
    paths: &[String],
    limit: u64,
) -> io::Result<bool> {
    let mut left = limit;
    let mut truncated = false;
    for path in paths {
        let Ok(file) = open_beneath(&work, path) else { continue };
        // One byte more than allowed is read, so that "exactly full" and "too large" differ.
        let mut content = Vec::new();
        if file.take(left.saturating_add(1)).read_to_end(&mut content).is_err() {
            continue;
        }
        let size = content.len() as u64;
        if size > left {
            truncated = true;
            continue;
        }
        left -= size;
        write_frame(channel, Kind::Artifact, &encode_file(path, &content)?)?;
    }
    Ok(truncated)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{decode_file, read_frame};

    #[test]
    fn keeps_what_fits_and_says_when_something_did_not() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a"), b"12345").unwrap();
        std::fs::write(folder.path().join("big"), vec![0; 100]).unwrap();
        std::fs::write(folder.path().join("c"), b"678").unwrap();
        let work = std::fs::File::open(folder.path()).unwrap();
        let names = ["a", "big", "missing", "c"].map(String::from);
        let mut wire = Vec::new();
        assert!(send(&mut wire, &work, &names, 8).unwrap());
        let mut reader = wire.as_slice();
        for (name, content) in [("a", b"12345".as_slice()), ("c", b"678")] {
            let (kind, body) = read_frame(&mut reader).unwrap();
            assert_eq!(kind, Kind::Artifact);
            assert_eq!(decode_file(&body), Some((name, content)));
        }
        assert!(reader.is_empty());
        let mut wire = Vec::new();
        assert!(!send(&mut wire, &work, &names, 200).unwrap());
    }
}
