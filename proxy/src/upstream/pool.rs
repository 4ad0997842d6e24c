//! Idle upstream connections of one run, by origin and credential identity.
//!
//! The pool belongs to a `RunContext`: what one run leaves on a connection never meets another run (ATTACKS B37, C26).

use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use freeboard_policy::Host;

use super::http2::Session;
use super::send::Connection;
use crate::limits::{IDLE_UPSTREAM_PER_KEY, UPSTREAM_IDLE_TIMEOUT};

/// What connections may be shared under.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key<'a> {
    pub host: &'a Host,
    pub port: u16,
    /// Name of the API: two APIs may trust different CAs for one origin.
    pub api: &'a str,
    /// `Material::identity`; 0 without a credential.
    pub identity: u64,
}

/// Belongs to one `RunContext`.
#[derive(Debug, Default)]
pub struct Pool {
    shelves: Mutex<Vec<Shelf>>,
    sessions: Mutex<Vec<Kept>>,
}

/// An HTTP/2 connection, which stays here while requests use it.
#[derive(Debug)]
struct Kept {
    host: Host,
    port: u16,
    api: Box<str>,
    identity: u64,
    session: Session,
}

impl Kept {
    fn fits(&self, key: Key<'_>) -> bool {
        self.identity == key.identity
            && self.port == key.port
            && self.host == *key.host
            && *self.api == *key.api
    }
}

#[derive(Debug)]
struct Shelf {
    host: Host,
    port: u16,
    api: Box<str>,
    identity: u64,
    idle: Vec<(Box<Connection>, Instant)>,
}

impl Shelf {
    fn fits(&self, key: Key<'_>) -> bool {
        self.identity == key.identity
            && self.port == key.port
            && self.host == *key.host
            && *self.api == *key.api
    }
}

impl Pool {
    /// The connection that was used last, if it is quiet: one that was closed or on which bytes came that nobody
    /// asked for is thrown away (ATTACKS B36).
    pub fn take(&self, key: Key<'_>) -> Option<Box<Connection>> {
        loop {
            let (mut connection, since) = {
                let mut shelves = self.shelves.lock().unwrap_or_else(PoisonError::into_inner);
                shelves.iter_mut().find(|shelf| shelf.fits(key))?.idle.pop()?
            };
            if since.elapsed() < UPSTREAM_IDLE_TIMEOUT && connection.is_quiet() {
                connection.reused = true;
                return Some(connection);
            }
        }
    }

    /// Keeps a connection whose last exchange ended cleanly.
    pub fn put(&self, key: Key<'_>, connection: Box<Connection>) {
        let mut shelves = self.shelves.lock().unwrap_or_else(PoisonError::into_inner);
        let shelf = match shelves.iter().position(|shelf| shelf.fits(key)) {
            Some(at) => shelves.get_mut(at),
            None => {
                shelves.push(Shelf {
                    host: key.host.clone(),
                    port: key.port,
                    api: key.api.into(),
                    identity: key.identity,
                    idle: Vec::new(),
                });
                shelves.last_mut()
            }
        };
        if let Some(shelf) = shelf
            && shelf.idle.len() < IDLE_UPSTREAM_PER_KEY
        {
            shelf.idle.push((connection, Instant::now()));
        }
    }

    /// A session that takes more requests. It stays in the pool for others.
    pub fn take_http2(&self, key: Key<'_>) -> Option<Session> {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.retain_mut(|kept| kept.session.is_open());
        let kept = sessions.iter_mut().find(|kept| kept.fits(key))?;
        kept.session.used = Instant::now();
        let mut session = kept.session.clone();
        session.reused = true;
        Some(session)
    }

    /// Keeps a session for others as well, unless there is one for this key.
    pub fn put_http2(&self, key: Key<'_>, session: &Session) {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        if !sessions.iter().any(|kept| kept.fits(key)) {
            let (host, api) = (key.host.clone(), key.api.into());
            let session = session.clone();
            sessions.push(Kept { host, port: key.port, api, identity: key.identity, session });
        }
    }

    /// Closes connections that were idle for too long.
    pub fn sweep(&self) {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        sessions
            .retain(|kept| !kept.session.is_idle() || kept.session.used.elapsed() < UPSTREAM_IDLE_TIMEOUT);
        drop(sessions);
        let mut shelves = self.shelves.lock().unwrap_or_else(PoisonError::into_inner);
        for shelf in shelves.iter_mut() {
            shelf.idle.retain(|(_, since)| since.elapsed() < UPSTREAM_IDLE_TIMEOUT);
        }
        shelves.retain(|shelf| !shelf.idle.is_empty());
    }

    /// Closes all.
    pub fn clear(&self) {
        self.shelves.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

impl Connection {
    /// Nothing has come since the last response, and the peer has not closed.
    fn is_quiet(&mut self) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        self.input.is_empty()
            && matches!(
                self.input.poll_fill(&mut context, &self.stream, crate::limits::BUFFER_BYTES),
                Poll::Pending
            )
    }
}
