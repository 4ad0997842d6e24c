//! How long the parts of a run take; run by name with `--ignored --nocapture`.

use std::sync::Arc;
use std::time::Instant;

use freeboard_sandboxd::job::{NoSink, Payload};
use freeboard_sandboxd::provider::native::NativeConfig;
use freeboard_sandboxd::provider::{Plan, Provider};

use crate::support::*;

const ROUNDS: usize = 200;

#[test]
#[ignore = "a measurement, not a check"]
fn start_to_finish() {
    with_provider(NativeConfig::default(), async |provider| {
        let (mut create, mut measure, mut release) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let plan = Plan { job: job(Payload::Command { argv: vec!["/bin/true".into()] }), prepared: None };
            let began = Instant::now();
            let mut sandbox = provider.create(&plan).await.unwrap();
            create.push(began.elapsed());
            let began = Instant::now();
            sandbox.measure().await.unwrap();
            measure.push(began.elapsed());
            let began = Instant::now();
            sandbox.release(Arc::new(NoSink)).await.unwrap();
            release.push(began.elapsed());
        }
        for (name, mut times) in [("create", create), ("measure", measure), ("release", release)] {
            times.sort();
            let at = |share: usize| times[ROUNDS * share / 100];
            println!("{name}: p10 {:?} p50 {:?} p90 {:?}", at(10), at(50), at(90));
        }
    });
}
