//! The server over streamable HTTP, for clients that hold the caller's token.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use http::{HeaderMap, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use super::tools::Tools;
use crate::api::{accept, bearer, is_of_one_connection};
use crate::limits::{HEAD_TIMEOUT, MAX_CONNECTIONS};

/// Serves until SIGINT or SIGTERM, or until no connection can be accepted any more.
pub(super) async fn serve(tools: &Tools, address: SocketAddr, token: &str) -> std::io::Result<()> {
    let listener = TcpListener::bind(address).await?;
    super::super::say(&format!("sandboxd: serving MCP on http://{}/", listener.local_addr()?));
    let tools = tools.clone();
    let service = StreamableHttpService::new(
        move || Ok(tools.clone()),
        Arc::new(LocalSessionManager::default()),
        StreamableHttpServerConfig::default(),
    );
    let expected: [u8; 32] = Sha256::digest(token.as_bytes()).into();
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listener, &places) => accepted,
            _ = terminate.recv() => return Ok(()),
            _ = tokio::signal::ctrl_c() => return Ok(()),
        };
        let (stream, place) = match accepted {
            Ok(accepted) => accepted,
            Err(error) if is_of_one_connection(&error) => continue,
            Err(error) => return Err(error),
        };
        let service = service.clone();
        tokio::spawn(async move {
            let answer = service_fn(move |request: Request<Incoming>| {
                let service = service.clone();
                async move {
                    if is_bearer(request.headers(), &expected) {
                        Ok::<_, Infallible>(service.handle(request).await)
                    } else {
                        Ok(unauthorized())
                    }
                }
            });
            let mut builder = Builder::new(TokioExecutor::new());
            builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
            if let Err(error) = builder.serve_connection(TokioIo::new(stream), answer).await {
                tracing::debug!(error, "a connection ended with an error");
            }
            drop(place);
        });
    }
}

/// Exactly one bearer token, compared by its digest in constant time.
fn is_bearer(headers: &HeaderMap, expected: &[u8; 32]) -> bool {
    bearer(headers).is_some_and(|token| {
        let given: [u8; 32] = Sha256::digest(token.as_bytes()).into();
        bool::from(given.ct_eq(expected))
    })
}

fn unauthorized<B: Default>() -> Response<B> {
    let mut response = Response::new(B::default());
    *response.status_mut() = StatusCode::UNAUTHORIZED;
    response.headers_mut().insert(http::header::WWW_AUTHENTICATE, http::HeaderValue::from_static("Bearer"));
    response
}
