//! Exit codes of the command line, each one from the binary itself.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "helpers of tests may panic like the tests themselves"
)]

mod support;

use std::io::Write;
use std::process::{Output, Stdio};

use support::sandboxd;

/// Whether this host can run programs at tier `container`; a test that needs it says loudly that it is skipped.
fn has_container() -> bool {
    let output = run(&["describe", "--json"]);
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let tiers = value["providers"].as_array().cloned().unwrap_or_default();
    let found = tiers.iter().any(|provider| provider["tier"] == "container");
    if !found {
        eprintln!("SKIPPED: no provider at tier container here: {}", value["not_started"]);
    }
    found
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap_or(-1)
}

fn run(arguments: &[&str]) -> Output {
    let home = tempfile::tempdir().unwrap();
    sandboxd().args(arguments).env("HOME", home.path()).stdin(Stdio::null()).output().unwrap()
}

#[test]
fn a_bad_command_line_is_2_and_for_run_125() {
    assert_eq!(code(&run(&["nothing"])), 2);
    assert_eq!(code(&run(&[])), 2);
    assert_eq!(code(&run(&["serve", "--nothing"])), 2);
    for bad in [
        &["run", "--nothing"][..],
        &["run", "--floor", "Kernel", "--", "true"],
        &["run", "--timeout", "soon", "--", "true"],
        &["run", "--language", "cobol", "-"],
        &["run", "--grant", "triage", "--", "true"],
        &["run", "a.py", "--", "true"],
        &["run", "--file", "/etc/hostname:../x", "--", "true"],
    ] {
        assert_eq!(code(&run(bad)), 125, "{bad:?}");
    }
    for good in [&["--help"][..], &["--version"], &["run", "--help"]] {
        assert_eq!(code(&run(good)), 0, "{good:?}");
    }
}

#[test]
fn a_program_that_cannot_be_read_is_125() {
    let folder = tempfile::tempdir().unwrap();
    let unclear = folder.path().join("program.rb");
    std::fs::write(&unclear, "1").unwrap();
    let missing = folder.path().join("missing.js");
    for path in [&unclear, &missing] {
        let output = run(&["run", path.to_str().unwrap()]);
        assert_eq!(code(&output), 125);
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(text.contains(path.to_str().unwrap()), "{text}");
    }
}

#[test]
fn a_floor_that_nothing_reaches_is_126_and_nothing_ran() {
    if !has_container() {
        return;
    }
    let output = run(&["run", "--floor", "vm", "--", "echo", "ran"]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(code(&output), 126, "{text}");
    assert!(output.stdout.is_empty());
    assert!(text.contains("nothing ran"), "{text}");
    let output = run(&["run", "--json", "--floor", "vm", "--", "echo", "ran"]);
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((value["verdict"].as_str(), value["exit_code"].as_u64()), (Some("nothing_ran"), Some(126)));
}

#[test]
fn grants_without_a_broker_are_125() {
    let output = run(&[
        "run",
        "--caller",
        "me",
        "--grant",
        "triage",
        "--broker",
        "/nonexistent/control.sock",
        "--",
        "true",
    ]);
    assert_eq!(code(&output), 125);
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("nothing ran") && text.contains("/nonexistent/control.sock"), "{text}");
}

#[test]
fn serve_without_callers_or_with_bad_configuration_is_1() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("freeboard.toml");
    let callers = folder.path().join("callers.toml");
    let serve = |text: &str| {
        std::fs::write(&config, text).unwrap();
        run(&[
            "serve",
            "--config",
            config.to_str().unwrap(),
            "--callers",
            callers.to_str().unwrap(),
            "--listen",
            "127.0.0.1:0",
        ])
    };
    let output = serve("");
    assert_eq!(code(&output), 1);
    assert!(String::from_utf8(output.stderr).unwrap().contains("callers.toml"));
    assert_eq!(code(&serve("[sandboxd]\nunknown = 1\n")), 1);
    assert_eq!(code(&serve("[sandboxd]\nproviders = [\"docker\"]\n")), 1);
    freeboard_sandboxd::callers::create(&callers, "a").unwrap();
    let output = serve("[sandboxd]\nmin_isolation = \"vm\"\n");
    assert_eq!(code(&output), 1);
    assert!(String::from_utf8(output.stderr).unwrap().contains("floor `vm`"));
}

#[test]
fn print_config_shows_each_value_with_its_origin() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("freeboard.toml");
    std::fs::write(&config, "[sandboxd]\nmax_concurrent = 3\n").unwrap();
    let output =
        run(&["serve", "--config", config.to_str().unwrap(), "--provider", "wasm", "--print-config"]);
    assert_eq!(code(&output), 0);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains(&format!("max_concurrent = 3  # {}", config.display())), "{text}");
    assert!(text.contains("providers = [\"wasm\"]  # flag --provider"), "{text}");
    assert!(text.contains("listen = \"127.0.0.1:8746\"  # default"), "{text}");
    // What is printed is itself a configuration.
    std::fs::write(&config, &text).unwrap();
    let again = run(&["serve", "--config", config.to_str().unwrap(), "--print-config"]);
    assert_eq!(code(&again), 0, "{}", String::from_utf8_lossy(&again.stderr));
}

#[test]
fn callers_are_made_listed_and_revoked() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("callers.toml");
    let callers = |arguments: &[&str]| {
        let mut all = vec!["callers", "--file", file.to_str().unwrap()];
        all.extend_from_slice(arguments);
        run(&all)
    };
    let made = callers(&["create", "triage-bot"]);
    assert_eq!(code(&made), 0);
    let token = String::from_utf8(made.stdout).unwrap();
    assert_eq!(token.trim().len(), 64);
    assert_eq!(code(&callers(&["create", "triage-bot"])), 1);
    let listed = String::from_utf8(callers(&["list"]).stdout).unwrap();
    assert!(listed.starts_with("triage-bot\tcode:run,code:session\tsha256:"), "{listed}");
    assert_ne!(callers(&["rotate", "triage-bot"]).stdout, token.into_bytes());
    assert_eq!(code(&callers(&["revoke", "triage-bot"])), 0);
    assert_eq!(code(&callers(&["revoke", "triage-bot"])), 1);
    assert!(callers(&["list"]).stdout.is_empty());
}

#[test]
fn a_caller_is_imported_with_the_token_of_standard_input() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("callers.toml");
    let import = |token: &str| {
        let mut child = sandboxd()
            .args(["callers", "--file", file.to_str().unwrap(), "import", "ci", "--scope", "code:run"])
            .args(["--max-concurrent", "2"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(token.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    };
    let refused = import("short\n");
    assert_eq!(code(&refused), 1);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("32 to 4096 visible ASCII"));
    let token = "0123456789-0123456789-0123456789-0123456789";
    let taken = import(&format!("{token}\n"));
    assert_eq!(code(&taken), 0);
    assert!(taken.stdout.is_empty(), "whoever made it has it");
    let callers = freeboard_sandboxd::callers::Callers::load(&file).unwrap();
    let known = freeboard_sandboxd::callers::Verdict::Known {
        id: "ci".into(),
        scopes: freeboard_sandboxd::callers::Scopes { run: true, ..Default::default() },
    };
    assert_eq!(callers.verify(token, 0), known);
}

#[test]
fn a_hardened_daemon_says_everything_that_is_amiss_and_does_not_serve() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("freeboard.toml");
    std::fs::write(&config, "[sandboxd]\nhardened = true\nrate_per_minute = 0\n").unwrap();
    let output = run(&["serve", "--config", config.to_str().unwrap(), "--danger-without-tokens"]);
    assert_eq!(code(&output), 1);
    let text = String::from_utf8(output.stderr).unwrap();
    for word in ["min_isolation", "--danger-without-tokens", "rate_per_minute", "total_memory_mib", "`pids`"]
    {
        assert!(text.contains(word), "{word}: {text}");
    }
    std::fs::write(&config, "[sandboxd]\ntotal_memory_mib = 100\nmemory_mib = 256\n").unwrap();
    let output = run(&["serve", "--config", config.to_str().unwrap(), "--danger-without-tokens"]);
    assert_eq!(code(&output), 1);
    assert!(String::from_utf8_lossy(&output.stderr).contains("not hold even one run of 256 MiB"));
}

#[test]
fn a_program_from_stdin_is_read_whole_before_anything_else() {
    if !has_container() {
        return;
    }
    let mut child = sandboxd()
        .args(["run", "--floor", "vm", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"console.log(1)").unwrap();
    assert_eq!(code(&child.wait_with_output().unwrap()), 126);
}
