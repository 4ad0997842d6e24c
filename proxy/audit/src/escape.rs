//! Strings that cannot forge a line, end one, or steer a terminal.
//!
//! Every byte of a record is printable ASCII: control characters, DEL and everything beyond ASCII (line separators,
//! direction marks, look-alike letters) are written as JSON escapes. A field longer than the limit is cut and says so.

use std::io::{self, Write};

use serde_json::ser::{CharEscape, Formatter};

/// Longest field in bytes as written. A longer one is cut and ends in `[cut]`: a guest must not choose how large the log
/// grows per request. 2 KiB keeps nearly every real path whole.
pub const MAX_FIELD_BYTES: usize = 2048;

/// Compact JSON in printable ASCII.
#[derive(Debug, Default)]
pub(crate) struct Ascii {
    written: usize,
    cut: bool,
}

impl Ascii {
    /// SECURITY: the only way by which text of the guest enters a record (E21: escapes_what_could_forge_a_line).
    fn put<W: ?Sized + Write>(&mut self, writer: &mut W, bytes: &[u8]) -> io::Result<()> {
        if self.cut || self.written + bytes.len() > MAX_FIELD_BYTES {
            self.cut = true;
            return Ok(());
        }
        self.written += bytes.len();
        writer.write_all(bytes)
    }

    fn put_char<W: ?Sized + Write>(&mut self, writer: &mut W, character: char) -> io::Result<()> {
        let mut units = [0; 2];
        let mut escaped = [0_u8; 12];
        let mut length = 0;
        for unit in character.encode_utf16(&mut units) {
            let mut rest = escaped.get_mut(length..).unwrap_or_default();
            write!(rest, "\\u{unit:04x}")?;
            length += 6;
        }
        self.put(writer, escaped.get(..length).unwrap_or_default())
    }
}

impl Formatter for Ascii {
    fn begin_string<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        (self.written, self.cut) = (0, false);
        writer.write_all(b"\"")
    }

    fn end_string<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(if self.cut { b"[cut]\"" } else { b"\"" })
    }

    fn write_string_fragment<W: ?Sized + Write>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        let plain = |byte: &u8| (0x20..0x7f).contains(byte);
        // All bytes, without a way out at the first that is not plain: sixteen at a time.
        let all_plain = fragment.as_bytes().iter().fold(true, |all, byte| all & plain(byte));
        if all_plain && self.written + fragment.len() <= MAX_FIELD_BYTES {
            return self.put(writer, fragment.as_bytes());
        }
        for character in fragment.chars() {
            match u8::try_from(character) {
                Ok(byte) if plain(&byte) => self.put(writer, &[byte])?,
                _ => self.put_char(writer, character)?,
            }
        }
        Ok(())
    }

    fn write_char_escape<W: ?Sized + Write>(&mut self, writer: &mut W, escape: CharEscape) -> io::Result<()> {
        match escape {
            CharEscape::Quote => self.put(writer, b"\\\""),
            CharEscape::ReverseSolidus => self.put(writer, b"\\\\"),
            CharEscape::Solidus => self.put(writer, b"/"),
            CharEscape::Backspace => self.put_char(writer, '\u{8}'),
            CharEscape::FormFeed => self.put_char(writer, '\u{c}'),
            CharEscape::LineFeed => self.put_char(writer, '\n'),
            CharEscape::CarriageReturn => self.put_char(writer, '\r'),
            CharEscape::Tab => self.put_char(writer, '\t'),
            CharEscape::AsciiControl(byte) => self.put_char(writer, char::from(byte)),
        }
    }
}

/// `text` for a terminal: every character that is not printable ASCII is shown as an escape.
pub fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\\' => out.push_str("\\\\"),
            ' '..='~' => out.push(character),
            _ => out.extend(character.escape_unicode()),
        }
    }
    out
}

/// A stored line for a terminal. Lines of the log are printable ASCII already; a changed one may be anything.
pub fn printable_line(line: &[u8]) -> String {
    line.iter().map(|byte| if (0x20..0x7f).contains(byte) { char::from(*byte) } else { '?' }).collect()
}
