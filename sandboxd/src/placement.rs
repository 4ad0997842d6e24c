//! Which provider takes a run: the cheapest that can do it and meets every floor. Pure.

use std::fmt;

use freeboard_policy::Tier;

use crate::job::Payload;
use crate::provider::Description;

/// What a run needs of a provider.
#[derive(Debug, Clone, Copy)]
pub struct Need<'a> {
    /// Strongest of all floors: request, operator, grants.
    pub floor: Option<Tier>,
    pub payload: &'a Payload,
    /// The run brings files or wants artifacts back.
    pub files: bool,
    pub grants: bool,
}

/// Why no provider takes a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unplaced {
    /// No provider is configured: nothing runs here.
    Disabled,
    /// None can do this.
    Unsupported { what: String },
    /// Those that could are too weak.
    TooWeak {
        needed: Tier,
        best: Tier,
        /// Why a provider of a stronger kind is not what it can be, where one is here.
        why: Option<String>,
    },
}

impl fmt::Display for Unplaced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disabled => f.write_str("no provider is configured, so nothing runs here"),
            Self::Unsupported { what } => write!(f, "no provider here runs {what}"),
            Self::TooWeak { needed, best, why } => {
                write!(f, "the run needs tier `{needed}`, the strongest here is `{best}`")?;
                why.as_ref().map_or(Ok(()), |why| write!(f, " ({why})"))
            }
        }
    }
}

/// Picks a provider by its index. `providers` stand in the operator's order; the weakest tier that suffices is the
/// cheapest, and of equals the first.
pub fn place(providers: &[Description], need: &Need<'_>) -> Result<usize, Unplaced> {
    if providers.is_empty() {
        return Err(Unplaced::Disabled);
    }
    let able = || providers.iter().enumerate().filter(|(_, provider)| can(provider, need));
    let strong = |tier: Tier| need.floor.is_none_or(|floor| tier >= floor);
    let fits = able().filter(|(_, provider)| strong(provider.tier));
    if let Some((index, _)) = fits.min_by_key(|(index, provider)| (provider.tier, *index)) {
        return Ok(index);
    }
    match (able().map(|(_, provider)| provider.tier).max(), need.floor) {
        (Some(best), Some(needed)) => Err(Unplaced::TooWeak { needed, best, why: why(providers) }),
        // A floor above everything here is the more useful answer also where the payload is the other obstacle.
        (None, Some(needed)) if !providers.iter().any(|provider| strong(provider.tier)) => {
            let best = providers.iter().map(|provider| provider.tier).max().unwrap_or(Tier::Process);
            Err(Unplaced::TooWeak { needed, best, why: why(providers) })
        }
        _ => Err(Unplaced::Unsupported { what: what(need) }),
    }
}

/// What the first that is weaker than its kind says of it.
fn why(providers: &[Description]) -> Option<String> {
    providers.iter().find_map(|provider| Some(format!("{}: {}", provider.name, provider.weaker.as_ref()?)))
}

fn can(provider: &Description, need: &Need<'_>) -> bool {
    let payload = match need.payload {
        Payload::JavaScript { .. } => {
            provider.supports_javascript && (!need.files || provider.supports_project)
        }
        Payload::Steps { .. } | Payload::Command { .. } => provider.supports_project,
        Payload::Session => provider.supports_sessions,
        // A cell goes where its session is.
        Payload::Cell { .. } => false,
    };
    payload && (!need.grants || provider.supports_grants)
}

fn what(need: &Need<'_>) -> String {
    let payload = match need.payload {
        Payload::JavaScript { .. } if need.files => "JavaScript with files",
        Payload::JavaScript { .. } => "JavaScript",
        Payload::Steps { .. } => "projects",
        Payload::Command { .. } => "commands",
        Payload::Session => "sessions",
        Payload::Cell { .. } => "cells outside a session",
    };
    if need.grants { format!("{payload} with grants") } else { payload.to_owned() }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn description(name: &'static str, tier: Tier, javascript: bool, project: bool) -> Description {
        Description {
            name,
            tier,
            weaker: None,
            environment: String::new(),
            supports_javascript: javascript,
            supports_project: project,
            supports_grants: true,
            supports_sessions: false,
            languages: Vec::new(),
            default_timeout: Duration::from_secs(5),
            max_timeout: Duration::from_secs(30),
            memory_mib: 0,
            cpus: 0.0,
            pids: 0,
            disk_mib: 0,
        }
    }

    fn both() -> Vec<Description> {
        vec![
            description("native", Tier::Container, true, true),
            description("wasm", Tier::Process, true, false),
        ]
    }

    fn javascript() -> Payload {
        Payload::JavaScript { code: "1".into() }
    }

    fn steps() -> Payload {
        Payload::Steps { steps: vec!["true".into()] }
    }

    fn need(payload: &Payload, floor: Option<Tier>) -> Need<'_> {
        Need { floor, payload, files: false, grants: false }
    }

    #[test]
    fn takes_the_cheapest_that_meets_the_floor() {
        let table = [
            (javascript(), None, 1),
            (javascript(), Some(Tier::Process), 1),
            (javascript(), Some(Tier::Container), 0),
            (steps(), None, 0),
            (steps(), Some(Tier::Container), 0),
        ];
        for (payload, floor, index) in table {
            assert_eq!(place(&both(), &need(&payload, floor)), Ok(index), "{payload:?} {floor:?}");
        }
        let payload = javascript();
        assert_eq!(place(&both(), &Need { files: true, ..need(&payload, None) }), Ok(0));
    }

    #[test]
    fn refuses_what_nothing_here_is_strong_enough_for() {
        for payload in [javascript(), steps()] {
            let refusal = place(&both(), &need(&payload, Some(Tier::Vm)));
            assert_eq!(
                refusal,
                Err(Unplaced::TooWeak { needed: Tier::Vm, best: Tier::Container, why: None })
            );
        }
        let wasm = &both()[1..];
        let refusal = place(wasm, &need(&steps(), Some(Tier::Kernel)));
        assert_eq!(refusal, Err(Unplaced::TooWeak { needed: Tier::Kernel, best: Tier::Process, why: None }));
    }

    #[test]
    fn a_provider_that_is_weaker_than_its_kind_says_why() {
        let mut providers = both();
        providers[0].weaker = Some("there is no KVM".into());
        let refusal = place(&providers, &need(&steps(), Some(Tier::Vm))).unwrap_err().to_string();
        assert!(
            refusal.ends_with("the strongest here is `container` (native: there is no KVM)"),
            "{refusal}"
        );
    }

    #[test]
    fn refuses_what_nothing_here_can_do() {
        assert_eq!(place(&[], &need(&steps(), None)), Err(Unplaced::Disabled));
        let wasm = &both()[1..];
        let refusal = place(wasm, &need(&steps(), None));
        assert_eq!(refusal, Err(Unplaced::Unsupported { what: "projects".into() }));
        let mut mute = both();
        for provider in &mut mute {
            provider.supports_grants = false;
        }
        let payload = javascript();
        let refusal = place(&mute, &Need { grants: true, ..need(&payload, None) });
        assert_eq!(refusal, Err(Unplaced::Unsupported { what: "JavaScript with grants".into() }));
    }
}
