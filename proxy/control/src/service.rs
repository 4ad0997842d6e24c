//! How a daemon and the service manager that started it speak: sd_notify(3) messages, sd_listen_fds(3) sockets.
//!
//! In: `NOTIFY_SOCKET`, `WATCHDOG_USEC` and `LISTEN_FDS`, as systemd sets them. Out: messages to it, and listeners that it
//! bound. Without a service manager every message is nothing, and no socket is there. Messages are best effort: a manager
//! that misses one acts by its own time limits.

use std::io;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::time::Duration;

use listenfd::ListenFd;
use sd_notify::NotifyState;

/// The service manager, if there is one.
#[derive(Debug, Clone, Copy, Default)]
pub struct ServiceManager;

impl ServiceManager {
    /// Everything listens; `status` is shown to people (`systemctl status`).
    pub fn ready(self, status: &str) {
        tell(&[NotifyState::Ready, NotifyState::Status(status)]);
    }

    /// The end has begun.
    pub fn stopping(self) {
        tell(&[NotifyState::Stopping]);
    }

    /// The daemon does its work. To be said within twice [`Self::watchdog`].
    pub fn alive(self) {
        tell(&[NotifyState::Watchdog]);
    }

    /// How often to say [`Self::alive`]: half of `WatchdogSec=`, as sd_watchdog_enabled(3) recommends. `None` without one.
    #[must_use]
    pub fn watchdog(self) -> Option<Duration> {
        sd_notify::watchdog_enabled().map(|limit| limit / 2).filter(|pause| !pause.is_zero())
    }
}

fn tell(states: &[NotifyState<'_>]) {
    // Nobody is there, or it does not listen: its time limits decide.
    let _ = sd_notify::notify(states);
}

/// Sockets that the service manager bound, in the order of the socket unit. They outlive the daemon, so that a restart
/// refuses no connection.
pub struct Sockets(ListenFd);

impl Sockets {
    /// What was handed to this process. To be called once, before anything opens descriptors.
    #[must_use]
    pub fn of_environment() -> Self {
        Self(ListenFd::from_env())
    }

    /// The Unix socket at `place`, 0 being the first; `None` when so many were not handed over.
    ///
    /// # Errors
    /// The descriptor at that place is no listening Unix socket.
    pub fn unix(&mut self, place: usize) -> io::Result<Option<UnixListener>> {
        let listener = self.0.take_unix_listener(place)?;
        listener.iter().try_for_each(|listener| listener.set_nonblocking(true))?;
        Ok(listener)
    }

    /// The TCP socket at `place`, 0 being the first; `None` when so many were not handed over.
    ///
    /// # Errors
    /// The descriptor at that place is no listening TCP socket.
    pub fn tcp(&mut self, place: usize) -> io::Result<Option<TcpListener>> {
        let listener = self.0.take_tcp_listener(place)?;
        listener.iter().try_for_each(|listener| listener.set_nonblocking(true))?;
        Ok(listener)
    }
}

impl std::fmt::Debug for Sockets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Sockets").field(&self.0.len()).finish()
    }
}
