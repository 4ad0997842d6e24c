//! The search itself: all rules walk one path together, shortest paths first; where a path may end, methods and queries
//! are gone through.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::rc::Rc;

use super::alphabet::Alphabet;
use super::path::{Canonical, PathMachine, Readings, Symbol};
use super::{Answer, Rule, TooLarge, Witness, query};
use crate::limits::{AUTOMATA_STATES_MAX, TARGET_MAX_BYTES};
use crate::route::compare::Reading;
use crate::route::method::{Asked, Methods};
use crate::route::query::QueryPattern;

/// Methods that are tried, those that change something first: of equally short witnesses they say most. The last one
/// stands for every method that nobody names.
const METHODS: [&str; 8] = ["POST", "PUT", "PATCH", "DELETE", "GET", "HEAD", "OPTIONS", "OTHER"];

/// The request with the shortest target that rule `anchor` matches and for which `wanted` holds. `wanted` gets one flag
/// for each rule: whether it matches the request.
pub(crate) fn search(rules: &[Rule<'_>], anchor: usize, wanted: impl FnMut(&[bool]) -> bool) -> Answer {
    let mut search = Search::new(rules, anchor, wanted);
    match search.run() {
        Err(TooLarge) => Answer::Undecided,
        Ok(()) => match search.best.take() {
            Some(witness) if search.agrees(&witness) => Answer::Witness(witness),
            // A fault of this module; never a wrong answer.
            Some(_) => Answer::Undecided,
            None => Answer::None,
        },
    }
}

struct Search<'r, 'p, W> {
    rules: &'r [Rule<'p>],
    anchor: usize,
    wanted: W,
    machines: Vec<PathMachine<'p>>,
    symbols: Vec<Symbol>,
    methods: Vec<&'r str>,
    /// Sets of rules that a path was found for already; the first one was the shortest.
    tried: HashSet<Vec<usize>>,
    outcomes: HashMap<Vec<usize>, Rc<Outcomes>>,
    best: Option<Witness>,
}

/// Sets of matched query patterns, each with a shortest query.
type Outcomes = Vec<(Vec<bool>, String)>;

/// Where the walk stands: what the path is so far, and the rules that it can still match, by index.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Together {
    path: Canonical,
    live: Vec<(usize, Readings)>,
}

struct Step {
    before: Option<usize>,
    symbol: Symbol,
    state: Together,
}

impl<'r, 'p, W: FnMut(&[bool]) -> bool> Search<'r, 'p, W> {
    fn new(rules: &'r [Rule<'p>], anchor: usize, wanted: W) -> Self {
        let machines: Vec<_> = rules.iter().map(|rule| PathMachine::new(rule.line, rule.reading)).collect();
        let mut alphabet = Alphabet::new();
        Canonical::refine(&mut alphabet);
        for machine in &machines {
            machine.refine(&mut alphabet);
        }
        let mut methods: Vec<&str> = METHODS.to_vec();
        for name in rules.iter().flat_map(|rule| rule.line.methods.others()) {
            if !methods.contains(&name) {
                methods.push(name);
            }
        }
        Self {
            rules,
            anchor,
            wanted,
            machines,
            symbols: Canonical::symbols(&alphabet),
            methods,
            tried: HashSet::new(),
            outcomes: HashMap::new(),
            best: None,
        }
    }

    fn run(&mut self) -> Result<(), TooLarge> {
        let live = self.machines.iter().map(PathMachine::start).enumerate().collect();
        let start = Together { path: Canonical::START, live };
        let mut nodes = vec![Step { before: None, symbol: Symbol::Separator, state: start }];
        let mut closed: HashSet<Together> = HashSet::new();
        let mut open = BinaryHeap::from([(Reverse(1), Reverse(0))]);
        while let Some((Reverse(length), Reverse(at))) = open.pop() {
            if length > TARGET_MAX_BYTES || self.best.as_ref().is_some_and(|best| best.target.len() <= length)
            {
                return Ok(());
            }
            let Some(state) = nodes.get(at).map(|node| node.state.clone()) else { continue };
            if !closed.insert(state.clone()) {
                continue;
            }
            if closed.len() > AUTOMATA_STATES_MAX {
                return Err(TooLarge);
            }
            if state.path.is_whole_piece() {
                self.end(&state, || written(&nodes, at))?;
            }
            for symbol in &self.symbols {
                let Some(next) = self.step(&state, *symbol) else { continue };
                if !closed.contains(&next) {
                    open.push((Reverse(length + symbol.cost()), Reverse(nodes.len())));
                    nodes.push(Step { before: Some(at), symbol: *symbol, state: next });
                }
            }
        }
        Ok(())
    }

    /// `None` where the anchor cannot match any more.
    fn step(&self, state: &Together, symbol: Symbol) -> Option<Together> {
        let path = state.path.step(symbol)?;
        let mut live = Vec::with_capacity(state.live.len());
        for (index, readings) in &state.live {
            match self.machines.get(*index)?.step(readings, symbol) {
                Some(next) => live.push((*index, next)),
                None if *index == self.anchor => return None,
                None => {}
            }
        }
        Some(Together { path, live })
    }

    /// Looks for a method and a query where a path may end.
    fn end(&mut self, state: &Together, path: impl Fn() -> String) -> Result<(), TooLarge> {
        let matched = state.live.iter().filter(|(index, readings)| {
            self.machines.get(*index).is_some_and(|machine| machine.accepts(readings))
        });
        let matched: Vec<usize> = matched.map(|(index, _)| *index).collect();
        if !matched.contains(&self.anchor) || !self.tried.insert(matched.clone()) {
            return Ok(());
        }
        let mut known = HashSet::new();
        for method in self.methods.clone() {
            for websocket in [false, true] {
                let hit = |index: &&usize| {
                    self.rules.get(**index).is_some_and(|rule| rule.takes(method, websocket))
                };
                let hit: Vec<usize> = matched.iter().filter(hit).copied().collect();
                if hit.contains(&self.anchor) && known.insert(hit.clone()) {
                    self.queries(&hit, method, websocket, &path)?;
                }
            }
        }
        Ok(())
    }

    fn queries(
        &mut self,
        matched: &[usize],
        method: &str,
        websocket: bool,
        path: &impl Fn() -> String,
    ) -> Result<(), TooLarge> {
        let patterns = matched.iter().filter_map(|index| self.rules.get(*index));
        let mut distinct: Vec<(&QueryPattern, Reading)> = Vec::new();
        let mut pattern_of = Vec::new();
        for rule in patterns {
            let pattern = (&rule.line.query, rule.reading);
            let at = distinct.iter().position(|known| *known == pattern);
            pattern_of.push(at.unwrap_or(distinct.len()));
            if at.is_none() {
                distinct.push(pattern);
            }
        }
        let outcomes = match self.outcomes.get(matched) {
            Some(known) => Rc::clone(known),
            None => {
                let found = Rc::new(query::outcomes(&distinct)?);
                self.outcomes.insert(matched.to_vec(), Rc::clone(&found));
                found
            }
        };
        for (of_patterns, query) in outcomes.iter() {
            let mut hits = vec![false; self.rules.len()];
            for (index, pattern) in matched.iter().zip(&pattern_of) {
                if let Some(hit) = hits.get_mut(*index) {
                    *hit = of_patterns.get(*pattern).copied().unwrap_or(false);
                }
            }
            if hits.get(self.anchor) != Some(&true) || !(self.wanted)(&hits) {
                continue;
            }
            let path = path();
            let target = if query.is_empty() { path } else { format!("{path}?{query}") };
            if target.len() <= TARGET_MAX_BYTES
                && self.best.as_ref().is_none_or(|best| target.len() < best.target.len())
            {
                self.best = Some(Witness { method: method.to_owned(), target, websocket });
            }
        }
        Ok(())
    }

    /// Whether the plain matcher says of the witness what was found by walking.
    fn agrees(&mut self, witness: &Witness) -> bool {
        let hits: Vec<bool> = self.rules.iter().map(|rule| rule.matches(witness)).collect();
        hits.get(self.anchor) == Some(&true) && (self.wanted)(&hits)
    }
}

fn written(nodes: &[Step], mut at: usize) -> String {
    let mut symbols = Vec::new();
    while let Some(Step { before: Some(before), symbol, .. }) = nodes.get(at) {
        symbols.push(*symbol);
        at = *before;
    }
    let mut out = String::from("/");
    symbols.into_iter().rev().for_each(|symbol| symbol.write(&mut out));
    out
}

impl Rule<'_> {
    fn takes(&self, method: &str, websocket: bool) -> bool {
        let asked = Asked::new(method);
        let methods: &Methods = &self.line.methods;
        match self.reading {
            Reading::Allow => self.websocket == websocket && methods.allow(asked),
            Reading::Deny => methods.deny(asked),
        }
    }
}
