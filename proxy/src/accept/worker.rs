//! Worker threads: each runs one single-threaded runtime; a gate and all its connections live on one of them.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use freeboard_control::Door;
use tokio::runtime::{Builder, Handle};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};
use tokio_util::sync::CancellationToken;

use super::explicit::Entrance;
use super::{explicit, serve_door};
use crate::broker::Broker;
use crate::limits;
use crate::run::RunContext;

/// The threads. `app` starts them; dropping stops them and cuts what still runs.
#[derive(Debug)]
pub struct Workers {
    threads: Vec<(Handle, JoinHandle<()>)>,
    next: AtomicUsize,
    stop: CancellationToken,
}

impl Workers {
    /// Starts `count` threads, at least one.
    ///
    /// # Errors
    /// The system gives no thread or no epoll descriptor.
    pub fn start(count: usize) -> io::Result<Self> {
        let stop = CancellationToken::new();
        let mut threads = Vec::with_capacity(count.max(1));
        for number in 0..count.max(1) {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            let handle = runtime.handle().clone();
            let stop = stop.clone();
            let body = move || runtime.block_on(stop.cancelled());
            let thread = std::thread::Builder::new().name(format!("worker-{number}")).spawn(body)?;
            threads.push((handle, thread));
        }
        Ok(Self { threads, next: AtomicUsize::new(0), stop })
    }

    /// Serves a gate's doors until the run ends or expires. Called by `control_server` after `RunContext::open`.
    pub fn open_gate(&self, run: &Arc<RunContext>, doors: Vec<(Door, OwnedFd)>, broker: &Arc<Broker>) {
        let Some(worker) = self.pick() else { return };
        worker.spawn(keep_run(Arc::clone(run), Arc::clone(broker), limits::LONGEST_RUN));
        for (door, descriptor) in doors {
            let (run, broker) = (Arc::clone(run), Arc::clone(broker));
            worker.spawn(async move {
                let ended = run.ended.clone();
                tokio::select! {
                    biased;
                    () = ended.cancelled() => {}
                    () = serve_door(door, descriptor, run, broker) => {}
                }
            });
        }
    }

    /// Looks after a run of the configuration, which has no gate. Called by `app`, once per run.
    pub fn keep(&self, run: &Arc<RunContext>, broker: &Arc<Broker>) {
        if let Some(worker) = self.pick() {
            worker.spawn(keep_run(Arc::clone(run), Arc::clone(broker), Duration::MAX));
        }
    }

    /// Serves the explicit proxy on a shared address, or the guard: each connection must name its run. Called by `app`, once per
    /// listener.
    pub fn open_explicit(&self, listener: std::net::TcpListener, entrance: Entrance, broker: &Arc<Broker>) {
        if let Some(worker) = self.pick() {
            worker.spawn(explicit::serve(listener, entrance, Arc::clone(broker)));
        }
    }

    /// Returns once every thread has done a piece of work that came after this call.
    pub async fn answer(&self) {
        for (worker, _) in &self.threads {
            // A runtime that stops takes no work: nothing to wait for.
            let _ = worker.spawn(async {}).await;
        }
    }

    fn pick(&self) -> Option<&Handle> {
        let turn = self.next.fetch_add(1, Ordering::Relaxed) % self.threads.len().max(1);
        self.threads.get(turn).map(|(handle, _)| handle)
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.stop.cancel();
        for (_, thread) in self.threads.drain(..) {
            // A thread that panicked has nothing left to stop.
            let _ = thread.join();
        }
    }
}

/// Ends the run when its time is over, has what is in flight ask again when the time of a grant is over, and closes upstream
/// connections that nobody used for long.
async fn keep_run(run: Arc<RunContext>, broker: Arc<Broker>, longest: Duration) {
    let left = Duration::from_millis(run.expires_unix_ms.saturating_sub(broker.clock.now().unix_ms));
    let expiry = Instant::now().checked_add(left.min(longest));
    let mut sweep = interval(limits::UPSTREAM_IDLE_TIMEOUT);
    sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        // Made before the look at the policy, so that no later one is missed.
        let ask_again = broker.ask_again.notified();
        let look = next_look(&run, &broker);
        tokio::select! {
            () = run.ended.cancelled() => return run.pool.clear(),
            () = until(expiry) => run.ended.cancel(),
            _ = sweep.tick() => run.pool.sweep(),
            () = until(look) => if has_just_ended(&run, &broker) { broker.ask_again.notify_waiters() },
            () = ask_again => {}
        }
    }
}

async fn until(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// When to see whether the time of a grant is over; `None` when time takes nothing more away.
fn next_look(run: &RunContext, broker: &Broker) -> Option<Instant> {
    let now = broker.clock.now().unix_ms;
    let left = run.permission_ends(&broker.snapshot()).filter_map(|end| end.checked_sub(now)).min();
    let look = match left {
        Some(left) => Duration::from_millis(left).clamp(Duration::from_millis(1), limits::PERMISSION_LOOK),
        None if has_just_ended(run, broker) => limits::PERMISSION_LOOK,
        None => return None,
    };
    Some(Instant::now() + look)
}

/// Whether the time of a grant is over since a moment: long enough that a request which was decided just before, and did not
/// listen yet at the first word, hears the second.
fn has_just_ended(run: &RunContext, broker: &Broker) -> bool {
    let now = broker.clock.now().unix_ms;
    let moment = u64::try_from(3 * limits::PERMISSION_LOOK.as_millis()).unwrap_or(u64::MAX);
    run.permission_ends(&broker.snapshot()).any(|end| end <= now && now - end < moment)
}
