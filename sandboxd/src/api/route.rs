//! From an HTTP request to a procedure: path, method, token, headers, body; then the answer.
//!
//! The checks stand in the order of the contract, and each refusal carries its mark where it is raised: a detail
//! where the procedure was reached, the header where it was not.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use freeboard_wire::json::{JsonMessage, from_json, to_json};
use freeboard_wire::{Code, ConnectError, NotDispatchedReason, SERVICE};
use http::header::{ALLOW, AUTHORIZATION, CONTENT_TYPE, HeaderName};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Body;

use super::body::{self, BodyError};
use super::exchange::{error_response, with_type};
use super::tls::ClientNames;
use super::{App, describe, refuse, run, runs, session};
use crate::callers::{JwtError, SCOPE_RUN, SCOPE_SESSION, Scopes, Verdict};
use crate::launch::unix_ms;

const NOT_DISPATCHED: HeaderName = HeaderName::from_static("plimsoll-not-dispatched");

/// The five procedures of plimsoll.v1, and those of freeboard.v1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Procedure {
    Runs(runs::Procedure),
    Describe,
    Run,
    OpenSession,
    SessionRun,
    CloseSession,
}

impl Procedure {
    fn of(path: &str) -> Option<Self> {
        if let Some(procedure) = runs::Procedure::of(path) {
            return Some(Self::Runs(procedure));
        }
        match path.strip_prefix('/')?.strip_prefix(SERVICE)?.strip_prefix('/')? {
            "Describe" => Some(Self::Describe),
            "Run" => Some(Self::Run),
            "OpenSession" => Some(Self::OpenSession),
            "SessionRun" => Some(Self::SessionRun),
            "CloseSession" => Some(Self::CloseSession),
            _ => None,
        }
    }
}

impl Procedure {
    /// The scope that a caller with these lacks for it.
    fn missing(self, scopes: Scopes) -> Option<&'static str> {
        let runs = (!scopes.run).then_some(SCOPE_RUN);
        match self {
            Self::OpenSession | Self::SessionRun | Self::CloseSession => {
                runs.or((!scopes.sessions).then_some(SCOPE_SESSION))
            }
            Self::Runs(procedure) if procedure.is_open_to_admins() => runs.filter(|_| !scopes.admin),
            Self::Runs(_) | Self::Describe | Self::Run => runs,
        }
    }
}

/// How messages are encoded in this exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Codec {
    Json,
    Proto,
}

/// What handlers know of their request besides the message.
pub(super) struct Context<'a> {
    pub(super) app: &'a Arc<App>,
    /// `None` only where anonymous callers are let in.
    pub(super) caller: Option<String>,
    /// What it may do.
    pub(super) scopes: Scopes,
    /// The caller's own deadline.
    pub(super) deadline: Option<Duration>,
}

pub(super) async fn route<B>(app: &Arc<App>, request: Request<B>) -> Response<Full<Bytes>>
where
    B: Body<Data = Bytes> + Send + Unpin,
    B::Error: std::fmt::Display,
{
    let (head, mut body) = request.into_parts();
    let path = head.uri.path();
    if matches!(path, "/healthz" | "/readyz") && matches!(head.method, Method::GET | Method::HEAD) {
        return health(app, path).await;
    }
    let names = head.extensions.get::<ClientNames>().cloned().unwrap_or_default();
    match checked(app, path, &head.method, &head.headers, &names).await {
        Ok((procedure, codec, context)) => dispatch(procedure, codec, context, &head.headers, body).await,
        Err(response) => {
            body::drain(&head.headers, &mut body).await;
            *response
        }
    }
}

/// An answer that is given instead of going on; boxed, since going on is the common way.
type Early = Box<Response<Full<Bytes>>>;

/// Everything that is checked before the body is touched.
async fn checked<'a>(
    app: &'a Arc<App>,
    path: &str,
    method: &Method,
    headers: &HeaderMap,
    names: &ClientNames,
) -> Result<(Procedure, Codec, Context<'a>), Early> {
    let Some(procedure) = Procedure::of(path) else {
        let response =
            unreached(StatusCode::NOT_FOUND, NotDispatchedReason::Unsupported, "unknown procedure");
        return Err(Box::new(response));
    };
    if method != Method::POST {
        let mut response =
            unreached(StatusCode::METHOD_NOT_ALLOWED, NotDispatchedReason::Request, "only POST is served");
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
        return Err(Box::new(response));
    }
    let refused = |error: ConnectError| Box::new(error_response(&error));
    let (caller, scopes) = authenticate(app, procedure, headers, names).await.map_err(refused)?;
    // freeboard.v1 has one encoding.
    let codec =
        codec(headers).filter(|codec| *codec == Codec::Json || !matches!(procedure, Procedure::Runs(_)));
    let Some(codec) = codec else {
        return Err(Box::new(unreached(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            NotDispatchedReason::Request,
            "the content type is neither application/json nor, for plimsoll.v1, application/proto",
        )));
    };
    let deadline = connect_headers(headers).map_err(refused)?;
    body::check_head(headers).map_err(refused)?;
    Ok((procedure, codec, Context { app, caller, scopes, deadline }))
}

/// An answer that was written before a procedure was reached; the mark is a header, since there is no detail.
fn unreached(status: StatusCode, reason: NotDispatchedReason, text: &'static str) -> Response<Full<Bytes>> {
    let mut response = with_type(status, "text/plain; charset=utf-8", format!("{text}\n"));
    response.headers_mut().insert(NOT_DISPATCHED, HeaderValue::from_static(reason.word()));
    response.extensions_mut().insert(reason);
    response
}

/// A Connect error with the mark as a header.
fn undecoded(code: Code, text: String) -> Response<Full<Bytes>> {
    let mut response = error_response(&ConnectError::new(code, text));
    let mark = HeaderValue::from_static(NotDispatchedReason::Request.word());
    response.headers_mut().insert(NOT_DISPATCHED, mark);
    response
}

/// The caller by its bearer token, or without one by its certificate, and what it may do.
async fn authenticate(
    app: &App,
    procedure: Procedure,
    headers: &HeaderMap,
    names: &ClientNames,
) -> Result<(Option<String>, Scopes), ConnectError> {
    let Some(callers) = app.doorkeeper.callers() else {
        return Ok((None, Scopes { run: true, sessions: true, admin: false }));
    };
    let refused = |code, text: String| ConnectError::refused(code, NotDispatchedReason::Permission, text);
    let unauthenticated =
        || refused(Code::Unauthenticated, "a bearer token of a known caller is needed".to_owned());
    // Who says who it is with a token is that, or nobody.
    let verdict = if headers.contains_key(AUTHORIZATION) {
        let token = bearer(headers).ok_or_else(unauthenticated)?;
        match callers.verify(token, unix_ms(SystemTime::now()) / 1000) {
            Verdict::Unknown if callers.has_issuers() => {
                callers.verify_jwt(token).await.map_err(|error| not_believed(&error, unauthenticated))?
            }
            verdict => Some(verdict),
        }
    } else {
        Some(callers.verify_certificate(&names.0))
    };
    let Some(Verdict::Known { id, scopes }) = verdict else { return Err(unauthenticated()) };
    match procedure.missing(scopes) {
        Some(scope) => Err(refused(Code::PermissionDenied, format!("the token lacks the scope {scope}"))),
        None => Ok((Some(id), scopes)),
    }
}

/// A token of an issuer that is not believed: its bearer learns no more than with any other, except that it is not its doing.
fn not_believed(error: &JwtError, unauthenticated: impl Fn() -> ConnectError) -> ConnectError {
    if let JwtError::Keys { .. } = error {
        tracing::error!(error = crate::causes::chain(error), "a token cannot be verified");
        let text = "the token cannot be verified at the moment";
        return ConnectError::refused(Code::Unavailable, NotDispatchedReason::Environment, text);
    }
    tracing::debug!(error = crate::causes::chain(error), "a token is not believed");
    unauthenticated()
}

/// The one bearer token of a request; two are none.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return None };
    let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

fn codec(headers: &HeaderMap) -> Option<Codec> {
    let mut values = headers.get_all(CONTENT_TYPE).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return None };
    let essence = value.to_str().ok()?.split(';').next()?.trim();
    if essence.eq_ignore_ascii_case("application/json") {
        Some(Codec::Json)
    } else if essence.eq_ignore_ascii_case("application/proto") {
        Some(Codec::Proto)
    } else {
        None
    }
}

/// `Connect-Protocol-Version` and `Connect-Timeout-Ms`.
fn connect_headers(headers: &HeaderMap) -> Result<Option<Duration>, ConnectError> {
    let invalid =
        |text: &str| ConnectError::refused(Code::InvalidArgument, NotDispatchedReason::Request, text);
    if headers.get_all("connect-protocol-version").iter().any(|value| value != "1") {
        return Err(invalid("`Connect-Protocol-Version` is not 1"));
    }
    let mut timeouts = headers.get_all("connect-timeout-ms").iter();
    let timeout = match (timeouts.next(), timeouts.next()) {
        (None, _) => return Ok(None),
        (Some(value), None) => value.to_str().ok(),
        (Some(_), Some(_)) => None,
    };
    let digits =
        timeout.filter(|text| (1..=10).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit()));
    let milliseconds = digits.and_then(|text| text.parse().ok());
    milliseconds
        .map(|milliseconds| Some(Duration::from_millis(milliseconds)))
        .ok_or_else(|| invalid("`Connect-Timeout-Ms` is not 1 to 10 digits"))
}

async fn dispatch<B>(
    procedure: Procedure,
    codec: Codec,
    context: Context<'_>,
    headers: &HeaderMap,
    mut incoming: B,
) -> Response<Full<Bytes>>
where
    B: Body<Data = Bytes> + Send + Unpin,
    B::Error: std::fmt::Display,
{
    let place = match context.app.launcher.admission().decode(context.caller.as_deref()) {
        Ok(place) => place,
        Err(full) => {
            body::drain(headers, &mut incoming).await;
            return error_response(&refuse::full(full));
        }
    };
    let bytes = match body::read(headers, &mut incoming).await {
        Ok(bytes) => bytes,
        Err(error @ BodyError::TooLarge) => {
            body::drain(headers, &mut incoming).await;
            return undecoded(Code::ResourceExhausted, error.to_string());
        }
        Err(error) => return undecoded(Code::InvalidArgument, error.to_string()),
    };
    match procedure {
        Procedure::Runs(procedure) => {
            drop(place);
            runs::answer(procedure, &context, headers, &bytes).await
        }
        Procedure::Describe => match decode(codec, &bytes) {
            Ok(request) => respond(codec, Ok(describe::describe(&context, &request).await)),
            Err(response) => *response,
        },
        Procedure::Run => match decode(codec, &bytes) {
            Ok(request) => {
                drop((place, bytes));
                respond(codec, run::run(&context, request).await)
            }
            Err(response) => *response,
        },
        Procedure::OpenSession => match decode(codec, &bytes) {
            Ok(request) => {
                drop((place, bytes));
                respond(codec, session::open(&context, &request).await)
            }
            Err(response) => *response,
        },
        Procedure::SessionRun => match decode(codec, &bytes) {
            Ok(request) => {
                drop((place, bytes));
                respond(codec, session::run(&context, request).await)
            }
            Err(response) => *response,
        },
        Procedure::CloseSession => match decode(codec, &bytes) {
            Ok(request) => {
                drop((place, bytes));
                respond(codec, session::close(&context, &request).await)
            }
            Err(response) => *response,
        },
    }
}

fn decode<M: JsonMessage + prost::Message + Default>(codec: Codec, bytes: &[u8]) -> Result<M, Early> {
    let decoded = match codec {
        Codec::Json => from_json(bytes).map_err(|error| error.to_string()),
        Codec::Proto => M::decode(bytes).map_err(|error| format!("the body does not decode: {error}")),
    };
    decoded.map_err(|text| Box::new(undecoded(Code::InvalidArgument, text)))
}

fn respond<M: JsonMessage + prost::Message>(
    codec: Codec,
    result: Result<M, ConnectError>,
) -> Response<Full<Bytes>> {
    match (result, codec) {
        (Ok(message), Codec::Json) => with_type(StatusCode::OK, "application/json", to_json(&message)),
        (Ok(message), Codec::Proto) => {
            with_type(StatusCode::OK, "application/proto", message.encode_to_vec())
        }
        // Errors are JSON whatever the caller speaks.
        (Err(error), _) => error_response(&error),
    }
}

/// `/healthz`: the process answers. `/readyz`: a run could start, as far as is known without one.
async fn health(app: &App, path: &str) -> Response<Full<Bytes>> {
    const TEXT: &str = "text/plain; charset=utf-8";
    let ready = path == "/healthz" || is_ready(app).await;
    if ready {
        with_type(StatusCode::OK, TEXT, "ok\n")
    } else {
        with_type(StatusCode::SERVICE_UNAVAILABLE, TEXT, "not ready\n")
    }
}

async fn is_ready(app: &App) -> bool {
    let broker = match app.launcher.broker() {
        Some(broker) => broker.connection().await.is_ok(),
        None => true,
    };
    broker && !app.launcher.descriptions().is_empty()
}
