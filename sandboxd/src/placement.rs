//! Which provider takes a run: the cheapest that can do it and meets every floor. Pure.

use std::fmt;

use freeboard_policy::Tier;

use crate::job::{Less, Payload};
use crate::limits::MAX_TIMEOUT;
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
    /// Limits that must hold.
    pub less: Less,
}

/// A limit that a run asks for, above what it may have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Excess {
    pub what: &'static str,
    pub asked: u64,
    pub most: u64,
}

/// Why no provider takes a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unplaced {
    /// No provider is configured: nothing runs here.
    Disabled,
    /// None can do this.
    Unsupported { what: String },
    /// The run asks for a limit above those of every provider that could take it.
    TooMuch(Excess),
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
            Self::TooMuch(Excess { what, asked, most }) => {
                write!(f, "`{what}` asks for {asked}; a run may have {most} here")
            }
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
    let roomy = |provider: &Description| excess(provider, need.less).is_none();
    let fits = able().filter(|(_, provider)| strong(provider.tier) && roomy(provider));
    if let Some((index, _)) = fits.min_by_key(|(index, provider)| (provider.tier, *index)) {
        return Ok(index);
    }
    // What may be asked for at most is the most that any of them gives.
    let strong_enough = able().filter(|(_, provider)| strong(provider.tier));
    let excesses = strong_enough.filter_map(|(_, provider)| excess(provider, need.less));
    if let Some(excess) = excesses.max_by_key(|excess| excess.most) {
        return Err(Unplaced::TooMuch(excess));
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
    let memory = need.less.memory_mib.is_none() || provider.lowers_memory;
    payload && memory && (!need.grants || provider.supports_grants)
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
    let memory = if need.less.memory_mib.is_some() { " with a memory limit of the run" } else { "" };
    let grants = if need.grants { " with grants" } else { "" };
    format!("{payload}{memory}{grants}")
}

/// The first limit that is above what this provider gives.
fn excess(provider: &Description, less: Less) -> Option<Excess> {
    let milliseconds = |time: std::time::Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let asked = [
        ("limits.timeMs", less.time.map(milliseconds), milliseconds(provider.max_timeout.min(MAX_TIMEOUT))),
        ("limits.memoryMib", less.memory_mib.map(u64::from), provider.memory_mib.into()),
        // Where there are no processes there are not too many.
        ("limits.pids", less.pids.map(u64::from).filter(|_| provider.pids > 0), provider.pids.into()),
    ];
    asked.into_iter().find_map(|(what, asked, most)| {
        let asked = asked.filter(|asked| *asked > most)?;
        Some(Excess { what, asked, most })
    })
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
            lowers_memory: project,
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
        Need { floor, payload, files: false, grants: false, less: Less::default() }
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
    fn a_limit_above_those_of_every_provider_is_refused_and_one_within_finds_its_provider() {
        let mut providers = both();
        providers[0].max_timeout = Duration::from_secs(90);
        providers[0].memory_mib = 256;
        let payload = javascript();
        let less = |less| place(&providers, &Need { less, ..need(&payload, None) });
        let seconds = |seconds| Less { time: Some(Duration::from_secs(seconds)), ..Less::default() };
        assert_eq!((less(seconds(30)), less(seconds(31)), less(seconds(90))), (Ok(1), Ok(0), Ok(0)));
        let too_long = Excess { what: "limits.timeMs", asked: 91_000, most: 90_000 };
        assert_eq!(less(seconds(91)), Err(Unplaced::TooMuch(too_long)));
        assert_eq!(less(Less { memory_mib: Some(64), ..Less::default() }), Ok(0));
        let refused = less(Less { memory_mib: Some(257), ..Less::default() }).unwrap_err().to_string();
        assert_eq!(refused, "`limits.memoryMib` asks for 257; a run may have 256 here");
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
