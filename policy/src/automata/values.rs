//! Values of one query parameter, parted by which patterns match them: one shortest value for each part.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};

use super::TooLarge;
use super::alphabet::{Alphabet, Utf8, cost, is_never};
use super::machine::{Machine, State};
use crate::limits::AUTOMATA_STATES_MAX;
use crate::route::compare::Reading;
use crate::route::pattern::{Pattern, escape_into};

/// A raw `+`: a space to form decoders, a plus to others.
const PLUS: Option<u8> = None;

/// Where one pattern stands: as form decoders read the value, and as others do.
type Readings = (Option<State>, Option<State>);

/// One raw value for each combination of patterns that some value matches; the empty one is among them.
///
/// # Errors
/// When the patterns are too large together.
pub(super) fn parts(patterns: &[(&Pattern, Reading)]) -> Result<Vec<String>, TooLarge> {
    let walk = Walk::new(patterns);
    let mut parts = Vec::new();
    let mut known = HashSet::new();
    let mut closed = HashSet::new();
    let mut nodes = vec![Step { before: None, symbol: PLUS, state: walk.start() }];
    let mut open = BinaryHeap::from([(Reverse(0), Reverse(0))]);
    while let Some((Reverse(length), Reverse(at))) = open.pop() {
        let Some(state) = nodes.get(at).map(|node| node.state.clone()) else { continue };
        if !closed.insert(state.clone()) {
            continue;
        }
        if closed.len() > AUTOMATA_STATES_MAX {
            return Err(TooLarge);
        }
        if state.utf8 == Utf8::Whole && known.insert(walk.hits(&state)) {
            parts.push(written(&nodes, at));
        }
        for symbol in &walk.symbols {
            let Some(next) = walk.step(&state, *symbol) else { continue };
            if !closed.contains(&next) {
                open.push((Reverse(length + symbol.map_or(1, cost)), Reverse(nodes.len())));
                nodes.push(Step { before: Some(at), symbol: *symbol, state: next });
            }
        }
    }
    Ok(parts)
}

struct Step {
    before: Option<usize>,
    symbol: Option<u8>,
    state: Together,
}

fn written(nodes: &[Step], mut at: usize) -> String {
    let mut symbols = Vec::new();
    while let Some(Step { before: Some(before), symbol, .. }) = nodes.get(at) {
        symbols.push(*symbol);
        at = *before;
    }
    let mut out = String::new();
    for symbol in symbols.into_iter().rev() {
        match symbol {
            Some(byte) => escape_into(&[byte], &mut out),
            PLUS => out.push('+'),
        }
    }
    out
}

/// Where all patterns stand.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Together {
    utf8: Utf8,
    readings: Vec<Readings>,
}

struct Walk<'p> {
    machines: Vec<(Machine<'p>, Reading, bool)>,
    symbols: Vec<Option<u8>>,
}

impl<'p> Walk<'p> {
    fn new(patterns: &[(&'p Pattern, Reading)]) -> Self {
        let machines = patterns.iter().map(|(pattern, reading)| {
            (Machine::new(pattern, *reading), *reading, matches!(pattern, Pattern::Regex(_)))
        });
        let machines: Vec<_> = machines.collect();
        let mut alphabet = Alphabet::new();
        Utf8::refine(&mut alphabet);
        alphabet.refine(is_never);
        for (machine, ..) in &machines {
            machine.refine(&mut alphabet);
        }
        let bytes = alphabet.representatives().into_iter().filter(|byte| !is_never(*byte));
        Self { machines, symbols: bytes.map(Some).chain([PLUS]).collect() }
    }

    fn start(&self) -> Together {
        let readings =
            self.machines.iter().map(|(machine, ..)| (Some(machine.start()), Some(machine.start())));
        Together { utf8: Utf8::Whole, readings: readings.collect() }
    }

    fn step(&self, state: &Together, symbol: Option<u8>) -> Option<Together> {
        let (form, plain) = match symbol {
            Some(byte) => (byte, byte),
            PLUS => (b' ', b'+'),
        };
        let readings = self.machines.iter().zip(&state.readings).map(|((machine, ..), readings)| {
            let next = |state: Option<State>, byte: u8| state.and_then(|state| machine.step(state, byte));
            (next(readings.0, form), next(readings.1, plain))
        });
        Some(Together { utf8: state.utf8.step(form)?, readings: readings.collect() })
    }

    /// As `Parameter::allows` and `Parameter::denies` see the value.
    fn hits(&self, state: &Together) -> Vec<bool> {
        let hits = self.machines.iter().zip(&state.readings).map(|((machine, reading, regex), readings)| {
            let accepts = |state: Option<State>| state.is_some_and(|state| machine.accepts(state));
            match reading {
                Reading::Allow => accepts(readings.0) && (!regex || accepts(readings.1)),
                Reading::Deny => accepts(readings.0) || accepts(readings.1),
            }
        });
        hits.collect()
    }
}
