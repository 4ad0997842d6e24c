//! Files that the kernel makes up when they are read: /proc and control groups.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

/// Room for nearly every such file. They have no size to ask for, and a growing buffer takes a call per doubling.
const USUAL_BYTES: usize = 4 << 10;
/// Most bytes of one; the longest here, a table of mounts, has some ten thousand. At the limit the reading fails rather
/// than give half a file.
const MAX_BYTES: u64 = 4 << 20;

/// The whole text.
pub(crate) fn text(path: impl AsRef<Path>) -> io::Result<String> {
    let mut text = String::with_capacity(USUAL_BYTES);
    let read = File::open(path)?.take(MAX_BYTES).read_to_string(&mut text)?;
    if read as u64 == MAX_BYTES { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(text) }
}

#[cfg(test)]
mod tests {
    #[test]
    fn reads_what_has_no_size() {
        assert!(super::text("/proc/self/status").unwrap().contains("Threads:"));
        assert!(super::text("/proc/self/no-such-file").is_err());
    }
}
