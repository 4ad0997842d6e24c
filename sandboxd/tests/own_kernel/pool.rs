//! A kernel that runs before its run is known.

use std::sync::Arc;
use std::time::{Duration, Instant};

use freeboard_sandboxd::job::{Job, NoSink};
use freeboard_sandboxd::provider::{Plan, Pooled, Provider};

use crate::support::*;

/// With a gate of the usual doors.
fn plan(job: Job) -> Plan {
    let mut plan = crate::gate::plan(job);
    plan.prepared.as_mut().unwrap().ports = vec![443];
    plan
}

#[test]
fn each_run_gets_a_kernel_that_nobody_had_before() {
    with_shared(async |provider| {
        let pool = Pooled::new(provider, 1);
        pool.warm(plan(shell("")).prepared.as_ref());
        for number in 0..2 {
            let end = Instant::now() + Duration::from_secs(60);
            while pool.waiting() < 1 {
                assert!(Instant::now() < end, "nothing is built ahead");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            let plan = plan(shell(&format!("ls -A; echo {number} > left; cat left")));
            let mut sandbox = pool.create(&plan).await.unwrap();
            assert_eq!(pool.waiting(), 0, "it was there already");
            let evidence = sandbox.measure().await.unwrap();
            assert!(evidence.facts.iter().all(|fact| fact.met), "{evidence:?}");
            assert!(sandbox.take_doors().len() >= 5);
            let outcome = sandbox.release(Arc::new(NoSink)).await.unwrap();
            assert_eq!(first(&outcome), (0, format!("{number}\n"), String::new()));
        }
    });
}
