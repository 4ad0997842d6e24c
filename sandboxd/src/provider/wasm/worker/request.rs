//! From what the guest asked for to the bytes of one HTTP/1.1 request, in absolute form.
//!
//! Pure. The gate judges the request; this only makes sure that it is one request: no byte of a name, value or URL can end
//! a line or begin another message.

use serde::Deserialize;

use super::super::limits::{MAX_REQUEST_BODY_BYTES, MAX_REQUEST_HEAD_BYTES};

/// Ready to be written to a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Prepared {
    pub(super) bytes: Vec<u8>,
    /// The response has no body whatever its head says.
    pub(super) is_head: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum RequestError {
    #[error("the request does not decode")]
    Undecodable,
    #[error("the method is not valid")]
    Method,
    #[error("the URL is not an http or https URL of visible ASCII characters")]
    Url,
    #[error("a header name or value is not valid")]
    Header,
    #[error("the request head is larger than {MAX_REQUEST_HEAD_BYTES} bytes")]
    HeadTooLarge,
    #[error("the request body is larger than {MAX_REQUEST_BODY_BYTES} bytes")]
    BodyTooLarge,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    method: String,
    url: String,
    headers: Vec<(String, String)>,
}

/// Fields that frame the message or belong to a connection: ours to write, never the guest's.
const OURS: [&str; 12] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "via",
];

impl Prepared {
    pub(super) fn read(head: &[u8], body: &[u8]) -> Result<Self, RequestError> {
        if head.len() > 4 * MAX_REQUEST_HEAD_BYTES {
            return Err(RequestError::HeadTooLarge);
        }
        let asked: Asked = serde_json::from_slice(head).map_err(|_| RequestError::Undecodable)?;
        if body.len() > MAX_REQUEST_BODY_BYTES {
            return Err(RequestError::BodyTooLarge);
        }
        let Asked { method, url, headers } = asked;
        if !is_token(&method)
            || method.eq_ignore_ascii_case("connect")
            || method.eq_ignore_ascii_case("trace")
        {
            return Err(RequestError::Method);
        }
        let authority = authority(&url).ok_or(RequestError::Url)?;
        let mut out =
            format!("{method} {url} HTTP/1.1\r\nhost: {authority}\r\nconnection: close\r\n").into_bytes();
        for (name, value) in &headers {
            if !is_token(name) || !is_value(value) {
                return Err(RequestError::Header);
            }
            if OURS.contains(&name.to_ascii_lowercase().as_str()) {
                continue;
            }
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(b": ");
            // Latin-1, as in browsers; `is_value` has checked that it fits.
            out.extend(value.chars().map(|c| u8::try_from(c).unwrap_or(b'?')));
            out.extend_from_slice(b"\r\n");
        }
        if !body.is_empty() || matches!(method.as_str(), "POST" | "PUT" | "PATCH") {
            out.extend_from_slice(format!("content-length: {}\r\n", body.len()).as_bytes());
        }
        out.extend_from_slice(b"\r\n");
        if out.len() > MAX_REQUEST_HEAD_BYTES {
            return Err(RequestError::HeadTooLarge);
        }
        out.extend_from_slice(body);
        Ok(Self { bytes: out, is_head: method == "HEAD" })
    }
}

/// The authority of an absolute http(s) URL without fragment, or `None`.
fn authority(url: &str) -> Option<&str> {
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"))?;
    if !url.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#') {
        return None;
    }
    let authority = rest.split(['/', '?']).next()?;
    let good = !authority.is_empty() && !authority.contains(['@', '\\', '<', '>', '"']);
    good.then_some(authority)
}

fn is_token(text: &str) -> bool {
    let extra = b"!#$%&'*+-.^_`|~";
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || extra.contains(&byte))
}

fn is_value(text: &str) -> bool {
    text.chars().all(|c| c == '\t' || (' '..='~').contains(&c) || ('\u{80}'..='\u{ff}').contains(&c))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(method: &str, url: &str, headers: &[(&str, &str)], body: &[u8]) -> Result<String, RequestError> {
        let head = serde_json::json!({ "method": method, "url": url, "headers": headers }).to_string();
        let prepared = Prepared::read(head.as_bytes(), body)?;
        Ok(prepared.bytes.iter().map(|byte| char::from(*byte)).collect())
    }

    #[test]
    fn writes_one_request_in_absolute_form() {
        let text = read("POST", "https://api.test:8443/v1?a=b", &[("X-A", "ü b"), ("Accept", "*/*")], b"hi")
            .unwrap();
        assert_eq!(
            text,
            "POST https://api.test:8443/v1?a=b HTTP/1.1\r\nhost: api.test:8443\r\nconnection: close\r\nX-A: ü b\r\n\
             Accept: */*\r\ncontent-length: 2\r\n\r\nhi"
        );
    }

    #[test]
    fn writes_no_length_for_a_get_and_one_for_an_empty_post() {
        assert!(!read("GET", "https://a/", &[], b"").unwrap().contains("content-length"));
        assert!(read("POST", "https://a/", &[], b"").unwrap().contains("content-length: 0\r\n"));
    }

    #[test]
    fn leaves_out_fields_that_frame_the_message() {
        let headers =
            [("Content-Length", "9"), ("transfer-encoding", "chunked"), ("HOST", "evil"), ("x", "1")];
        let text = read("GET", "https://a/", &headers, b"").unwrap();
        assert_eq!(text, "GET https://a/ HTTP/1.1\r\nhost: a\r\nconnection: close\r\nx: 1\r\n\r\n");
    }

    #[test]
    fn refuses_whatever_could_begin_another_line_or_message() {
        let bad = [
            read("GET\r\nX: y", "https://a/", &[], b""),
            read("GET ", "https://a/", &[], b""),
            read("", "https://a/", &[], b""),
            read("CONNECT", "https://a/", &[], b""),
            read("GET", "https://a/ HTTP/1.1\r\nx: y", &[], b""),
            read("GET", "https://a/\u{a0}", &[], b""),
            read("GET", "https://a/#b", &[], b""),
            read("GET", "https://user@a/", &[], b""),
            read("GET", "https://", &[], b""),
            read("GET", "ftp://a/", &[], b""),
            read("GET", "/relative", &[], b""),
            read("GET", "https://a/", &[("a b", "c")], b""),
            read("GET", "https://a/", &[("a:", "c")], b""),
            read("GET", "https://a/", &[("a", "c\r\nd: e")], b""),
            read("GET", "https://a/", &[("a", "\0")], b""),
            read("GET", "https://a/", &[("a", "\u{100}")], b""),
        ];
        for (at, result) in bad.into_iter().enumerate() {
            assert!(result.is_err(), "case {at}: {result:?}");
        }
    }

    #[test]
    fn refuses_a_head_and_a_body_over_their_limits() {
        let long = "v".repeat(MAX_REQUEST_HEAD_BYTES);
        assert_eq!(read("GET", "https://a/", &[("a", &long)], b""), Err(RequestError::HeadTooLarge));
        let body = vec![0; MAX_REQUEST_BODY_BYTES + 1];
        assert_eq!(read("POST", "https://a/", &[], &body), Err(RequestError::BodyTooLarge));
        assert!(read("POST", "https://a/", &[], &body[1..]).is_ok());
    }
}
