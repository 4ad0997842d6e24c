//! Sandboxes that stand before anybody asked for them: built ahead, used once, measured for their run like any other.
//!
//! In: a provider, and how many shall wait. Out: the same provider, whose `create` mostly takes one that waits. A sandbox waits
//! without a run, a grant or a caller: those come with the job, which is sent to it when it is released. What differs between
//! boundaries (ports of grants beyond the usual, less memory, another CA) is built as before.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use freeboard_control::Prepared;
use freeboard_netns::STANDING_PORTS;
use futures_util::future::BoxFuture;

use super::{CreateError, Description, Plan, Provider, Sandbox};
use crate::job::{Job, Less, Payload};
use crate::launch::new_run_id;

/// A provider with a pool. Dropping it destroys what waits.
#[derive(Debug)]
pub struct Pooled {
    pool: Arc<Pool>,
}

#[derive(Debug)]
struct Pool {
    provider: Arc<dyn Provider>,
    size: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<(Shape, Box<dyn Sandbox>)>,
    /// Somebody builds.
    filling: bool,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("waiting", &self.waiting.len()).finish_non_exhaustive()
    }
}

/// What tells one boundary from another, among those that a pool has.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Shape {
    /// No broker: no network at all.
    WithoutGate,
    /// The doors that every gate has, and this CA.
    Gate { ca_pem: String },
}

impl Shape {
    /// `None`: no pool has such a one.
    fn of(plan: &Plan) -> Option<Self> {
        if plan.job.less != Less::default() {
            return None;
        }
        match &plan.prepared {
            None => Some(Self::WithoutGate),
            Some(prepared) if prepared.ports.iter().all(|port| STANDING_PORTS.contains(port)) => {
                Some(Self::Gate { ca_pem: prepared.ca_pem.clone() })
            }
            Some(_) => None,
        }
    }

    /// A boundary of this shape for nobody yet.
    fn plan(&self, run: String) -> Plan {
        let prepared = match self {
            Self::WithoutGate => None,
            Self::Gate { ca_pem } => Some(Prepared {
                policy_digest: String::new(),
                floor: None,
                ttl_seconds: None,
                ports: Vec::new(),
                ca_pem: ca_pem.clone(),
                surface: Vec::new(),
                variables: Vec::new(),
            }),
        };
        Plan { job: Job::of_nobody(run, Payload::Session, Duration::ZERO), prepared }
    }
}

impl Pooled {
    /// `size` sandboxes wait at most. They are built once the first run, or `warm`, says what they look like.
    pub fn new(provider: Arc<dyn Provider>, size: u32) -> Self {
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        Self { pool: Arc::new(Pool { provider, size, state: Mutex::default() }) }
    }

    /// Sandboxes that wait.
    pub fn waiting(&self) -> usize {
        self.pool.lock().waiting.len()
    }
}

impl Pool {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One that waits and still lives, for this job.
    fn take(&self, shape: &Shape, job: &Job) -> Option<Box<dyn Sandbox>> {
        loop {
            let mut sandbox = {
                let waiting = &mut self.lock().waiting;
                // Of another CA than the one that is in force: nobody will ask for them.
                waiting.retain(|(other, _)| other == shape);
                // The oldest: none waits so long that the ids of the host which it has come round again.
                waiting.pop_front()?.1
            };
            if sandbox.give_to(job) {
                return Some(sandbox);
            }
            tracing::warn!("a sandbox that waited has ended");
        }
    }

    /// Builds in the background until there are enough.
    fn fill(self: &Arc<Self>, shape: Shape) {
        if std::mem::replace(&mut self.lock().filling, true) {
            return;
        }
        let filling = Filling(Arc::downgrade(self));
        tokio::spawn(async move {
            loop {
                // Nobody has the provider any more: the daemon stops.
                let Some(pool) = filling.0.upgrade() else { return };
                if pool.lock().waiting.len() >= pool.size {
                    return;
                }
                let Ok(run) = new_run_id() else { return };
                match pool.provider.create(&shape.plan(run)).await {
                    Ok(sandbox) => pool.lock().waiting.push_back((shape.clone(), sandbox)),
                    Err(error) => {
                        // The next run is built by itself, and its refusal says why.
                        let why = crate::causes::chain(&error);
                        tracing::warn!(why, "no sandbox can be built ahead");
                        return;
                    }
                }
            }
        });
    }
}

/// Whoever builds, however that ends.
struct Filling(Weak<Pool>);

impl Drop for Filling {
    fn drop(&mut self) {
        if let Some(pool) = self.0.upgrade() {
            pool.lock().filling = false;
        }
    }
}

impl Provider for Pooled {
    fn describe(&self) -> Description {
        self.pool.provider.describe()
    }

    fn create<'a>(&'a self, plan: &'a Plan) -> BoxFuture<'a, Result<Box<dyn Sandbox>, CreateError>> {
        Box::pin(async move {
            let pool = &self.pool;
            let Some(shape) = Shape::of(plan) else { return pool.provider.create(plan).await };
            pool.provider.ready_for(plan).await?;
            let taken = pool.take(&shape, &plan.job);
            pool.fill(shape);
            match taken {
                Some(sandbox) => Ok(sandbox),
                None => pool.provider.create(plan).await,
            }
        })
    }

    fn ready_for<'a>(&'a self, plan: &'a Plan) -> BoxFuture<'a, Result<(), CreateError>> {
        self.pool.provider.ready_for(plan)
    }

    fn warm(&self, prepared: Option<&Prepared>) {
        let nobody = Job::of_nobody(String::new(), Payload::Session, Duration::ZERO);
        let plan = Plan { job: nobody, prepared: prepared.cloned() };
        if let Some(shape) = Shape::of(&plan) {
            self.pool.fill(shape);
        }
    }

    fn smoke_test(&self) -> BoxFuture<'_, Result<(), CreateError>> {
        self.pool.provider.smoke_test()
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;
    use std::sync::atomic::{AtomicU32, Ordering};

    use freeboard_control::{Door, Evidence};
    use freeboard_policy::Tier;

    use super::*;
    use crate::job::{Outcome, OutputSink};
    use crate::provider::{Allowance, RunFailure, RunLimits};

    /// Counts what is built and what is destroyed; every third one has ended when it is asked for.
    #[derive(Debug, Default)]
    struct Counting {
        built: Arc<AtomicU32>,
        destroyed: Arc<AtomicU32>,
    }

    struct Counted {
        number: u32,
        destroyed: Arc<AtomicU32>,
    }

    impl Drop for Counted {
        fn drop(&mut self) {
            self.destroyed.fetch_add(1, Ordering::SeqCst);
        }
    }

    impl Provider for Counting {
        fn describe(&self) -> Description {
            Allowance::of(&RunLimits::USUAL).description("counting", Tier::Container, false, false)
        }

        fn create<'a>(&'a self, _plan: &'a Plan) -> BoxFuture<'a, Result<Box<dyn Sandbox>, CreateError>> {
            let number = self.built.fetch_add(1, Ordering::SeqCst);
            let sandbox = Counted { number, destroyed: Arc::clone(&self.destroyed) };
            Box::pin(std::future::ready(Ok(Box::new(sandbox) as Box<dyn Sandbox>)))
        }
    }

    impl Sandbox for Counted {
        fn measure(&mut self) -> BoxFuture<'_, Result<Evidence, CreateError>> {
            let provider = self.number.to_string();
            Box::pin(std::future::ready(Ok(Evidence { provider, tier: Tier::Container, facts: Vec::new() })))
        }

        fn give_to(&mut self, _job: &Job) -> bool {
            self.number % 3 != 2
        }

        fn take_doors(&mut self) -> Vec<(Door, OwnedFd)> {
            Vec::new()
        }

        fn release(
            self: Box<Self>,
            _output: Arc<dyn OutputSink>,
        ) -> BoxFuture<'static, Result<Outcome, RunFailure>> {
            Box::pin(std::future::ready(Err(RunFailure::Cancelled)))
        }
    }

    fn plan(prepared: Option<(&str, &[u16])>) -> Plan {
        let mut plan = Shape::WithoutGate.plan("run".to_owned());
        plan.prepared = prepared.map(|(ca_pem, ports)| {
            let shape = Shape::Gate { ca_pem: ca_pem.to_owned() };
            Prepared { ports: ports.to_vec(), ..shape.plan(String::new()).prepared.expect("a gate") }
        });
        plan
    }

    async fn number(pool: &Pooled, plan: &Plan) -> String {
        let mut sandbox = pool.create(plan).await.expect("built");
        let number = sandbox.measure().await.expect("measured").provider;
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        number
    }

    #[tokio::test]
    async fn takes_the_oldest_that_lives_and_builds_another() {
        let counting = Counting::default();
        let (built, destroyed) = (Arc::clone(&counting.built), Arc::clone(&counting.destroyed));
        let pool = Pooled::new(Arc::new(counting), 2);
        assert_eq!(number(&pool, &plan(None)).await, "0", "none was there: one of its own");
        assert_eq!(pool.waiting(), 2);
        assert_eq!(number(&pool, &plan(None)).await, "1");
        // Number 2 has ended.
        assert_eq!(number(&pool, &plan(None)).await, "3");
        assert_eq!(pool.waiting(), 2);
        let before = built.load(Ordering::SeqCst);
        drop(pool);
        assert_eq!(destroyed.load(Ordering::SeqCst), before, "nothing waits any more");
    }

    #[tokio::test]
    async fn what_waits_is_of_the_ca_that_is_in_force() {
        let pool = Pooled::new(Arc::new(Counting::default()), 1);
        pool.warm(plan(Some(("old", &[]))).prepared.as_ref());
        tokio::task::yield_now().await;
        assert_eq!(pool.waiting(), 1);
        assert_eq!(number(&pool, &plan(Some(("old", &[443])))).await, "0");
        assert_eq!(number(&pool, &plan(Some(("new", &[443])))).await, "2", "number 1 has the old CA");
        assert_eq!(number(&pool, &plan(Some(("new", &[80])))).await, "3");
        assert_eq!(number(&pool, &plan(Some(("new", &[8443])))).await, "5", "another port, built by itself");
        assert_eq!(pool.waiting(), 1);
    }
}
