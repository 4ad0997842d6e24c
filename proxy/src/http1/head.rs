//! Heads of requests and responses: from bytes to fields. Tokens are httparse's, everything that httparse
//! tolerates and we do not is refused around it.

use std::mem::MaybeUninit;

use freeboard_policy::Reason;
use httparse::{Header, ParserConfig};

use crate::error::Stop;
use crate::limits::{MAX_HEADER_FIELDS, MAX_METHOD_BYTES};
use crate::request::head::{Builder, Form};
use crate::request::{Fields, Place, RequestHead, Version};

/// Looks for the end of a head. `scanned` bytes were looked at before and are kept up to date.
///
/// # Errors
/// A line ends in a bare LF (ATTACKS B18), or the head begins with an empty line.
pub fn find_end(bytes: &[u8], scanned: &mut usize) -> Result<Option<usize>, &'static str> {
    let fresh = bytes.get(*scanned..).unwrap_or_default();
    for at in memchr::memchr_iter(b'\n', fresh).map(|at| at + *scanned) {
        let before = at.checked_sub(1).and_then(|before| bytes.get(before));
        if before != Some(&b'\r') {
            return Err("a line ends in a bare LF");
        }
        if at == 1 {
            return Err("an empty line before the head");
        }
        if at >= 3 && bytes.get(at - 2) == Some(&b'\n') {
            return Ok(Some(at + 1));
        }
    }
    *scanned = bytes.len();
    Ok(None)
}

/// Reads a whole request head, empty line included.
///
/// # Errors
/// The request is malformed or refused whatever a grant says.
pub fn request(bytes: &[u8]) -> Result<RequestHead, Stop> {
    let mut headers = [const { MaybeUninit::<Header<'_>>::uninit() }; MAX_HEADER_FIELDS];
    let mut parsed = httparse::Request::new(&mut []);
    let outcome = ParserConfig::default().parse_request_with_uninit_headers(&mut parsed, bytes, &mut headers);
    match outcome {
        Ok(httparse::Status::Complete(end)) if end == bytes.len() => {}
        Ok(_) => return Err(Stop::malformed("the head ends early")),
        Err(httparse::Error::TooManyHeaders) => {
            return Err(Stop::new(Reason::HeadTooLarge, "too many header fields"));
        }
        Err(error) => return Err(Stop::malformed(describe(error))),
    }
    let (Some(method), Some(target), Some(version)) = (parsed.method, parsed.path, parsed.version) else {
        return Err(Stop::malformed("the request line is incomplete"));
    };
    if method.len() > MAX_METHOD_BYTES {
        return Err(Stop::malformed("the method is too long"));
    }
    let version = if version == 0 { Version::Http10 } else { Version::Http11 };
    let mut builder = Builder::new(version, bytes.len());
    for header in parsed.headers.iter() {
        builder.field(header.name, header.value, is_exact(bytes, header.value))?;
    }
    let (form, target) = form(method, target)?;
    builder.finish(method, form, target.as_bytes())
}

/// True when `value` stands in `bytes` with at most one space before it and none after it.
fn is_exact(bytes: &[u8], value: &[u8]) -> bool {
    let Some(start) = (value.as_ptr() as usize).checked_sub(bytes.as_ptr() as usize) else { return false };
    let before = |back: usize| start.checked_sub(back).and_then(|at| bytes.get(at));
    let tight = before(1) == Some(&b':') || (before(1) == Some(&b' ') && before(2) == Some(&b':'));
    tight && bytes.get(start + value.len()) == Some(&b'\r')
}

/// Which form the target has, and its part from the path on.
fn form<'a>(method: &str, target: &'a str) -> Result<(Form, &'a str), Stop> {
    if method.eq_ignore_ascii_case("connect") {
        let place = Place::parse(target.as_bytes())?;
        if place.port.is_none() || method != "CONNECT" {
            return Err(Stop::malformed("CONNECT without a port"));
        }
        return Ok((Form::Authority(place), ""));
    }
    if target.starts_with('/') {
        return Ok((Form::Origin, target));
    }
    let (scheme, rest) = target.split_once("://").ok_or(Stop::malformed("the target has no known form"))?;
    let https = if scheme.eq_ignore_ascii_case("https") {
        true
    } else if scheme.eq_ignore_ascii_case("http") {
        false
    } else {
        return Err(Stop::malformed("a scheme other than http and https"));
    };
    let path_at = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(path_at);
    let place = Place::parse(authority.as_bytes())?;
    // RFC 9112 3.2.2 with 3986 6.2.3: an empty path is `/`.
    Ok((Form::Absolute { https, place }, if path.is_empty() { "/" } else { path }))
}

/// A response's status line and fields as they came.
#[derive(Debug)]
pub struct ResponseParts {
    pub status: u16,
    pub http10: bool,
    pub fields: Fields,
}

/// Reads a whole response head, empty line included.
///
/// # Errors
/// `upstream_malformed`.
pub fn response(bytes: &[u8]) -> Result<ResponseParts, Stop> {
    let mut headers = [const { MaybeUninit::<Header<'_>>::uninit() }; MAX_HEADER_FIELDS];
    let mut parsed = httparse::Response::new(&mut []);
    let mut config = ParserConfig::default();
    // RFC 9112 5.1 tells a proxy to remove it; the name that goes on is clean (ATTACKS H58).
    config.allow_spaces_after_header_name_in_responses(true);
    let outcome = config.parse_response_with_uninit_headers(&mut parsed, bytes, &mut headers);
    let complete = matches!(outcome, Ok(httparse::Status::Complete(end)) if end == bytes.len());
    let (true, Some(status), Some(version)) = (complete, parsed.code, parsed.version) else {
        let detail = outcome.err().map_or("the response head ends early", describe);
        return Err(Stop::new(Reason::UpstreamMalformed, detail));
    };
    let mut fields = Fields::with_room(bytes.len());
    for header in parsed.headers.iter() {
        fields.push(header.name, header.value);
    }
    Ok(ResponseParts { status, http10: version == 0, fields })
}

/// Reads a trailer section, empty line included.
///
/// # Errors
/// A line that is not a field.
pub fn trailers(bytes: &[u8]) -> Result<Fields, &'static str> {
    let mut headers = [httparse::EMPTY_HEADER; 32];
    match httparse::parse_headers(bytes, &mut headers) {
        Ok(httparse::Status::Complete((end, parsed))) if end == bytes.len() => {
            let mut fields = Fields::default();
            for header in parsed {
                fields.push(header.name, header.value);
            }
            Ok(fields)
        }
        _ => Err("a trailer section that is not fields"),
    }
}

const fn describe(error: httparse::Error) -> &'static str {
    match error {
        httparse::Error::HeaderName => "a header name is not a token",
        httparse::Error::HeaderValue => "a header value has a control character",
        httparse::Error::NewLine => "a line does not end in CRLF",
        httparse::Error::Status => "the status line is malformed",
        httparse::Error::Token => "the request line is malformed",
        httparse::Error::TooManyHeaders => "too many header fields",
        httparse::Error::Version => "the version is not HTTP/1.0 or HTTP/1.1",
    }
}

#[cfg(test)]
mod tests;
