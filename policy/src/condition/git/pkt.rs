//! pkt-lines (gitprotocol-common): four hex digits of length, then that much less four.

/// One line of the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pkt<'a> {
    Line(&'a [u8]),
    /// `0000`
    Flush,
    /// `0001` (protocol v2)
    Delimiter,
    /// `0002` (protocol v2)
    ResponseEnd,
}

/// Why there is no next line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoPkt {
    /// More bytes are needed.
    Incomplete,
    Malformed,
}

/// The longest line: 65520 bytes with its length.
const PKT_MAX_BYTES: usize = 65_520;

/// Takes the next line off `bytes`.
///
/// # Errors
/// The line is not whole, or its length is none.
pub(super) fn next<'a>(bytes: &mut &'a [u8]) -> Result<Pkt<'a>, NoPkt> {
    let Some(digits) = bytes.get(..4) else { return Err(NoPkt::Incomplete) };
    // SECURITY: hex digits only; a reader that takes a sign or spaces would see other lines.
    if !digits.iter().all(u8::is_ascii_hexdigit) {
        return Err(NoPkt::Malformed);
    }
    let text = std::str::from_utf8(digits).map_err(|_| NoPkt::Malformed)?;
    let length = usize::from_str_radix(text, 16).map_err(|_| NoPkt::Malformed)?;
    let pkt = match length {
        0 => Pkt::Flush,
        1 => Pkt::Delimiter,
        2 => Pkt::ResponseEnd,
        3 => return Err(NoPkt::Malformed),
        _ if length > PKT_MAX_BYTES => return Err(NoPkt::Malformed),
        _ => Pkt::Line(bytes.get(4..length).ok_or(NoPkt::Incomplete)?),
    };
    *bytes = bytes.get(length.max(4)..).unwrap_or_default();
    Ok(pkt)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_four_hex_digits_and_nothing_else() {
        for (bytes, expected) in [
            (&b"0000"[..], Ok(Pkt::Flush)),
            (b"0001", Ok(Pkt::Delimiter)),
            (b"0002", Ok(Pkt::ResponseEnd)),
            (b"0004", Ok(Pkt::Line(b""))),
            (b"0009hello", Ok(Pkt::Line(b"hello"))),
            (b"000Ahello\n", Ok(Pkt::Line(b"hello\n"))),
            (b"000ahello", Err(NoPkt::Incomplete)),
            (b"000", Err(NoPkt::Incomplete)),
            (b"", Err(NoPkt::Incomplete)),
            (b"0003", Err(NoPkt::Malformed)),
            (b"fff1", Err(NoPkt::Malformed)),
            (b"+009hello", Err(NoPkt::Malformed)),
            (b" 009hello", Err(NoPkt::Malformed)),
            (b"PACK", Err(NoPkt::Malformed)),
        ] {
            let mut rest = bytes;
            assert_eq!(next(&mut rest), expected, "{}", bytes.escape_ascii());
        }
    }
}
