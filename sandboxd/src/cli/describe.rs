//! `sandboxd describe`: what this host can run, and behind which tier.

use serde_json::json;

use super::{Exit, Failure, put, start};
use crate::config::Flags;
use crate::launch::millis;
use crate::provider::{Description, Service};

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    flags: Flags,
    /// As JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn main(arguments: &Arguments) -> Result<Exit, Failure> {
    super::log("error");
    let config = start::configuration(&arguments.flags)?;
    let (providers, failed) =
        start::providers(&start::kinds(&config), usize::MAX, &config, |_| Service::ManyRuns);
    let descriptions: Vec<Description> = providers.iter().map(|provider| provider.describe()).collect();
    if arguments.json {
        let list: Vec<_> = descriptions.iter().map(as_json).collect();
        let missing: Vec<_> = failed
            .iter()
            .map(|failed| json!({"provider": failed.kind.name(), "why": crate::causes::chain(&failed.error)}))
            .collect();
        let whole = json!({"providers": list, "not_started": missing, "broker": config.broker.value});
        put(&format!("{whole:#}\n"));
    } else {
        for description in &descriptions {
            put(&as_text(description));
        }
    }
    start::say_not_started(&failed);
    Ok(if descriptions.is_empty() { Exit::Failure } else { Exit::Success })
}

fn as_text(description: &Description) -> String {
    let yes = |flag: bool, what: &'static str| flag.then_some(what);
    let runs: Vec<&str> = [
        yes(description.supports_javascript, "JavaScript"),
        yes(description.supports_project, "projects and commands"),
        yes(description.supports_grants, "grants"),
    ]
    .into_iter()
    .flatten()
    .collect();
    format!(
        "{}\n  tier       {}\n  runs       {}\n  languages  {}\n  time       {} s, at most {} s\n  limits     {} MiB memory, {} CPUs, {} processes, {} MiB work folder\n  identity   {}\n",
        description.name,
        tier(description),
        runs.join(", "),
        description.languages.join(", "),
        description.default_timeout.as_secs_f64(),
        description.max_timeout.as_secs_f64(),
        description.memory_mib,
        description.cpus,
        description.pids,
        description.disk_mib,
        if description.environment.is_empty() { "not stated" } else { &description.environment },
    )
}

/// With what keeps it from the tier of its kind.
fn tier(description: &Description) -> String {
    match &description.weaker {
        None => description.tier.to_string(),
        Some(why) => format!("{} ({why})", description.tier),
    }
}

fn as_json(description: &Description) -> serde_json::Value {
    json!({
        "provider": description.name,
        "tier": description.tier,
        "weaker": description.weaker,
        "environment": description.environment,
        "javascript": description.supports_javascript,
        "project": description.supports_project,
        "grants": description.supports_grants,
        "languages": description.languages,
        "default_timeout_ms": millis(description.default_timeout),
        "max_timeout_ms": millis(description.max_timeout),
        "memory_mib": description.memory_mib,
        "cpus": description.cpus,
        "pids": description.pids,
        "disk_mib": description.disk_mib,
    })
}
