//! What an operator's tools ask: `/metrics` on an address of the host. Nothing is changed here.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use freeboard_wire::runs::State;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use super::exchange::with_type;
use super::{App, accept, is_of_one_connection};
use crate::limits::{HEAD_TIMEOUT, METRICS_CONNECTIONS};
use crate::metrics::{CONTENT_TYPE, Now, page};

/// Serves until it is dropped, or until no connection can be accepted any more.
pub async fn operate(app: Arc<App>, listener: TcpListener) -> std::io::Result<()> {
    let places = Arc::new(Semaphore::new(METRICS_CONNECTIONS));
    loop {
        let (stream, place) = match accept(&listener, &places).await {
            Ok(accepted) => accepted,
            Err(error) if is_of_one_connection(&error) => continue,
            Err(error) => return Err(error),
        };
        let app = Arc::clone(&app);
        tokio::spawn(async move {
            let answer = service_fn(move |request: Request<Incoming>| {
                let answered = answer(&app, &request);
                async move { Ok::<_, Infallible>(answered) }
            });
            let mut builder = hyper::server::conn::http1::Builder::new();
            builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).keep_alive(false);
            // A collector that goes away is none of ours.
            let _ = builder.serve_connection(TokioIo::new(stream), answer).await;
            drop(place);
        });
    }
}

fn answer(app: &App, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    match (request.method(), request.uri().path()) {
        (&Method::GET, "/metrics") => with_type(
            StatusCode::OK,
            CONTENT_TYPE,
            page(app.launcher.metrics(), &app.runs.signatures, &now(app)),
        ),
        _ => with_type(StatusCode::NOT_FOUND, "text/plain; charset=utf-8", "there is /metrics\n"),
    }
}

fn now(app: &App) -> Now {
    let overall = app.launcher.admission().overall();
    let started = app.runs.list_all();
    let count = |state| started.iter().filter(|entry| entry.state() == state).count();
    Now {
        places: overall.max_concurrent,
        running: overall.running,
        waiting: overall.waiting,
        sessions: app.sessions.alive(),
        started: [count(State::Queued), count(State::Running), count(State::Ended)],
    }
}
