//! `sandboxd doctor`: what works here, what does not, and what to do about it.

use super::{Exit, Failure, put, start};
use crate::callers::Callers;
use crate::config::{Config, Flags};
use crate::control_client::Broker;
use crate::provider::{Kind, Service};

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    flags: Flags,
}

/// How much a finding matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Weight {
    Good,
    /// Something is not there that some runs need.
    Note,
    /// Runs do not work.
    Bad,
}

struct Finding {
    weight: Weight,
    what: String,
    help: Option<String>,
}

impl Finding {
    fn good(what: String) -> Self {
        Self { weight: Weight::Good, what, help: None }
    }
    fn note(what: String, help: &str) -> Self {
        Self { weight: Weight::Note, what, help: Some(help.to_owned()) }
    }
    fn bad(what: String, help: &str) -> Self {
        Self { weight: Weight::Bad, what, help: Some(help.to_owned()) }
    }
}

pub(super) fn main(arguments: &Arguments) -> Result<Exit, Failure> {
    super::log("off");
    let config = start::configuration(&arguments.flags)?;
    let mut findings = providers(&config)?;
    findings.push(callers(&config));
    findings.push(broker(&config)?);
    for finding in &findings {
        let word = match finding.weight {
            Weight::Good => "ok  ",
            Weight::Note => "note",
            Weight::Bad => "BAD ",
        };
        put(&format!("{word}  {}\n", finding.what));
        if let Some(help) = &finding.help {
            put(&format!("      {help}\n"));
        }
    }
    let bad = findings.iter().any(|finding| finding.weight == Weight::Bad);
    Ok(if bad { Exit::Failure } else { Exit::Success })
}

/// Starts each provider: its preflight and smoke test are the check. A configured one that fails is bad; of those that
/// are merely tried, one that works is enough.
fn providers(config: &Config) -> Result<Vec<Finding>, Failure> {
    let configured = !config.providers.value.is_empty();
    let (candidates, mut failed) =
        start::providers(&start::kinds(config), usize::MAX, config, |_| Service::ManyRuns);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut started = Vec::new();
    for provider in candidates {
        match (runtime.block_on(provider.smoke_test()), Kind::from_name(provider.describe().name)) {
            (Err(error), Some(kind)) => failed.push(start::NotStarted { kind, error }),
            _ => started.push(provider),
        }
    }
    let mut findings = Vec::new();
    if !configured {
        findings.push(Finding::note(
            "no provider is configured: `serve` runs nothing".into(),
            "set `providers = [\"wasm\", \"native\"]` under [sandboxd], or SANDBOX_PROVIDER",
        ));
    }
    for provider in &started {
        let description = provider.describe();
        findings.push(Finding::good(format!(
            "provider {} runs at tier {} (languages: {})",
            description.name,
            description.tier,
            description.languages.join(", ")
        )));
        if let Some(why) = description.weaker {
            let what = format!("provider {} is weaker here than it can be: {why}", description.name);
            findings.push(Finding::note(what, "runs that need the stronger tier are refused until then"));
        }
    }
    for failure in &failed {
        let what = format!("provider {}: {}", failure.kind.name(), crate::causes::chain(&failure.error));
        let bad = configured || started.is_empty();
        let make = if bad { Finding::bad } else { Finding::note };
        findings.push(make(what, "runs that need this provider are refused until then"));
    }
    let reached = started.iter().map(|provider| provider.describe().tier).max();
    if let Some(floor) = config.min_isolation.value
        && reached.is_none_or(|tier| tier < floor)
    {
        let what = format!("no provider reaches the floor `{floor}`");
        findings.push(Finding::bad(what, "lower `min_isolation` or configure a stronger provider"));
    }
    Ok(findings)
}

fn callers(config: &Config) -> Finding {
    let help = "`sandboxd callers create NAME` makes one; `serve` needs it, `run` does not";
    let Some(file) = config.callers.value.as_deref() else {
        return Finding::note("no callers file".into(), help);
    };
    match Callers::load(file) {
        Ok(callers) => Finding::good(format!("{} callers in {}", callers.entries().len(), file.display())),
        Err(error) if !file.exists() => Finding::note(crate::causes::chain(&error), help),
        Err(error) => Finding::bad(crate::causes::chain(&error), "`serve` does not start with this file"),
    }
}

fn broker(config: &Config) -> Result<Finding, Failure> {
    let Some(socket) = config.broker.value.clone() else {
        let help = "runs work, but without any network; start `freeboard serve` and set `broker`";
        return Ok(Finding::note("no broker".into(), help));
    };
    let shown = socket.display().to_string();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let asked =
        runtime.block_on(async { Broker::new(socket).connection().await?.prepare(None, &[], false).await });
    Ok(match asked {
        Ok(prepared) => Finding::good(format!(
            "broker at {shown}, policy {}",
            prepared.policy_digest.get(..12).unwrap_or("without a digest")
        )),
        Err(error) => Finding::bad(
            crate::causes::chain(&error),
            "every run is refused while the broker does not answer",
        ),
    })
}
