//! What several commands do first: read the configuration, start providers while there is one thread, make a launcher.

use std::sync::Arc;

use super::say;
use crate::admission::Admission;
use crate::config::{Config, ConfigError, Environment, Flags, load};
use crate::control_client::Broker;
use crate::launch::Launcher;
use crate::provider::{CreateError, Kind, Provider, Service, start};

/// The configuration as this command sees it.
pub(super) fn configuration(flags: &Flags) -> Result<Config, ConfigError> {
    load(flags, &Environment::read())
}

/// A provider that did not start.
#[derive(Debug)]
pub(super) struct NotStarted {
    pub(super) kind: Kind,
    pub(super) error: CreateError,
}

/// Starts providers in order until `enough` of them have started. Must be called before any thread exists.
pub(super) fn providers(
    kinds: &[Kind],
    enough: usize,
    config: &Config,
    mut service: impl FnMut(Kind) -> Service,
) -> (Vec<Arc<dyn Provider>>, Vec<NotStarted>) {
    let mut started: Vec<Arc<dyn Provider>> = Vec::new();
    let mut failed = Vec::new();
    for kind in kinds {
        if started.len() == enough {
            break;
        }
        match start(*kind, &config.run_limits(), &config.engines(), service(*kind)) {
            Ok(provider) => started.push(provider),
            Err(error) => failed.push(NotStarted { kind: *kind, error }),
        }
    }
    (started, failed)
}

/// The kinds that a command may try by itself: the configured ones, else all.
pub(super) fn kinds(config: &Config) -> Vec<Kind> {
    if config.providers.value.is_empty() { Kind::ALL.to_vec() } else { config.providers.value.clone() }
}

pub(super) fn launcher(config: &Config, providers: Vec<Arc<dyn Provider>>) -> Launcher {
    let broker = config.broker.value.clone().map(Broker::new);
    Launcher::new(providers, broker, Admission::new(config.admission()), config.min_isolation.value)
}

pub(super) fn say_not_started(failed: &[NotStarted]) {
    for NotStarted { kind, error } in failed {
        say(&format!("sandboxd: provider `{}` does not start: {}", kind.name(), crate::causes::chain(error)));
    }
}
