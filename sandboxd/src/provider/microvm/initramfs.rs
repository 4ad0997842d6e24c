//! The first files of a machine: the guest program, the kernel modules that it needs, two devices. An archive in the
//! form "newc" (cpio(5); the kernel's Documentation/driver-api/early-userspace/buffer-format). The same pieces give the same bytes.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use super::limits;

const FOLDER: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const DEVICE: u32 = 0o020_600;
/// The last entry of an archive.
const END: &str = "TRAILER!!!";

/// Reads the pieces (names without a leading slash, in order) and puts the archive together.
pub(super) fn build(pieces: &[(String, PathBuf)]) -> io::Result<Vec<u8>> {
    let mut archive = Archive::default();
    for folder in ["dev", freeboard_guest::machine::MODULES.trim_start_matches('/')] {
        archive.entry(folder, FOLDER, (0, 0), &[])?;
    }
    // Before it can mount anything, a program's standard descriptors lead to these.
    archive.entry("dev/console", DEVICE, (5, 1), &[])?;
    archive.entry("dev/null", DEVICE, (1, 3), &[])?;
    for (name, path) in pieces {
        archive.entry(name, PROGRAM, (0, 0), &read(path)?)?;
    }
    archive.entry(END, 0, (0, 0), &[])?;
    Ok(archive.bytes)
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    let read = File::open(path)?.take(limits::PIECE_BYTES).read_to_end(&mut content)?;
    if read as u64 == limits::PIECE_BYTES { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(content) }
}

#[derive(Default)]
struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

impl Archive {
    fn entry(&mut self, name: &str, mode: u32, device: (u32, u32), content: &[u8]) -> io::Result<()> {
        let size =
            |length: usize| u32::try_from(length).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge));
        self.entries += 1;
        let (links, time) = (1, 0);
        // Inode, mode, owner, group, links, time, size, device of the file, device that it is, length of the name, checksum.
        let fields = [
            self.entries,
            mode,
            0,
            0,
            links,
            time,
            size(content.len())?,
            0,
            0,
            device.0,
            device.1,
            size(name.len() + 1)?,
            0,
        ];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08X}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
        Ok(())
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_has_its_header_and_the_archive_its_end() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("program"), b"content").unwrap();
        let pieces = [("init".to_owned(), folder.path().join("program"))];
        let archive = build(&pieces).unwrap();
        assert_eq!(archive, build(&pieces).unwrap(), "the same pieces give the same bytes");
        assert_eq!(archive.len() % 4, 0);
        let text = String::from_utf8_lossy(&archive);
        // 6 bytes of magic and 13 numbers of 8 digits stand before a name; the seventh number is the size.
        let header = &text[text.find("init\0").unwrap() - 110..];
        assert_eq!((&header[..6], &header[54..62]), ("070701", "00000007"));
        assert!(text.contains("TRAILER!!!"));
    }

    #[test]
    fn a_missing_piece_is_an_error() {
        assert!(build(&[("init".into(), "/nonexistent/guest".into())]).is_err());
    }
}
