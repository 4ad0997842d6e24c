//! What an upstream answers.

use std::io::Write as _;

use base64::Engine as _;

use crate::upstream::Recorded;

/// Raw bytes of an answer, and what to do with the connection afterwards.
#[derive(Debug, Clone)]
pub struct Answer {
    pub bytes: Vec<u8>,
    pub then: Then,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    Keep,
    /// Close in order.
    Close,
    /// Cut the TCP connection with a reset, without a word in TLS.
    Reset,
}

impl Answer {
    /// Exactly these bytes.
    pub fn raw(bytes: impl AsRef<[u8]>) -> Self {
        Self { bytes: bytes.as_ref().to_vec(), then: Then::Keep }
    }

    /// Status, fields (`Name: value` lines) and a body with its length.
    pub fn new(status: u16, fields: &[&str], body: impl AsRef<[u8]>) -> Self {
        let body = body.as_ref();
        let mut bytes = format!("HTTP/1.1 {status} {}\r\n", phrase(status)).into_bytes();
        for field in fields {
            bytes.extend_from_slice(field.as_bytes());
            bytes.extend_from_slice(b"\r\n");
        }
        if !matches!(status, 101 | 204 | 304) {
            write!(bytes, "Content-Length: {}\r\n", body.len()).unwrap();
        }
        bytes.extend_from_slice(b"\r\n");
        bytes.extend_from_slice(body);
        Self::raw(bytes)
    }

    pub fn json(value: &serde_json::Value) -> Self {
        Self::new(200, &["Content-Type: application/json"], value.to_string())
    }

    pub fn closing(mut self) -> Self {
        self.then = Then::Close;
        self
    }

    pub fn resetting(mut self) -> Self {
        self.then = Then::Reset;
        self
    }
}

fn phrase(status: u16) -> &'static str {
    match status {
        101 => "Switching Protocols",
        200 => "OK",
        204 => "No Content",
        302 => "Found",
        304 => "Not Modified",
        307 => "Temporary Redirect",
        401 => "Unauthorized",
        _ => "Status",
    }
}

/// `echo.test`: gives back the fields of the request in the form that the path asks for. The hostile upstream of class C.
pub fn echo(request: &Recorded) -> Answer {
    let secret =
        request.field("authorization").or_else(|| request.field("x-api-key")).unwrap_or("none").to_owned();
    let token = secret.rsplit(' ').next().unwrap_or_default().to_owned();
    let percent: String = token.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let hex: String = token.bytes().map(|byte| format!("{byte:02x}")).collect();
    let json = serde_json::json!({ "target": request.target, "fields": request.fields.to_vec() });
    match request.path() {
        "/headers" => Answer::json(&json),
        "/base64" => Answer::new(200, &[], base64::engine::general_purpose::STANDARD.encode(&token)),
        "/base64-whole" => Answer::new(200, &[], base64::engine::general_purpose::STANDARD.encode(&secret)),
        "/percent" => Answer::new(200, &[], percent),
        "/hex" => Answer::new(200, &[], hex),
        "/hex-upper" => Answer::new(200, &[], hex.to_uppercase()),
        "/location" => Answer::new(302, &[&format!("Location: https://pub.test/?t={token}")], ""),
        "/cookie" => Answer::new(200, &[&format!("Set-Cookie: t={token}")], "x"),
        "/debug" => Answer::new(200, &[&format!("X-Debug: {secret}"), &format!("X-{token}: 1")], "x"),
        "/phrase" => Answer::raw(format!("HTTP/1.1 200 {token}\r\nContent-Length: 1\r\n\r\nx")),
        "/trailer" => Answer::raw(format!(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-End\r\n\r\n1\r\nx\r\n0\r\nX-End: {token}\r\n\r\n"
        )),
        "/split" => {
            // The secret across chunk borders, one byte per chunk.
            let mut bytes = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
            for byte in token.bytes() {
                write!(bytes, "1\r\n{}\r\n", char::from(byte)).unwrap();
            }
            bytes.extend_from_slice(b"0\r\n\r\n");
            Answer::raw(bytes)
        }
        _ => Answer::json(&json),
    }
}
