//! Running something at all.

use crate::support::*;
use freeboard_sandboxd::provider::native::NativeConfig;

#[test]
fn runs_a_command_in_namespaces_of_its_own_and_measures_them() {
    with_provider(NativeConfig::default(), async |provider| {
        let (sandbox, evidence) = measured(&provider, shell("echo hello")).await.unwrap();
        assert!(evidence.facts.iter().all(|fact| fact.met), "{evidence:#?}");
        let outcome = sandbox.release(std::sync::Arc::new(freeboard_sandboxd::job::NoSink)).await.unwrap();
        assert_eq!(first(&outcome), (0, "hello\n".into(), String::new()));
    });
}
