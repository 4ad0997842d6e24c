//! The head of a request: built field by field, checked once, then valid.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use freeboard_policy::{Reason, Target};
use smallvec::SmallVec;

use super::name::{Role, role};
use super::{Fields, Length, Place};
use crate::error::Stop;
use crate::limits;

/// Which HTTP the guest speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    Http10,
    Http11,
    Http2,
}

impl Version {
    /// The word in audit records.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Http10 => "http/1.0",
            Self::Http11 => "http/1.1",
            Self::Http2 => "h2",
        }
    }
}

/// How a request names its target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Form {
    /// `/path?query`; the place stands in Host or `:authority`.
    Origin,
    /// `scheme://place/path?query`, or the pseudo-headers of HTTP/2.
    Absolute { https: bool, place: Place },
    /// `host:port` of CONNECT.
    Authority(Place),
}

/// A request to switch to the websocket protocol (RFC 6455 4.1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Websocket {
    /// The nonce, forwarded as it came; the upstream's answer must match it.
    pub key: Box<str>,
}

/// A request head that has one reading. `fields` holds what may be forwarded and nothing else: no Host, framing,
/// hop-by-hop, proxy, override or origin-claiming fields.
#[derive(Debug)]
pub struct RequestHead {
    pub version: Version,
    pub method: Cow<'static, str>,
    pub form: Form,
    /// None for CONNECT only.
    pub target: Option<Target>,
    /// Host, or `:authority`.
    pub place: Place,
    pub fields: Fields,
    pub length: Length,
    /// `Expect: 100-continue`.
    pub expects_continue: bool,
    pub websocket: Option<Websocket>,
    /// The guest takes trailers (`TE: trailers`).
    pub takes_trailers: bool,
    /// The guest wants the connection closed afterwards.
    pub close: bool,
    /// Names of credential fields that a guest brought stand in `fields` until `drop_guest_credentials`.
    pub has_guest_credential: bool,
    pub proxy_authorization: Option<Box<[u8]>>,
    /// What was taken off, for the audit record.
    pub stripped: SmallVec<[&'static str; 4]>,
}

/// Collects fields. Shared by HTTP/1.1 and HTTP/2.
#[derive(Debug)]
pub struct Builder {
    version: Version,
    fields: Fields,
    host: Option<Place>,
    content_length: Option<u64>,
    chunked: bool,
    expectations: usize,
    expects_continue: bool,
    upgrade: Option<bool>,
    connection_upgrade: bool,
    close: bool,
    keep_alive: bool,
    takes_trailers: bool,
    named_by_connection: SmallVec<[Box<str>; 2]>,
    websocket_key: Option<Box<str>>,
    websocket_version_13: bool,
    websocket_fields: usize,
    max_forwards: bool,
    has_guest_credential: bool,
    proxy_authorization: Option<Box<[u8]>>,
    stripped: SmallVec<[&'static str; 4]>,
}

impl Builder {
    /// `head_bytes`: length of the head where it is known, so that fields are copied into memory that is taken once.
    pub fn new(version: Version, head_bytes: usize) -> Self {
        Self {
            version,
            fields: Fields::with_room(head_bytes),
            host: None,
            content_length: None,
            chunked: false,
            expectations: 0,
            expects_continue: false,
            upgrade: None,
            connection_upgrade: false,
            close: false,
            keep_alive: false,
            takes_trailers: false,
            named_by_connection: SmallVec::new(),
            websocket_key: None,
            websocket_version_13: false,
            websocket_fields: 0,
            max_forwards: false,
            has_guest_credential: false,
            proxy_authorization: None,
            stripped: SmallVec::new(),
        }
    }

    /// Adds one field. `value` is trimmed; `exact` says that nothing but one space or nothing was trimmed, which
    /// framing fields must satisfy (ATTACKS B03, B09).
    ///
    /// # Errors
    /// The field makes the request malformed.
    pub fn field(&mut self, name: &str, value: &[u8], exact: bool) -> Result<(), Stop> {
        let role = role(name);
        match role {
            Role::Ordinary | Role::AltSvc | Role::SetCookie => self.fields.push_as(role, name, value),
            Role::GuestCredential => {
                self.has_guest_credential = true;
                self.fields.push_as(role, name, value);
            }
            Role::Host => self.host(value)?,
            Role::ContentLength => self.content_length(value, exact)?,
            Role::TransferEncoding => self.transfer_encoding(value, exact)?,
            Role::Connection => self.connection(value)?,
            Role::Hop => {}
            Role::ProxyAuthorization => {
                if self.proxy_authorization.replace(value.into()).is_some() {
                    return Err(Stop::malformed("two Proxy-Authorization fields"));
                }
            }
            Role::Te => self.takes_trailers |= value.eq_ignore_ascii_case(b"trailers"),
            Role::Upgrade => {
                self.upgrade = Some(self.upgrade.is_none() && value.eq_ignore_ascii_case(b"websocket"));
            }
            Role::Expect => {
                self.expectations += 1;
                self.expects_continue = value.eq_ignore_ascii_case(b"100-continue");
            }
            Role::MethodOverride => self.strip("method_override"),
            Role::TargetOverride => self.strip("target_override"),
            Role::Forwarded => self.strip("forwarded"),
            Role::Lookalike => self.strip("lookalike"),
            Role::MaxForwards => self.max_forwards = true,
            Role::Websocket => self.websocket(name, value),
        }
        Ok(())
    }

    fn strip(&mut self, what: &'static str) {
        if !self.stripped.contains(&what) {
            self.stripped.push(what);
        }
    }

    fn host(&mut self, value: &[u8]) -> Result<(), Stop> {
        match self.host.replace(Place::parse(value)?) {
            None => Ok(()),
            Some(_) => Err(Stop::malformed("two Host fields")),
        }
    }

    // RFC 9110 8.6: digits only. A repeated or padded length has two readings somewhere (ATTACKS B08, B09).
    fn content_length(&mut self, value: &[u8], exact: bool) -> Result<(), Stop> {
        let length = decimal(value).filter(|_| exact);
        let length = length.ok_or(Stop::malformed("Content-Length is not a plain number"))?;
        match self.content_length.replace(length) {
            None => Ok(()),
            Some(_) => Err(Stop::malformed("two Content-Length fields")),
        }
    }

    // RFC 9112 6.1. `chunked` alone: every other coding or spelling is read differently by someone (B03, B06).
    fn transfer_encoding(&mut self, value: &[u8], exact: bool) -> Result<(), Stop> {
        if self.version != Version::Http11 {
            return Err(Stop::malformed("Transfer-Encoding outside HTTP/1.1"));
        }
        if !exact || !value.eq_ignore_ascii_case(b"chunked") || std::mem::replace(&mut self.chunked, true) {
            return Err(Stop::malformed("Transfer-Encoding is not one `chunked`"));
        }
        Ok(())
    }

    fn connection(&mut self, value: &[u8]) -> Result<(), Stop> {
        for token in value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
            match token {
                b"" => {}
                _ if token.eq_ignore_ascii_case(b"close") => self.close = true,
                _ if token.eq_ignore_ascii_case(b"keep-alive") => self.keep_alive = true,
                _ if token.eq_ignore_ascii_case(b"upgrade") => self.connection_upgrade = true,
                _ => {
                    let name = std::str::from_utf8(token)
                        .map_err(|_| Stop::malformed("Connection is not tokens"))?;
                    if self.named_by_connection.len() >= limits::MAX_HEADER_FIELDS {
                        return Err(Stop::malformed("Connection names too many fields"));
                    }
                    self.named_by_connection.push(name.into());
                }
            }
        }
        Ok(())
    }

    fn websocket(&mut self, name: &str, value: &[u8]) {
        self.websocket_fields += 1;
        if name.eq_ignore_ascii_case("sec-websocket-key") {
            let nonce = STANDARD.decode(value).is_ok_and(|nonce| nonce.len() == 16);
            self.websocket_key = std::str::from_utf8(value).ok().filter(|_| nonce).map(Box::from);
        } else if name.eq_ignore_ascii_case("sec-websocket-version") {
            self.websocket_version_13 = value == b"13";
        }
    }

    /// Checks what can only be said of the whole head. `raw_target` is the target of the request line, or path and
    /// query of HTTP/2.
    ///
    /// # Errors
    /// The request is malformed, or refused whatever a grant says (TRACE, CONNECT inside a tunnel is for the
    /// pipeline to refuse, unknown expectations, upgrades other than websocket).
    pub fn finish(mut self, method: &str, form: Form, raw_target: &[u8]) -> Result<RequestHead, Stop> {
        if self.chunked && self.content_length.is_some() {
            return Err(Stop::malformed("both Content-Length and Transfer-Encoding"));
        }
        let host = self.host.take();
        let place = match (&form, host) {
            // RFC 9113 8.3.1: an authority without Host is fine, two that differ are not.
            (Form::Absolute { place, .. }, None) if self.version == Version::Http2 => place.clone(),
            // Python's HTTP client before 3.12, and so pip and requests, asks a proxy this way. The target alone says where to,
            // so there is nothing that could disagree; RFC 9112 3.2 demands Host of HTTP/1.1 only.
            (Form::Authority(place), None) if self.version == Version::Http10 => place.clone(),
            (_, None) => return Err(Stop::malformed("no Host field")),
            (Form::Origin, Some(host)) => host,
            (Form::Absolute { https, place }, Some(host)) => {
                same_place(place, &host, if *https { 443 } else { 80 })?;
                place.clone()
            }
            (Form::Authority(place), Some(host)) => {
                if host.name != place.name || host.port.is_some_and(|port| Some(port) != place.port) {
                    return Err(Stop::malformed("CONNECT and Host name different places"));
                }
                place.clone()
            }
        };
        let length = match (self.content_length, self.chunked) {
            (Some(length), _) => Length::Sized(length),
            (None, true) => Length::Unknown,
            (None, false) => Length::None,
        };
        // RFC 1945 7.2.2: what follows such a head is a body to some readers and nothing to others (ATTACKS B07).
        if self.version == Version::Http10
            && length == Length::None
            && ["POST", "PUT", "PATCH"].contains(&method)
        {
            return Err(Stop::malformed("an HTTP/1.0 request with a body needs Content-Length"));
        }
        let connect = matches!(form, Form::Authority(_));
        let target = if connect { None } else { Some(target(raw_target)?) };
        if connect && length != Length::None {
            return Err(Stop::malformed("CONNECT with a body"));
        }
        self.check_semantics(method)?;
        let websocket = self.websocket_request(method, length)?;
        if !self.named_by_connection.is_empty() {
            let named = std::mem::take(&mut self.named_by_connection);
            let taken =
                self.fields.retain(|field| !named.iter().any(|other| other.eq_ignore_ascii_case(field.name)));
            if taken {
                self.strip("connection_named");
            }
        }
        let close = self.close || (self.version == Version::Http10 && !self.keep_alive);
        Ok(RequestHead {
            version: self.version,
            method: known_method(method),
            form,
            target,
            place,
            fields: self.fields,
            length,
            expects_continue: self.expects_continue && self.version != Version::Http10,
            websocket,
            takes_trailers: self.takes_trailers,
            close,
            has_guest_credential: self.has_guest_credential,
            proxy_authorization: self.proxy_authorization,
            stripped: self.stripped,
        })
    }

    fn check_semantics(&self, method: &str) -> Result<(), Stop> {
        // RFC 9110 10.1.1; HTTP/1.0 had no expectations.
        if self.expectations > 0
            && self.version != Version::Http10
            && (self.expectations > 1 || !self.expects_continue)
        {
            return Err(Reason::ExpectationFailed.into());
        }
        // TRACE echoes what was attached to it (ATTACKS C17); Max-Forwards asks an intermediary to answer.
        let echoing = ["trace", "track"].iter().any(|name| name.eq_ignore_ascii_case(method));
        if echoing || (self.max_forwards && method.eq_ignore_ascii_case("options")) {
            return Err(Reason::MethodForbidden.into());
        }
        Ok(())
    }

    fn websocket_request(&mut self, method: &str, length: Length) -> Result<Option<Websocket>, Stop> {
        if self.version == Version::Http2 {
            return Ok(None);
        }
        match (self.upgrade, self.connection_upgrade) {
            // An Upgrade that Connection does not name is for nobody (RFC 9110 7.8).
            (None, _) | (_, false) => Ok(None),
            // SECURITY: no protocol but websocket ever becomes a relay (ATTACKS A31, B31).
            (Some(false), true) => Err(Reason::UpgradeRefused.into()),
            (Some(true), true) => {
                let well_formed = method == "GET"
                    && length == Length::None
                    && self.version == Version::Http11
                    && self.websocket_version_13
                    && self.websocket_fields == 2;
                let key = self.websocket_key.take().filter(|_| well_formed);
                let key = key.ok_or(Stop::malformed("a websocket handshake that breaks RFC 6455 4.1"))?;
                Ok(Some(Websocket { key }))
            }
        }
    }
}

impl RequestHead {
    /// Takes off every credential that the guest brought, and every field that has the name of ours.
    pub fn drop_guest_credentials(&mut self, ours: Option<&str>) {
        let mut dropped = false;
        if self.has_guest_credential {
            dropped |= self.fields.retain(|field| field.role != Role::GuestCredential);
        }
        if let Some(ours) = ours {
            let lookalike = |name: &str| {
                name.len() == ours.len()
                    && name
                        .bytes()
                        .zip(ours.bytes())
                        .all(|(a, b)| a.eq_ignore_ascii_case(&b) || (a == b'_' && b == b'-'))
            };
            dropped |= self.fields.retain(|field| !lookalike(field.name));
        }
        if dropped {
            self.stripped.push("authorization");
        }
    }

    /// For an API with a credential: what comes back must be readable, or the secret could not be found in it. No
    /// coding (ATTACKS C03), no part of a body that would cut the secret in two (`Range`), no compressed messages.
    pub fn ask_for_readable_answers(&mut self) {
        const HIDING: [&str; 6] = [
            "accept-encoding",
            "range",
            "if-range",
            "grpc-accept-encoding",
            "sec-websocket-extensions",
            "a-im",
        ];
        self.fields.retain(|field| !HIDING.iter().any(|hiding| hiding.eq_ignore_ascii_case(field.name)));
        if self.websocket.is_none() {
            self.fields.push("accept-encoding", b"identity");
        }
    }

    /// True while a credential field of the guest is still in `fields`.
    pub fn has_guest_credential_left(&self) -> bool {
        self.has_guest_credential && self.fields.each().any(|field| field.role == Role::GuestCredential)
    }

    /// True when sending it twice does no more than sending it once (RFC 9110 9.2.2).
    pub fn is_idempotent(&self) -> bool {
        matches!(&*self.method, "GET" | "HEAD" | "OPTIONS" | "PUT" | "DELETE")
    }
}

/// The two places are one, where a missing port is the scheme's.
fn same_place(one: &Place, other: &Place, default_port: u16) -> Result<(), Stop> {
    let port = |place: &Place| place.port.unwrap_or(default_port);
    if one.name == other.name && port(one) == port(other) {
        Ok(())
    } else {
        Err(Stop::malformed("target and Host name different places"))
    }
}

fn target(raw: &[u8]) -> Result<Target, Stop> {
    Target::parse(raw).map_err(|error| Stop::with(Reason::TargetNotCanonical, error.to_string()))
}

/// Plain digits, no sign, no leading zero, below 2^64.
pub fn decimal(value: &[u8]) -> Option<u64> {
    let plain = !value.is_empty()
        && value.iter().all(u8::is_ascii_digit)
        && (value.len() == 1 || value.first() != Some(&b'0'));
    std::str::from_utf8(value).ok().filter(|_| plain)?.parse().ok()
}

/// Spares an allocation for the methods that everybody uses.
fn known_method(method: &str) -> Cow<'static, str> {
    const KNOWN: [&str; 7] = ["GET", "POST", "PUT", "DELETE", "HEAD", "PATCH", "OPTIONS"];
    let known = KNOWN.into_iter().find(|known| *known == method);
    known.map_or_else(|| Cow::Owned(method.to_owned()), Cow::Borrowed)
}
