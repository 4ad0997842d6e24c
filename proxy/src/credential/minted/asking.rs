//! One question to an issuer and its answer, whatever carries them.

use std::fmt::Write as _;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use freeboard_policy::ApiView;
use percent_encoding::percent_encode;
use serde::de::DeserializeOwned;
use zeroize::Zeroizing;

use super::MintError;
use crate::credential::Secret;
use crate::credential::scrub::UNRESERVED;
use crate::error::Stop;
use crate::limits::ISSUER_CLOCK_DIFFERENCE;

/// Carries questions to issuers. The broker's dialler does it with the checks that every upstream gets.
pub trait Issuers: std::fmt::Debug + Send + Sync {
    /// Asks the first origin of `issuer`. The answer is bounded in size and time.
    fn ask<'a>(
        &'a self,
        issuer: &'a Arc<ApiView>,
        request: IssuerRequest,
    ) -> Pin<Box<dyn Future<Output = Result<IssuerAnswer, Stop>> + Send + 'a>>;
}

/// A question. Field values and body may hold secrets.
#[derive(Debug)]
pub struct IssuerRequest {
    pub method: &'static str,
    /// Path and query.
    pub path: String,
    pub fields: Vec<(&'static str, Secret)>,
    pub body: Option<Secret>,
}

/// An answer.
#[derive(Debug)]
pub struct IssuerAnswer {
    pub status: u16,
    pub body: Secret,
    /// The issuer's clock, seconds since 1970 UTC.
    pub date: Option<i64>,
    pub retry_after: Option<Duration>,
}

/// `application/x-www-form-urlencoded`, put together in one allocation that is zeroed.
#[derive(Debug)]
pub(super) struct Form(Zeroizing<Vec<u8>>);

impl Form {
    pub(super) fn new() -> Self {
        // Room for the largest secrets that are read: a vector that grows leaves its bytes behind in freed memory.
        Self(Zeroizing::new(Vec::with_capacity(4 * crate::limits::SECRET_MAX_BYTES)))
    }

    pub(super) fn field(&mut self, name: &str, value: &[u8]) {
        if !self.0.is_empty() {
            self.0.push(b'&');
        }
        self.0.extend_from_slice(name.as_bytes());
        self.0.push(b'=');
        for piece in percent_encode(value, UNRESERVED) {
            self.0.extend_from_slice(piece.as_bytes());
        }
    }

    pub(super) fn optional(&mut self, name: &str, value: Option<&str>) {
        if let Some(value) = value {
            self.field(name, value.as_bytes());
        }
    }

    pub(super) fn request(mut self, path: &str, mut fields: Vec<(&'static str, Secret)>) -> IssuerRequest {
        fields.push(("content-type", Secret::new(b"application/x-www-form-urlencoded".to_vec())));
        let body = Some(Secret::new(std::mem::take(&mut *self.0)));
        IssuerRequest { method: "POST", path: path.to_owned(), fields, body }
    }
}

impl IssuerAnswer {
    /// The answer as JSON of this shape; an answer that says no is an error that tells its code.
    pub(super) fn json<T: DeserializeOwned>(&self, now_unix: i64) -> Result<T, MintError> {
        self.check(now_unix)?;
        // serde_json's message may quote the document.
        serde_json::from_slice(self.body.expose()).map_err(|_| {
            MintError::unavailable("the issuer's answer is not what the kind of credential expects")
        })
    }

    /// An error unless the status is a success.
    pub(super) fn check(&self, now_unix: i64) -> Result<(), MintError> {
        if (200..300).contains(&self.status) {
            return Ok(());
        }
        let mut detail = format!("the issuer answered {}", self.status);
        if let Some(code) = self.error_code() {
            // Writing to a String cannot fail.
            let _ = write!(detail, " `{code}`");
        }
        let apart = self.date.map_or(0, |date| date.abs_diff(now_unix));
        if apart > ISSUER_CLOCK_DIFFERENCE.as_secs() {
            let _ = write!(detail, "; its clock differs from ours by {apart} s");
        }
        Err(match self.status {
            408 | 425 | 429 | 500.. => MintError::Issuer { detail, retry_after: self.retry_after },
            _ => MintError::Unavailable(detail),
        })
    }

    /// `error` of RFC 6749 5.2: a code, never a text that could repeat what was sent.
    fn error_code(&self) -> Option<String> {
        let value: serde_json::Value = serde_json::from_slice(self.body.expose()).ok()?;
        let code = value.get("error")?.as_str()?;
        let plain = code.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
        (plain && code.len() <= 40).then(|| code.to_owned())
    }
}

/// What could not be asked at all.
pub(super) fn unasked(stop: Stop) -> MintError {
    MintError::Issuer { detail: format!("the issuer cannot be asked: {stop}"), retry_after: None }
}
