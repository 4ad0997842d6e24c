//! What the evidence says, and what is refused.

use std::sync::Arc;

use freeboard_policy::Tier;
use freeboard_sandboxd::job::NoSink;
use freeboard_sandboxd::provider::Provider;
use freeboard_sandboxd::provider::docker::{DockerConfig, DockerProvider};

use crate::engine::Engine;
use crate::gate::plan;
use crate::support::*;

#[test]
fn f35_the_evidence_is_of_the_live_boundary() {
    with_docker(DockerConfig::default(), async |provider, engine| {
        let (sandbox, evidence) = measured(&provider, shell("id -u; id -g")).await.unwrap();
        assert_eq!((evidence.provider.as_str(), evidence.tier), ("docker", Tier::Container));
        assert!(evidence.facts.iter().all(|fact| fact.met), "{evidence:?}");
        assert_eq!(fact(&evidence, "image").value, engine.image);
        assert_eq!(provider.describe().environment, engine.image);
        assert_eq!(fact(&evidence, "seccomp_mode").value, "2");
        assert_eq!(fact(&evidence, "network_links").value, "lo");
        let user = fact(&evidence, "host_uid").value.clone();
        let outcome = sandbox.release(Arc::new(NoSink)).await.unwrap();
        assert_eq!(first(&outcome).1, format!("{user}\n{user}\n"));
    });
}

#[test]
fn f35_with_runsc_the_kernel_is_gvisors() {
    let Some(config) = with_runsc() else { return };
    with_docker(config, async |provider, _| {
        let (sandbox, evidence) = measured(&provider, shell("uname -r; id -u")).await.unwrap();
        assert_eq!(evidence.tier, Tier::Kernel, "{evidence:?}");
        assert!(evidence.facts.iter().all(|fact| fact.met), "{evidence:?}");
        let outcome = sandbox.release(Arc::new(NoSink)).await.unwrap();
        let host = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        let (code, stdout, _) = first(&outcome);
        assert!(code == 0 && stdout.ends_with("\n1000\n") && !stdout.starts_with(host.trim()), "{stdout}");
        let refused = provider.create(&plan(shell("true"))).await.err().unwrap().to_string();
        assert!(refused.contains("gvisor"), "{refused}");
        provider.smoke_test().await.unwrap();
    });
}

#[test]
fn images_that_bring_what_is_refused_are_refused() {
    let Some(engine) = Engine::start() else { return };
    for (change, why) in [("VOLUME /data", "volume"), ("ENV LD_PRELOAD=/x.so", "LD_PRELOAD")] {
        let image = engine.import(&[change]);
        let error = DockerProvider::start(on(&engine, DockerConfig { image, ..DockerConfig::default() }));
        let error = error.unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
    let missing = DockerConfig { image: "no-such-image".into(), ..DockerConfig::default() };
    let error = DockerProvider::start(on(&engine, missing)).unwrap_err().to_string();
    assert!(error.contains("pulls nothing"), "{error}");
}

#[test]
fn a_name_that_means_another_image_later_changes_nothing() {
    let config = DockerConfig { image: "test:latest".into(), ..DockerConfig::default() };
    with_docker(config, async |provider, engine| {
        let before = provider.describe().environment;
        let other = engine.import(&["ENV OTHER=1"]);
        assert_ne!(other, before);
        let (sandbox, evidence) = measured(&provider, shell("echo $OTHER.")).await.unwrap();
        assert_eq!(fact(&evidence, "image").value, before);
        assert_eq!(first(&sandbox.release(Arc::new(NoSink)).await.unwrap()).1, ".\n");
    });
}

#[test]
fn an_engine_that_is_not_there_is_named_with_what_to_do() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let config = DockerConfig {
        socket: "/nonexistent/docker.sock".into(),
        image: "test".into(),
        guest: Some(guest_program()),
        ..DockerConfig::default()
    };
    let error = DockerProvider::start(config).unwrap_err().to_string();
    assert!(error.contains("docker_socket"), "{error}");
}
