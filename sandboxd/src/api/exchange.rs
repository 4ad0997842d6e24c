//! The outermost layer of every answer, in one place only: the request-id echo, and panics turned into an unmarked
//! error.
//!
//! A client believes an answer only if it carries the id that it sent; two echoes are as bad as none.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use bytes::Bytes;
use freeboard_wire::{Code, ConnectError, NotDispatchedReason};
use futures_util::FutureExt;
use http::header::{CONTENT_TYPE, HeaderName};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Body;

use super::{App, route};

const REQUEST_ID: HeaderName = HeaderName::from_static("plimsoll-request-id");
/// The same for clients of freeboard.v1.
const OWN_REQUEST_ID: HeaderName = HeaderName::from_static("freeboard-request-id");

/// Says on a refusal of freeboard.v1 that nothing ran, and why: its clients read no binary details.
const NOT_DISPATCHED: HeaderName = HeaderName::from_static("freeboard-not-dispatched");

/// Answers one request, whatever happens.
pub async fn answer<B>(app: Arc<App>, request: Request<B>) -> Response<Full<Bytes>>
where
    B: Body<Data = Bytes> + Send + Unpin,
    B::Error: std::fmt::Display,
{
    let echoes = [REQUEST_ID, OWN_REQUEST_ID]
        .map(|name| request_id(request.headers(), &name).map(|value| (name, value)));
    let own = super::runs::is_path_of(request.uri().path());
    let routed = AssertUnwindSafe(route::route(&app, request)).catch_unwind().await;
    // SECURITY: a panic may have come after code ran, so its answer carries no mark. Guarded by
    // a_panic_is_answered_unmarked_and_bound.
    let mut response = routed.unwrap_or_else(|_| {
        tracing::error!("a handler panicked");
        error_response(&ConnectError::new(Code::Internal, "internal error"))
    });
    let mark = response.extensions().get::<NotDispatchedReason>().copied();
    if let Some(mark) = mark {
        app.launcher.metrics().refusals.add(&[mark.word()]);
    }
    if own && let Some(mark) = mark {
        response.headers_mut().insert(NOT_DISPATCHED, HeaderValue::from_static(mark.word()));
    }
    for (name, value) in echoes.into_iter().flatten() {
        response.headers_mut().insert(name, value);
    }
    response
}

/// The id to echo: exactly one value of 32 lower-case hex digits; anything else is served without an echo.
fn request_id(headers: &HeaderMap, name: &HeaderName) -> Option<HeaderValue> {
    let mut values = headers.get_all(name).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return None };
    let digit = |byte: &u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte);
    let bytes = value.as_bytes();
    (bytes.len() == 32 && bytes.iter().all(digit)).then(|| value.clone())
}

/// A Connect error as HTTP; its mark, where it has one, is an extension of the response.
pub(super) fn error_response(error: &ConnectError) -> Response<Full<Bytes>> {
    let status = StatusCode::from_u16(error.code.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = with_type(status, "application/json", error.to_json());
    if let Some(mark) = error.mark() {
        response.extensions_mut().insert(mark);
    }
    response
}

pub(super) fn with_type(
    status: StatusCode,
    content_type: &'static str,
    body: impl Into<Bytes>,
) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn echoes_exactly_one_well_formed_id() {
        let id = "0123456789abcdef0123456789abcdef";
        let echo = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(REQUEST_ID, HeaderValue::from_str(value).unwrap());
            }
            request_id(&headers, &REQUEST_ID).is_some()
        };
        assert!(echo(&[id]));
        let long = format!("{id}0");
        for bad in [
            &[][..],
            &[id, id],
            &[&id.to_uppercase()],
            &[&id[1..]],
            &[&long],
            &[""],
            &["g123456789abcdef0123456789abcdef"],
        ] {
            assert!(!echo(bad), "{bad:?}");
        }
    }
}
