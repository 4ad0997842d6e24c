//! `grpc`: which methods of which services a request may call, by the path on the wire, and how large each message may be.
//!
//! The messages themselves are not looked into: they mean nothing without their descriptors. Sizes are those on the wire; a
//! compressed message is as large as it is sent.

use serde_json::{Value, json};

use super::fields::HeaderFields;
use super::media::Media;
use crate::Target;
use crate::draft::Effect;

#[derive(Debug, Clone, Default)]
pub(crate) struct GrpcTest {
    pub(crate) methods: Vec<GrpcMethod>,
    pub(crate) max_message_bytes: Option<u64>,
}

/// `package.Service/Method`, or `package.Service/*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GrpcMethod {
    service: Box<str>,
    /// `None`: every one.
    method: Option<Box<str>>,
}

impl GrpcMethod {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (service, method) = text.split_once('/')?;
        let identifier = |text: &str| {
            text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
                && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        };
        let good = service.split('.').all(identifier) && (method == "*" || identifier(method));
        good.then(|| Self { service: service.into(), method: (method != "*").then(|| method.into()) })
    }

    fn is(&self, effect: Effect, service: &[u8], method: &[u8]) -> bool {
        let same = |known: &str, found: &[u8]| match effect {
            Effect::Allow => known.as_bytes() == found,
            Effect::Deny => known.as_bytes().eq_ignore_ascii_case(found),
        };
        same(&self.service, service) && self.method.as_ref().is_none_or(|known| same(known, method))
    }

    /// Whether every call that is `other` is this.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        self.service == other.service && (self.method.is_none() || self.method == other.method)
    }

    /// Whether some call is both.
    pub(crate) fn meets(&self, other: &Self) -> bool {
        self.service == other.service
            && (self.method.is_none() || other.method.is_none() || self.method == other.method)
    }
}

/// Paths that tell lists of methods apart: each method that is named, and one of each service that none names.
pub(crate) fn paths<'t>(tests: impl Iterator<Item = &'t GrpcTest>) -> Vec<String> {
    let named: Vec<&GrpcMethod> = tests.flat_map(|test| &test.methods).collect();
    let mut paths = Vec::new();
    for known in &named {
        let service = &known.service;
        let is_named = |method: &str| {
            named.iter().any(|other| other.service == *service && other.method.as_deref() == Some(method))
        };
        // Of one name more than there are, one is not named.
        let mut others = (0..=named.len()).map(|number| format!("Other{number}"));
        let other = others.find(|method| !is_named(method));
        for method in known.method.as_deref().into_iter().chain(other.as_deref()) {
            let path = format!("/{service}/{method}");
            if !paths.contains(&path) {
                paths.push(path);
            }
        }
    }
    paths
}

impl std::fmt::Display for GrpcMethod {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.service, self.method.as_deref().unwrap_or("*"))
    }
}

impl GrpcTest {
    /// Why the test does not hold.
    pub(crate) fn miss(
        &self,
        effect: Effect,
        method: &str,
        target: &Target,
        fields: &dyn HeaderFields,
    ) -> Option<String> {
        let view = target.view();
        let called = match (view.len(), view.segment(0), view.segment(1)) {
            (2, Some(service), Some(method)) => Some((service, method)),
            _ => None,
        };
        let listed = called.is_some_and(|(service, method)| {
            self.methods.iter().any(|known| known.is(effect, service, method))
        });
        if !listed {
            return Some("the path is none of the gRPC methods".to_owned());
        }
        let calls = method == "POST" && Media::of(fields).is_some_and(|media| media.is_grpc());
        (effect == Effect::Allow && !calls)
            .then(|| "the request is no gRPC call: POST with `application/grpc`".to_owned())
    }

    pub(crate) fn canonical(&self) -> Value {
        let mut methods: Vec<String> = self.methods.iter().map(ToString::to_string).collect();
        methods.sort_unstable();
        json!({ "methods": methods, "max_message_bytes": self.max_message_bytes })
    }
}

/// Follows a body as it passes, for what its rule bounds without looking into it.
#[derive(Debug, Clone, Default)]
pub struct BodyMeter {
    pub(crate) messages: Option<GrpcMessages>,
    pub(crate) max_bytes: Option<u64>,
    pub(crate) passed: u64,
}

/// Why a body may not go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyMeterError {
    /// A gRPC message of so many bytes.
    MessageTooLarge(u64),
    /// The flag byte of a gRPC message is neither 0 nor 1.
    MalformedMessage,
    /// A push of more than so many bytes.
    PackTooLarge(u64),
}

impl BodyMeter {
    /// Looks at the next bytes of the body; call it before they go on.
    ///
    /// # Errors
    /// At the first byte that is too much.
    pub fn pass(&mut self, bytes: &[u8]) -> Result<(), BodyMeterError> {
        self.passed = self.passed.saturating_add(bytes.len() as u64);
        if let Some(max) = self.max_bytes.filter(|max| self.passed > *max) {
            return Err(BodyMeterError::PackTooLarge(max));
        }
        self.messages.as_mut().map_or(Ok(()), |messages| messages.pass(bytes))
    }
}

/// Follows the messages of a body as it passes (gRPC over HTTP/2: one flag byte, four bytes of length, the message).
#[derive(Debug, Clone)]
pub(crate) struct GrpcMessages {
    limit: u64,
    prefix: [u8; 5],
    have: usize,
    /// Bytes of the message that are still to come.
    left: u64,
}

impl GrpcMessages {
    pub(crate) fn new(limit: u64) -> Self {
        Self { limit, prefix: [0; 5], have: 0, left: 0 }
    }

    /// Looks at the next bytes of the body; call it before they go on.
    ///
    /// # Errors
    /// At the first prefix that says too much.
    fn pass(&mut self, mut bytes: &[u8]) -> Result<(), BodyMeterError> {
        while !bytes.is_empty() {
            if self.left > 0 {
                let skipped = usize::try_from(self.left).unwrap_or(usize::MAX).min(bytes.len());
                self.left -= skipped as u64;
                bytes = bytes.get(skipped..).unwrap_or_default();
                continue;
            }
            let Some((byte, rest)) = bytes.split_first() else { break };
            bytes = rest;
            if let Some(place) = self.prefix.get_mut(self.have) {
                *place = *byte;
            }
            self.have += 1;
            if self.have == self.prefix.len() {
                self.have = 0;
                let [flag, length @ ..] = self.prefix;
                if flag > 1 {
                    return Err(BodyMeterError::MalformedMessage);
                }
                self.left = u64::from(u32::from_be_bytes(length));
                if self.left > self.limit {
                    return Err(BodyMeterError::MessageTooLarge(self.left));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn miss(effect: Effect, method: &str, path: &str, media: &str) -> Option<String> {
        let methods = ["acme.v1.Items/Get", "acme.v1.Open/*"].map(|text| GrpcMethod::parse(text).unwrap());
        let test = GrpcTest { methods: methods.into(), max_message_bytes: None };
        let fields = vec![("content-type".to_owned(), media.to_owned())];
        test.miss(effect, method, &Target::parse(path.as_bytes()).unwrap(), &fields)
    }

    #[test]
    fn a_call_is_a_post_of_grpc_to_a_listed_method() {
        for (method, path, media, allowed) in [
            ("POST", "/acme.v1.Items/Get", "application/grpc", true),
            ("POST", "/acme.v1.Items/Get", "application/grpc+proto", true),
            ("POST", "/acme.v1.Open/Anything", "application/grpc", true),
            ("POST", "/acme.v1.Items/Delete", "application/grpc", false),
            ("POST", "/acme.v1.Items/get", "application/grpc", false),
            ("POST", "/acme.v1.Items/Get/x", "application/grpc", false),
            ("POST", "/acme.v1.Items", "application/grpc", false),
            ("GET", "/acme.v1.Items/Get", "application/grpc", false),
            ("POST", "/acme.v1.Items/Get", "application/grpc-web", false),
            ("POST", "/acme.v1.Items/Get", "application/json", false),
        ] {
            assert_eq!(
                miss(Effect::Allow, method, path, media).is_none(),
                allowed,
                "{method} {path} {media}"
            );
        }
        assert!(miss(Effect::Deny, "POST", "/ACME.v1.items/GET", "text/plain").is_none());
        assert!(miss(Effect::Deny, "POST", "/acme.v1.Items/Put", "application/grpc").is_some());
    }

    #[test]
    fn names_are_those_of_protobuf() {
        for text in ["a.B/C", "B/*", "a_1.b.C/D"] {
            assert_eq!(GrpcMethod::parse(text).unwrap().to_string(), text);
        }
        for text in ["", "/", "a.B", "a.B/", "/C", "a..B/C", "a.B/C/D", "a.*/C", "1a/B", "a.B/C*"] {
            assert_eq!(GrpcMethod::parse(text), None, "{text}");
        }
    }

    #[test]
    fn messages_are_measured_however_they_are_cut() {
        let message = |length: u32| [&[0][..], &length.to_be_bytes(), &vec![7; length as usize]].concat();
        let body = [message(3), message(0), message(8)].concat();
        for size in 1..body.len() {
            let mut messages = GrpcMessages::new(8);
            assert!(body.chunks(size).all(|piece| messages.pass(piece).is_ok()), "{size}");
            let mut smaller = GrpcMessages::new(7);
            let end = body.chunks(size).find_map(|piece| smaller.pass(piece).err());
            assert_eq!(end, Some(BodyMeterError::MessageTooLarge(8)), "{size}");
        }
        assert_eq!(GrpcMessages::new(8).pass(&[2, 0, 0, 0, 1]), Err(BodyMeterError::MalformedMessage));
    }
}
