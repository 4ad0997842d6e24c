//! The error answer: one of the sixteen Connect codes, a text, and binary details.

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use prost::Message;
use serde::Serialize;

use crate::json::decode_base64;
use crate::message::{NotDispatched, SessionEnded, UnansweredCall};
use crate::word::{NotDispatchedReason, SessionEnd};

macro_rules! codes {
    ($($variant:ident => $name:literal, $status:literal;)+) => {
        /// The sixteen codes of Connect.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Code { $($variant,)+ }

        impl Code {
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];
            pub const fn name(self) -> &'static str { match self { $(Self::$variant => $name,)+ } }
            pub const fn http_status(self) -> u16 { match self { $(Self::$variant => $status,)+ } }
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|code| code.name() == name)
            }
        }
    };
}

codes! {
    Canceled => "canceled", 499;
    Unknown => "unknown", 500;
    InvalidArgument => "invalid_argument", 400;
    DeadlineExceeded => "deadline_exceeded", 504;
    NotFound => "not_found", 404;
    AlreadyExists => "already_exists", 409;
    PermissionDenied => "permission_denied", 403;
    ResourceExhausted => "resource_exhausted", 429;
    FailedPrecondition => "failed_precondition", 400;
    Aborted => "aborted", 409;
    OutOfRange => "out_of_range", 400;
    Unimplemented => "unimplemented", 501;
    Internal => "internal", 500;
    Unavailable => "unavailable", 503;
    DataLoss => "data_loss", 500;
    Unauthenticated => "unauthenticated", 401;
}

impl std::fmt::Display for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// One typed detail, in binary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Detail {
    pub name: &'static str,
    pub value: Vec<u8>,
}

impl Detail {
    /// Nothing ran, and why. Only where that is certain: a caller may send the same run again.
    pub fn not_dispatched(reason: NotDispatchedReason) -> Self {
        let message = NotDispatched { reason: reason.into() };
        Self { name: "plimsoll.v1.NotDispatched", value: message.encode_to_vec() }
    }

    pub fn session_ended(end: SessionEnd, detail: &str) -> Self {
        let message = SessionEnded { reason: end.into(), detail: detail.to_owned() };
        Self { name: "plimsoll.v1.SessionEnded", value: message.encode_to_vec() }
    }

    pub fn unanswered(call: &UnansweredCall) -> Self {
        Self { name: "plimsoll.v1.UnansweredCall", value: call.encode_to_vec() }
    }
}

/// An error as the caller gets it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {message}")]
pub struct ConnectError {
    pub code: Code,
    pub message: String,
    pub details: Vec<Detail>,
}

#[derive(Serialize)]
struct Body<'a> {
    code: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    message: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    details: Vec<BodyDetail>,
}

#[derive(Serialize)]
struct BodyDetail {
    #[serde(rename = "type")]
    name: &'static str,
    value: String,
}

impl ConnectError {
    /// An error after dispatch: no mark, code may have run.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), details: Vec::new() }
    }

    /// A refusal before dispatch.
    pub fn refused(code: Code, reason: NotDispatchedReason, message: impl Into<String>) -> Self {
        let details = vec![Detail::not_dispatched(reason)];
        Self { code, message: message.into(), details }
    }

    #[must_use]
    pub fn with(mut self, detail: Detail) -> Self {
        self.details.push(detail);
        self
    }

    /// The reason why nothing ran, where the error is marked.
    pub fn mark(&self) -> Option<NotDispatchedReason> {
        let detail = self.details.iter().find(|detail| detail.name == "plimsoll.v1.NotDispatched")?;
        NotDispatchedReason::try_from(NotDispatched::decode(detail.value.as_slice()).ok()?.reason).ok()
    }

    /// The body; always JSON, also for callers that speak binary.
    pub fn to_json(&self) -> Vec<u8> {
        let details = self.details.iter();
        let details = details
            .map(|detail| BodyDetail { name: detail.name, value: STANDARD_NO_PAD.encode(&detail.value) })
            .collect();
        let body = Body { code: self.code.name(), message: &self.message, details };
        // Strings only: writing into a Vec cannot fail.
        serde_json::to_vec(&body).unwrap_or_default()
    }
}

/// What a reader of an error answer learns: code, text and the mark. For our own command-line client and tests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadError {
    pub code: Code,
    pub message: String,
    pub mark: Option<NotDispatchedReason>,
}

/// Reads an error body; `None` when it has no readable code.
pub fn read_error(body: &[u8]) -> Option<ReadError> {
    let value: serde_json::Value = serde_json::from_slice(body).ok()?;
    let code = Code::from_name(value.get("code")?.as_str()?)?;
    let text = |key: &str| value.get(key).and_then(serde_json::Value::as_str).unwrap_or_default();
    let details = value.get("details").and_then(serde_json::Value::as_array);
    let mark = details.into_iter().flatten().find_map(|detail| {
        let name = detail.get("type")?.as_str()?.rsplit('/').next()?;
        let value = decode_base64(detail.get("value")?.as_str()?)?;
        let message =
            (name == "plimsoll.v1.NotDispatched").then(|| NotDispatched::decode(value.as_slice()))?;
        NotDispatchedReason::try_from(message.ok()?.reason).ok()
    });
    Some(ReadError { code, message: text("message").to_owned(), mark })
}
