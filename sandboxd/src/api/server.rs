//! Takes connections: HTTP/1.1 and HTTP/2 with prior knowledge on one port, in clear text or over TLS, bounded in number, until
//! told to stop.

use std::future::Future;
use std::sync::Arc;

use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::tls::{ClientNames, Tls};
use super::{App, answer};
use crate::limits::{HEAD_TIMEOUT, MAX_CONNECTIONS, MAX_HEAD_BYTES, SHUTDOWN_GRACE};

/// Why the server ended by itself.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("cannot accept connections")]
    Accept(#[source] std::io::Error),
}

/// One way in.
#[derive(Debug)]
pub struct Entrance {
    pub listener: TcpListener,
    /// `None` = clear text.
    pub tls: Option<Arc<Tls>>,
}

/// As [`serve_all`], by one way in, in clear text.
pub async fn serve(
    app: Arc<App>,
    listener: TcpListener,
    stop: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    serve_all(app, vec![Entrance { listener, tls: None }], stop).await
}

/// Serves until `stop` resolves, then lets active exchanges end within the grace time and cuts the rest: their runs
/// are dropped, which kills them.
pub async fn serve_all(
    app: Arc<App>,
    entrances: Vec<Entrance>,
    stop: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let graceful = GracefulShutdown::new();
    let mut connections = tokio::task::JoinSet::new();
    let mut stop = std::pin::pin!(stop);
    let tending = tokio::spawn(Arc::clone(&app.sessions).tend());
    loop {
        let accepted = tokio::select! {
            accepted = accept_any(&entrances, &places) => accepted,
            () = &mut stop => break,
        };
        let (stream, place, tls) = match accepted {
            Ok(accepted) => accepted,
            Err(error) if is_of_one_connection(&error) => continue,
            Err(error) => return Err(ServeError::Accept(error)),
        };
        // Small answers must not wait for the client's delayed acknowledgement.
        let _ = stream.set_nodelay(true);
        let (app, watcher) = (Arc::clone(&app), graceful.watcher());
        connections.spawn(async move {
            attend(app, stream, tls, watcher).await;
            drop(place);
        });
        while connections.try_join_next().is_some() {}
    }
    drop(entrances);
    // Those that are busy end with their call, whose answer says so.
    app.sessions.shut_down().await;
    let runs = app.runs.shut_down(SHUTDOWN_GRACE);
    let exchanges = tokio::time::timeout(SHUTDOWN_GRACE, graceful.shutdown());
    if tokio::join!(exchanges, runs).0.is_err() {
        tracing::warn!(connections = connections.len(), "runs were cut at the end of the grace time");
    }
    connections.shutdown().await;
    tending.abort();
    app.sessions.shut_down().await;
    Ok(())
}

/// The next connection of any of them, and what it is taken with.
async fn accept_any(
    entrances: &[Entrance],
    places: &Arc<Semaphore>,
) -> std::io::Result<(TcpStream, OwnedSemaphorePermit, Option<Arc<Tls>>)> {
    // Those that are dropped have taken nothing: accepting is cancel-safe.
    let next = entrances.iter().map(|entrance| Box::pin(accept_at(entrance, places)));
    futures_util::future::select_all(next).await.0
}

async fn accept_at(
    entrance: &Entrance,
    places: &Arc<Semaphore>,
) -> std::io::Result<(TcpStream, OwnedSemaphorePermit, Option<Arc<Tls>>)> {
    let (stream, place) = accept(&entrance.listener, places).await?;
    Ok((stream, place, entrance.tls.clone()))
}

/// The next connection, once there is a place for it.
pub(crate) async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> std::io::Result<(TcpStream, OwnedSemaphorePermit)> {
    let place = Arc::clone(places).acquire_owned().await.map_err(std::io::Error::other)?;
    let (stream, _) = listener.accept().await?;
    Ok((stream, place))
}

/// Errors that say nothing about the listener: the client was gone again. Others last (no descriptors are left): trying again at
/// once would only burn a processor.
pub(crate) fn is_of_one_connection(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted)
}

/// One connection from its first byte to its last.
async fn attend(app: Arc<App>, stream: TcpStream, tls: Option<Arc<Tls>>, watcher: Watcher) {
    let Some(tls) = tls else {
        return connection(app, stream, ClientNames::default(), watcher).await;
    };
    match tokio::time::timeout(HEAD_TIMEOUT, tls.accept(stream)).await {
        Ok(Ok((stream, names))) => connection(app, stream, names, watcher).await,
        Ok(Err(error)) => tracing::debug!(error = error.to_string(), "a handshake failed"),
        Err(_) => tracing::debug!("a handshake was not finished in time"),
    }
}

async fn connection(
    app: Arc<App>,
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    names: ClientNames,
    watcher: Watcher,
) {
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        let app = Arc::clone(&app);
        request.extensions_mut().insert(names.clone());
        async move { Ok::<_, std::convert::Infallible>(answer(app, request).await) }
    });
    let mut builder = Builder::new(TokioExecutor::new());
    // A client that closes its connection gives its run up: without half-close hyper then drops the service.
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(MAX_HEAD_BYTES * 4);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(u32::try_from(MAX_HEAD_BYTES).unwrap_or(u32::MAX))
        .max_concurrent_streams(64)
        .keep_alive_interval(HEAD_TIMEOUT);
    let connection = builder.serve_connection(TokioIo::new(stream), service).into_owned();
    if let Err(error) = watcher.watch(connection).await {
        tracing::debug!(error = error.to_string(), "a connection ended with an error");
    }
}
