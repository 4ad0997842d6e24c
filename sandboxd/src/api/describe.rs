//! Describe: what this daemon is and can do. Runs nothing and takes no place.

use std::time::Duration;

use freeboard_policy::Tier;
use freeboard_wire::{DescribeRequest, DescribeResponse, PROTOCOL, PayloadEnvironment, RunResources};

use super::route::Context;
use crate::launch::millis;
use crate::limits::MAX_TIMEOUT;
use crate::provider::Description;

pub(super) async fn describe(context: &Context<'_>, _request: &DescribeRequest) -> DescribeResponse {
    let launcher = &context.app.launcher;
    let providers = launcher.descriptions();
    let names: Vec<&str> = providers.iter().map(|provider| provider.name).collect();
    let strongest = providers.iter().map(|provider| provider.tier).max();
    // The cheapest one is where a payload without a floor goes.
    let javascript = cheapest(&providers, |provider| provider.supports_javascript);
    let project = cheapest(&providers, |provider| provider.supports_project);
    let sessions = &context.app.sessions;
    let session = cheapest(&providers, |provider| provider.supports_sessions && sessions.are_offered());
    let settings = sessions.settings;
    let grants = launcher.broker().is_some();
    let granting = |provider: Option<&Description>| grants && provider.is_some_and(|p| p.supports_grants);
    DescribeResponse {
        sandbox: if names.is_empty() { "none".to_owned() } else { names.join(",") },
        // A run may be asked for at any tier up to this one.
        isolation: strongest.map_or("none", Tier::word).to_owned(),
        supports_project: project.is_some(),
        supports_javascript_grants: granting(javascript),
        supports_project_grants: granting(project),
        protocol: PROTOCOL,
        javascript_environment: javascript.map(|provider| environment(provider, Some("javascript"))),
        project_environment: project.map(|provider| environment(provider, None)),
        resources: project.or(javascript).map(|provider| RunResources {
            memory_mb: provider.memory_mib,
            cpus: provider.cpus,
            pids: provider.pids,
            disk_mb: provider.disk_mib,
        }),
        policy: policy(context).await,
        supports_sessions: session.is_some(),
        session_lifetime_ms: session.map_or(0, |_| milliseconds(settings.lifetime)),
        session_idle_timeout_ms: session.map_or(0, |_| milliseconds(settings.idle)),
        session_environment: session.map(|provider| PayloadEnvironment {
            languages: sessions.languages(provider.name, &provider.languages),
            ..environment(provider, None)
        }),
        max_sessions_per_caller: session.map_or(0, |_| settings.per_caller),
        max_sessions_per_owner: session.map_or(0, |_| settings.per_owner),
        ..DescribeResponse::default()
    }
}

fn cheapest(providers: &[Description], can: impl Fn(&Description) -> bool) -> Option<&Description> {
    providers.iter().filter(|provider| can(provider)).min_by_key(|provider| provider.tier)
}

fn environment(provider: &Description, only: Option<&str>) -> PayloadEnvironment {
    let languages = match only {
        Some(language) => vec![language.to_owned()],
        None => provider.languages.clone(),
    };
    PayloadEnvironment {
        identity: provider.environment.clone(),
        max_timeout_ms: milliseconds(provider.max_timeout.min(MAX_TIMEOUT)),
        software_identity: String::new(),
        languages,
    }
}

/// The policy in force at the broker, by its digest; empty without a broker or while it does not answer.
async fn policy(context: &Context<'_>) -> String {
    let Some(broker) = context.app.launcher.broker() else { return String::new() };
    let Ok(link) = broker.connection().await else { return String::new() };
    match link.prepare(None, &[], false).await {
        Ok(prepared) => policy_name(&prepared.policy_digest),
        Err(_) => String::new(),
    }
}

/// A digest as records and descriptions name it.
pub(super) fn policy_name(digest: &str) -> String {
    if digest.is_empty() { String::new() } else { format!("policy:sha256:{digest}") }
}

fn milliseconds(duration: Duration) -> u32 {
    u32::try_from(millis(duration)).unwrap_or(u32::MAX)
}
