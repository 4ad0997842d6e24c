//! One HTTP/1.1 connection to an upstream: writes a decided request from the model, reads the head of its answer.

use std::net::SocketAddr;
use std::ops::Range;

use freeboard_policy::{Permit, Reason, Route};
use zeroize::Zeroize;

use super::answer::AnswerHead;
use crate::credential::{Attach, Material};
use crate::error::Stop;
use crate::http1::{Input, Patience, Scratch, Stream, head, write};
use crate::limits;
use crate::request::{Length, RequestHead};

/// A verified connection, fresh or from the pool.
#[derive(Debug)]
pub struct Connection {
    pub stream: Stream,
    pub input: Input,
    pub address: SocketAddr,
    /// It has carried a request before, so the peer may have closed it while it lay in the pool.
    pub reused: bool,
}

/// The bytes of a request head that carry a secret; overwritten when dropped.
#[derive(Debug)]
pub struct Written {
    bytes: Scratch,
    secret: Range<usize>,
}

impl Written {
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Appends the whole body, so that head and body are one write.
    pub fn append(&mut self, body: &[u8]) {
        self.bytes.extend_from_slice(body);
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        if let Some(secret) = self.bytes.get_mut(self.secret.clone()) {
            secret.zeroize();
        }
    }
}

/// Writes the head of a permitted request: method, canonical target, Host of the route, the fields of the model,
/// our credential, our framing, which `length` decides: the caller sends the body accordingly. Consumes the permit: one permit, one request.
///
/// # Errors
/// `internal` when a second credential would go out, `credential_unavailable` when the secret cannot be a field
/// value, `query_not_granted` when the guest wrote our query parameter itself.
pub fn write_head(
    permit: Permit,
    route: &Route,
    head: &RequestHead,
    length: Length,
    material: Option<&Material>,
) -> Result<Written, Stop> {
    // SECURITY: a permit that names a credential never goes out without it, nor any other with one (C09, C28).
    if permit.credential().map(|name| &**name) != material.map(|material| &*material.name) {
        return Err(Stop::new(Reason::Internal, "permit and credential do not belong together"));
    }
    if matches!(material, Some(Material { attach: Attach::Sign(_), .. })) {
        return Err(unsigned());
    }
    let target = head.target.as_ref().ok_or(Stop::new(Reason::Internal, "no target"))?;
    // Room for everything at once: a vector that grows would leave the secret behind in freed memory.
    let mut bytes = Scratch::take();
    bytes.reserve(
        head.fields.bytes() + 4 * head.fields.len() + target.wire().len() + 2 * limits::BUFFER_BYTES / 4,
    );
    let mut written = Written { bytes, secret: 0..0 };
    let out = &mut *written.bytes;
    out.extend_from_slice(head.method.as_bytes());
    out.push(b' ');
    out.extend_from_slice(target.wire().as_bytes());
    if let Some(Material { attach: Attach::Query { parameter, value }, .. }) = material {
        check_query(target.query(), parameter)?;
        out.push(if target.query().is_some() { b'&' } else { b'?' });
        out.extend_from_slice(parameter.as_bytes());
        out.push(b'=');
        written.secret = secret(out, value.expose())?;
    }
    let out = &mut *written.bytes;
    out.extend_from_slice(b" HTTP/1.1\r\nHost: ");
    out.extend_from_slice(route.host.as_str().as_bytes());
    if route.port != 443 {
        out.push(b':');
        write::number(out, u64::from(route.port));
    }
    out.extend_from_slice(b"\r\n");
    write::fields(out, &head.fields);
    if let Some(Material { attach: Attach::Header { name, value }, .. }) = material {
        // SECURITY: exactly one. What the guest brought was dropped before; this holds that it stays so (B32, C09).
        if head.fields.first(name).is_some() || head.has_guest_credential_left() {
            return Err(Stop::new(Reason::Internal, "a second credential was about to go out"));
        }
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b": ");
        written.secret = secret(out, value.expose())?;
        written.bytes.extend_from_slice(b"\r\n");
    }
    let out = &mut *written.bytes;
    match length {
        Length::None => {}
        Length::Sized(length) => write::number_field(out, "Content-Length", length),
        Length::Unknown => out.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
    }
    if let Some(websocket) = &head.websocket {
        out.extend_from_slice(b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n");
        write::field(out, "Sec-WebSocket-Key", websocket.key.as_bytes());
    }
    out.extend_from_slice(b"\r\n");
    Ok(written)
}

/// Keys that sign never go out themselves, and nothing goes out in their name without a signature.
pub fn unsigned() -> Stop {
    Stop::new(Reason::Internal, "a request was about to go out unsigned")
}

/// Appends a secret and says where it is.
fn secret(out: &mut Vec<u8>, value: &[u8]) -> Result<Range<usize>, Stop> {
    let fit =
        !value.is_empty() && value.iter().all(|byte| *byte == b'\t' || (*byte >= b' ' && *byte != 0x7f));
    if !fit {
        return Err(Stop::new(Reason::CredentialUnavailable, "the secret cannot be a header value"));
    }
    let start = out.len();
    out.extend_from_slice(value);
    Ok(start..out.len())
}

/// The guest must not write the parameter that carries the credential: which of two an upstream takes is unknown.
pub fn check_query(query: Option<&str>, parameter: &str) -> Result<(), Stop> {
    let mut pairs = query.into_iter().flat_map(|query| query.split('&'));
    let own = pairs.any(|pair| {
        let name = pair.split_once('=').map_or(pair, |(name, _)| name);
        let decoded = percent_encoding::percent_decode_str(name).decode_utf8_lossy();
        decoded.eq_ignore_ascii_case(parameter)
    });
    if own {
        return Err(Stop::new(Reason::QueryNotGranted, "the guest wrote the credential's own parameter"));
    }
    Ok(())
}

/// What reading a response head came to.
#[derive(Debug)]
pub enum ReadHead {
    Head(AnswerHead),
    /// The peer closed without a byte: on a reused connection the request was most likely never seen.
    ClosedSilently,
}

/// The answer to a request did not begin in time.
pub fn head_timeout() -> Stop {
    Stop::new(Reason::UpstreamTimeout, "no response head in time")
}

impl Connection {
    /// Reads one response head. Dropping it midway loses nothing but the connection's use.
    ///
    /// # Errors
    /// `upstream_malformed`, `upstream_unreachable`, `upstream_timeout`.
    pub async fn read_head(
        stream: &Stream,
        input: &mut Input,
        to_head: bool,
        patience: Patience,
    ) -> Result<ReadHead, Stop> {
        let mut scanned = 0;
        loop {
            let end = head::find_end(input.bytes(), &mut scanned)
                .map_err(|what| Stop::new(Reason::UpstreamMalformed, what))?;
            if let Some(end) = end {
                let parts = head::response(input.bytes().get(..end).unwrap_or_default())?;
                input.consume(end);
                return AnswerHead::read(parts, to_head).map(ReadHead::Head);
            }
            match input.fill(stream, limits::MAX_HEAD_BYTES, patience).await {
                Ok(0) if input.is_empty() => return Ok(ReadHead::ClosedSilently),
                Ok(0) => return Err(Stop::new(Reason::UpstreamMalformed, "closed inside the response head")),
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::OutOfMemory => {
                    return Err(Stop::new(Reason::UpstreamMalformed, "the response head is over the limit"));
                }
                Err(error) if error.kind() == std::io::ErrorKind::TimedOut => return Err(head_timeout()),
                Err(_) if input.is_empty() => return Ok(ReadHead::ClosedSilently),
                Err(error) => {
                    return Err(Stop::with(
                        Reason::UpstreamUnreachable,
                        format!("reading the response: {error}"),
                    ));
                }
            }
        }
    }
}
