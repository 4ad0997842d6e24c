//! Sandboxes of `native` that stand before their run is known.

use std::sync::Arc;
use std::time::{Duration, Instant};

use freeboard_policy::Tier;
use freeboard_sandboxd::job::{Job, JobFile, Less, NoSink, Payload};
use freeboard_sandboxd::provider::native::NativeConfig;
use freeboard_sandboxd::provider::{Cancel, Plan, Pooled, Provider, Sandbox};

use crate::support::{first, shell, with_provider};

fn with_pool(test: impl AsyncFnOnce(Pooled)) {
    with_provider(NativeConfig::default(), async |provider| {
        let pool = Pooled::new(Arc::new(provider), 2);
        pool.warm(None);
        filled(&pool).await;
        test(pool).await;
    });
}

async fn filled(pool: &Pooled) {
    let end = Instant::now() + Duration::from_secs(20);
    while pool.waiting() < 2 {
        assert!(Instant::now() < end, "nothing is built ahead");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn create(pool: &Pooled, job: Job) -> Box<dyn Sandbox> {
    let mut sandbox = pool.create(&Plan { job, prepared: None }).await.unwrap();
    let evidence = sandbox.measure().await.unwrap();
    assert_eq!(evidence.tier, Tier::Container);
    assert!(evidence.facts.iter().all(|fact| fact.met), "{evidence:?}");
    sandbox
}

#[test]
fn each_run_gets_one_that_nobody_had_before() {
    with_pool(async |pool| {
        for number in 0..4 {
            let mut job = shell("cat in; ls -A; echo $WORD; echo left > left; echo left > /tmp/left");
            job.files.push(JobFile { path: "in".into(), content: format!("{number}\n").into() });
            job.environment.push(("WORD".into(), format!("word-{number}")));
            let sandbox = create(&pool, job).await;
            assert_eq!(pool.waiting(), 1, "it was there already");
            let outcome = sandbox.release(Arc::new(NoSink)).await.unwrap();
            assert_eq!(first(&outcome), (0, format!("{number}\nin\nword-{number}\n"), String::new()));
            filled(&pool).await;
        }
    });
}

#[test]
fn the_time_of_a_run_counts_from_its_own_release() {
    with_pool(async |pool| {
        tokio::time::sleep(Duration::from_millis(1200)).await; // longer than the run may take
        let job = Job { timeout: Duration::from_secs(1), ..shell("echo in time; sleep 20") };
        let begun = Instant::now();
        let outcome = create(&pool, job).await.release(Arc::new(NoSink)).await.unwrap();
        let (code, stdout, _) = first(&outcome);
        assert_eq!((code, &*stdout), (124, "in time\n"));
        assert!(begun.elapsed() >= Duration::from_secs(1));
    });
}

#[test]
fn a_run_that_needs_another_boundary_is_built_by_itself() {
    with_pool(async |pool| {
        let less = Less { memory_mib: Some(64), ..Less::default() };
        let sandbox = create(&pool, Job { less, ..shell("echo small") }).await;
        assert_eq!(pool.waiting(), 2);
        let outcome = sandbox.release(Arc::new(NoSink)).await.unwrap();
        assert_eq!(first(&outcome).1, "small\n");
        let nothing =
            Plan { job: Job { payload: Payload::Command { argv: Vec::new() }, ..shell("") }, prepared: None };
        assert!(pool.create(&nothing).await.is_err());
        assert_eq!(pool.waiting(), 2, "nothing is taken for what cannot run");
    });
}

#[test]
fn sessions_begin_in_one_too() {
    with_pool(async |pool| {
        let sandbox = create(&pool, Job { payload: Payload::Session, ..shell("") }).await;
        assert_eq!(pool.waiting(), 1);
        let mut session = sandbox.into_session().await.unwrap();
        session.read_back().unwrap();
        for said in ["one", "two"] {
            let job = shell(&format!("echo {said} >> log; cat log"));
            let called = session.call(job, Cancel::default(), Arc::new(NoSink)).await.unwrap();
            assert!(called.over.is_none());
            assert!(first(&called.outcome).1.ends_with(&format!("{said}\n")));
        }
        session.end().await;
    });
}
