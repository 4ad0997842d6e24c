//! The head of an upstream's response: framing decided once, end-to-end fields kept. Responses are hostile too.

use std::time::Duration;

use freeboard_policy::Reason;
use smallvec::SmallVec;

use crate::error::Stop;
use crate::http1::body::Reader;
use crate::http1::head::ResponseParts;
use crate::request::head::decimal;
use crate::request::name::Role;
use crate::request::{Field, Fields, Length};

/// A response head that has one reading.
#[derive(Debug)]
pub struct AnswerHead {
    pub status: u16,
    /// End-to-end fields only.
    pub fields: Fields,
    pub framing: Framing,
    /// Content-Length of an answer that has no body.
    pub declared: Option<u64>,
    /// The connection may carry another request after this response.
    pub keep: bool,
    /// `Upgrade: websocket` and `Connection: upgrade` were both there.
    pub websocket: bool,
    pub websocket_accept: Option<Box<[u8]>>,
}

/// Where the body ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    None,
    Sized(u64),
    Chunked,
    UntilClose,
}

impl Framing {
    pub fn length(self) -> Length {
        match self {
            Self::None => Length::None,
            Self::Sized(length) => Length::Sized(length),
            Self::Chunked | Self::UntilClose => Length::Unknown,
        }
    }

    pub fn reader(self) -> Reader {
        match self {
            Self::None => Reader::none(),
            Self::Sized(length) => Reader::sized(length),
            Self::Chunked => Reader::chunked(),
            Self::UntilClose => Reader::until_close(),
        }
    }
}

/// What a response carries that decides its framing.
#[derive(Debug, Default)]
struct Seen {
    content_length: Option<u64>,
    chunked: bool,
    close: bool,
    keep_alive: bool,
    upgrade: bool,
    websocket: bool,
    websocket_accept: Option<Box<[u8]>>,
    named_by_connection: SmallVec<[Box<str>; 2]>,
}

impl AnswerHead {
    /// Decides framing by RFC 9112 6.3 and drops what concerns this hop only.
    ///
    /// # Errors
    /// `upstream_malformed` where two readers could see different ends.
    pub fn read(parts: ResponseParts, to_head: bool) -> Result<Self, Stop> {
        let mut fields = parts.fields;
        let mut seen = Seen::default();
        for field in fields.each() {
            seen.field(field)?;
        }
        if seen.chunked && (seen.content_length.is_some() || parts.http10) {
            return Err(malformed("both a length and a transfer coding, or a coding in HTTP/1.0"));
        }
        let named = std::mem::take(&mut seen.named_by_connection);
        fields.retain(|field| {
            forwards(field.role) && !named.iter().any(|other| other.eq_ignore_ascii_case(field.name))
        });
        let bodiless = to_head || parts.status < 200 || matches!(parts.status, 204 | 304);
        let framing = match (bodiless, seen.chunked, seen.content_length) {
            (true, _, _) => Framing::None,
            (false, true, _) => Framing::Chunked,
            (false, false, Some(length)) => Framing::Sized(length),
            (false, false, None) => Framing::UntilClose,
        };
        // RFC 9110 8.6: no Content-Length in 1xx and 204 (ATTACKS H25).
        let declared = seen.content_length.filter(|_| bodiless && parts.status != 204 && parts.status >= 200);
        let keep = framing != Framing::UntilClose && !seen.close && (!parts.http10 || seen.keep_alive);
        Ok(Self {
            status: parts.status,
            fields,
            framing,
            declared,
            keep,
            websocket: seen.upgrade && seen.websocket,
            websocket_accept: seen.websocket_accept,
        })
    }
}

impl Seen {
    fn field(&mut self, Field { role, name, value }: Field<'_>) -> Result<(), Stop> {
        match role {
            Role::ContentLength => {
                let length = decimal(value).ok_or(malformed("Content-Length is not a plain number"))?;
                if self.content_length.replace(length).is_some_and(|other| other != length) {
                    return Err(malformed("two different Content-Length fields"));
                }
            }
            Role::TransferEncoding => self.transfer_encoding(value)?,
            Role::Connection => {
                for token in value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
                    self.connection(token);
                }
            }
            Role::Upgrade => self.websocket |= value.eq_ignore_ascii_case(b"websocket"),
            Role::Websocket if name.eq_ignore_ascii_case("sec-websocket-accept") => {
                self.websocket_accept = Some(value.into());
            }
            _ => {}
        }
        Ok(())
    }

    fn transfer_encoding(&mut self, value: &[u8]) -> Result<(), Stop> {
        if !value.eq_ignore_ascii_case(b"chunked") || std::mem::replace(&mut self.chunked, true) {
            return Err(malformed("Transfer-Encoding is not one `chunked`"));
        }
        Ok(())
    }

    fn connection(&mut self, token: &[u8]) {
        if token.eq_ignore_ascii_case(b"close") {
            self.close = true;
        } else if token.eq_ignore_ascii_case(b"keep-alive") {
            self.keep_alive = true;
        } else if token.eq_ignore_ascii_case(b"upgrade") {
            self.upgrade = true;
        } else if let Ok(name) = std::str::from_utf8(token) {
            self.named_by_connection.push(name.into());
        }
    }
}

/// Whether a response field of this role goes on to the guest.
pub fn forwards(role: Role) -> bool {
    match role {
        Role::ContentLength
        | Role::TransferEncoding
        | Role::Connection
        | Role::Hop
        | Role::ProxyAuthorization
        | Role::Te
        | Role::Upgrade
        | Role::Websocket
        // Another way to the host, past us (ATTACKS D03).
        | Role::AltSvc
        | Role::Lookalike => false,
        Role::Ordinary
        | Role::Host
        | Role::Expect
        | Role::GuestCredential
        | Role::MethodOverride
        | Role::TargetOverride
        | Role::Forwarded
        | Role::MaxForwards
        | Role::SetCookie => true,
    }
}

fn malformed(what: &'static str) -> Stop {
    Stop::new(Reason::UpstreamMalformed, what)
}

/// RFC 9110 5.6.7, in the form that everybody sends: seconds since 1970 UTC.
pub fn date(value: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(value).ok()?;
    Some(jiff::fmt::rfc2822::parse(text).ok()?.timestamp().as_second())
}

/// RFC 9110 10.2.3: a number of seconds, or a time. One that has passed is no wait at all.
pub fn retry_after(value: &[u8], now_unix: i64) -> Option<Duration> {
    let seconds = match decimal(value) {
        Some(seconds) => seconds,
        None => u64::try_from(date(value)?.saturating_sub(now_unix)).unwrap_or_default(),
    };
    Some(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_dates_and_waits_that_servers_send() {
        assert_eq!(date(b"Sun, 06 Nov 1994 08:49:37 GMT"), Some(784_111_777));
        assert_eq!(date(b"tomorrow"), None);
        let wait = |value: &[u8]| retry_after(value, 784_111_700).map(|wait| wait.as_secs());
        assert_eq!(wait(b"120"), Some(120));
        assert_eq!(wait(b"Sun, 06 Nov 1994 08:49:37 GMT"), Some(77));
        assert_eq!(wait(b"Sun, 06 Nov 1994 08:00:00 GMT"), Some(0));
        assert_eq!(wait(b"-1"), None);
    }
}
