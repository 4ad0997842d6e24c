//! Heads and chunks as bytes, written from the model only.

use std::io::Write;

use crate::request::Fields;

/// Appends `name: value CRLF`.
pub fn field(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Appends `name: number CRLF`.
pub fn number_field(out: &mut Vec<u8>, name: &str, value: u64) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    number(out, value);
    out.extend_from_slice(b"\r\n");
}

/// Appends all fields.
pub fn fields(out: &mut Vec<u8>, fields: &Fields) {
    for (name, value) in fields.iter() {
        field(out, name, value);
    }
}

/// Appends a number in decimal.
pub fn number(out: &mut Vec<u8>, value: u64) {
    // Writing to a vector cannot fail.
    let _ = write!(out, "{value}");
}

/// Appends one chunk; nothing for no bytes, since an empty chunk would end the body.
pub fn chunk(out: &mut Vec<u8>, bytes: &[u8]) {
    if bytes.is_empty() {
        return;
    }
    let _ = write!(out, "{:x}\r\n", bytes.len());
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

/// Appends the last chunk with its trailers.
pub fn last_chunk(out: &mut Vec<u8>, trailers: Option<&Fields>) {
    out.extend_from_slice(b"0\r\n");
    if let Some(trailers) = trailers {
        fields(out, trailers);
    }
    out.extend_from_slice(b"\r\n");
}

/// Appends the status line. The reason phrase is ours: an upstream's could say anything (ATTACKS C05).
pub fn status_line(out: &mut Vec<u8>, status: u16) {
    out.extend_from_slice(b"HTTP/1.1 ");
    number(out, u64::from(status));
    out.push(b' ');
    let known = http::StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason());
    out.extend_from_slice(known.unwrap_or_default().as_bytes());
    out.extend_from_slice(b"\r\n");
}
