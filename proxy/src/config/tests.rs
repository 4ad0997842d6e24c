//! Mistakes of a configuration file, each with its place and help.

use std::path::PathBuf;

use super::load::{ConfigError, parse};
use super::options::{OPTIONS, RENAMED, find};
use super::{Config, Environment, Flags};
use crate::upstream::chain::{ProxyPlace, Resolving};

fn problems(text: &str) -> String {
    match parse("freeboard.toml", text) {
        Err(ConfigError::Problems(problems)) => {
            problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_default_is_a_value_of_its_kind_and_every_option_says_why() {
    let environment = Environment { is_root: true, ..Environment::default() };
    let flags = Flags { config: None, set: Vec::new() };
    let config = Config::load(&flags, &environment).unwrap();
    for option in OPTIONS {
        assert!(config.print().contains(&format!("{} = ", option.key)), "{}", option.key);
        assert!(!option.what.is_empty() && !option.why.is_empty());
    }
}

#[test]
fn every_renamed_option_leads_to_one_that_exists() {
    for (old, new) in RENAMED {
        assert!(find(old).is_none() && find(new).is_some(), "{old} {new}");
    }
}

#[test]
fn all_mistakes_are_shown_with_place_line_and_help() {
    let text = "[broker]\nworkers = \"many\"\naudit_log = \"/x\"\npolice = \"/x\"\n[brokr]\n";
    insta::assert_snapshot!(problems(text), @r#"
    error: `workers` is not a whole number from 0 to 1024
      --> freeboard.toml:2:11
       | workers = "many"
    error: unknown option `audit_log`
      --> freeboard.toml:3:1
       | audit_log = "/x"
       = help: this option is called `audit.folder`
    error: unknown option `police`
      --> freeboard.toml:4:1
       | police = "/x"
       = help: did you mean `policy`?
    error: unknown table `brokr`
      --> freeboard.toml:5:2
       | [brokr]
       = help: the tables are [broker] and [sandboxd]
    "#);
}

#[test]
fn wrong_shapes_and_values_are_refused() {
    for text in [
        "broker = 1",
        "[broker]\naudit = \"/x\"",
        "[broker]\npolicy = \"relative\"",
        "[broker]\ncontrol_uids = [-1]",
        "[broker]\ncontrol_uids = \"1\"",
        "[broker]\nmax_gates = 0",
        "[broker]\ngrace = 10",
        "[broker]\nreload_every = \"0s\"",
        "[broker]\nexplicit_listen = \"3128\"",
        "[broker]\nexplicit_listen = \"localhost:3128\"",
        "[broker]\naudit.file_size = \"1KiB\"",
        "[broker]\nupstream_proxy = \"proxy.corp:3128\"",
        "[broker.upstream_proxy]\naddress = \"http://proxy.corp:3128\"",
        "[broker.upstream_proxy]\naddress = \"proxy.corp\"",
        "[broker.upstream_proxy]\nresolve = \"both\"",
        "[broker.upstream_proxy]\ndirect = [\"10.0.0.1\"]",
        "[broker.upstream_proxy]\ndirect = \"api.internal\"",
        "[broker.upstream_proxy]\npassword = \"x\"",
        "[broker.hosts]\n\"10.0.0.1\" = \"10.0.0.1\"",
        "[broker.hosts]\n\"api.test\" = \"not an address\"",
        "[broker.hosts]\n\"api.test\" = []",
        "[[broker.explicit_run]]\nid = \"x\"",
        "[[broker.explicit_run]]\nid = \"a b\"\ngrants = []\ntoken_sha256_file = \"/x\"",
        "[[broker.explicit_run]]\nid = \"x\"\ngrants = []\ntoken_sha256_file = \"/x\"\ntier = \"vm\"",
        "[broker]\nuser = \"a\"\nuser = \"b\"",
        "not toml",
    ] {
        assert!(problems(text).contains("  --> freeboard.toml:"), "{text}");
    }
}

#[test]
fn the_table_of_the_other_daemon_is_left_alone() {
    assert!(parse("freeboard.toml", "[sandboxd]\nanything = [1, { deep = true }]\n").is_ok());
}

#[test]
fn flags_win_over_the_file_and_the_file_over_defaults() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("freeboard.toml");
    std::fs::write(
        &path,
        "[broker]\nworkers = 3\ngrace = \"5s\"\n[broker.hosts]\n\"api.test\" = [\"::1\", \"10.0.0.1\"]\n",
    )
    .unwrap();
    let environment = Environment {
        home: Some(PathBuf::from("/home/x")),
        xdg_runtime_dir: Some("/run/user/7".into()),
        ..Environment::default()
    };
    let flags = Flags { config: Some(path), set: vec![("workers".into(), "9".into())] };
    let config = Config::load(&flags, &environment).unwrap();
    assert_eq!((config.workers, config.grace.as_secs(), config.max_gates), (9, 5, 1024));
    assert_eq!(config.policy, PathBuf::from("/home/x/.config/freeboard/policy"));
    assert_eq!(config.audit.folder, PathBuf::from("/home/x/.local/state/freeboard/audit"));
    assert_eq!(config.control_socket, PathBuf::from("/run/user/7/freeboard/control.sock"));
    assert_eq!(config.hosts.values().map(Vec::len).sum::<usize>(), 2);
    assert!(config.upstream_proxy.is_none(), "no variable and no default makes a proxy");
    let wrong =
        Flags { config: None, set: vec![("wrokers".into(), "9".into()), ("grace".into(), "x".into())] };
    let Err(ConfigError::Problems(problems)) = Config::load(&wrong, &environment) else { panic!() };
    assert_eq!(problems.len(), 2);
}

#[test]
fn a_proxy_on_the_way_is_read_whole() {
    let text = "[broker.upstream_proxy]\naddress = \"proxy.corp:3128\"\ncredential_file = \"/etc/freeboard/proxy\"\nresolve = \"proxy\"\n\
                direct = [\"a.internal\", \"b.internal\"]\n";
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("freeboard.toml");
    std::fs::write(&path, text).unwrap();
    let environment = Environment { is_root: true, ..Environment::default() };
    let config = Config::load(&Flags { config: Some(path), set: Vec::new() }, &environment).unwrap();
    let chain = config.upstream_proxy.as_ref().unwrap();
    assert_eq!(chain.proxy, ProxyPlace::parse("proxy.corp:3128").unwrap());
    assert_eq!(chain.resolving, Resolving::Proxy);
    assert_eq!((chain.direct.len(), chain.credential_file.is_some()), (2, true));
    assert!(
        config.print().contains("upstream_proxy.direct = [\"a.internal\", \"b.internal\"]"),
        "{}",
        config.print()
    );
}
