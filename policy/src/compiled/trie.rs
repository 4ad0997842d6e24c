//! Routes as a tree of path segments. One walk visits every route whose path matches, the most exact ones first.

use std::ops::ControlFlow;

use smallvec::SmallVec;

use super::Route;
use super::table::LiteralTable;
use crate::limits::ROUTE_SEGMENTS_MAX;
use crate::route::compare::{self, Reading};
use crate::route::pattern::Pattern;
use crate::route::{PathEnd, RouteLine};
use crate::target::PathView;

/// Whether letter case of literal segments, and a slash at the end, matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Letters {
    /// For allow rules.
    Exact,
    /// For deny rules: many servers ignore case and a slash at the end, and a deny must not be dodged by them.
    Folded,
}

impl Letters {
    const fn reading(self) -> Reading {
        match self {
            Self::Exact => Reading::Allow,
            Self::Folded => Reading::Deny,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Trie {
    letters: Letters,
    nodes: Vec<Node>,
    pub(crate) routes: Vec<Route>,
}

#[derive(Debug, Default)]
struct Node {
    literals: LiteralTable,
    /// Types and expressions, in the order of the rules.
    patterns: Vec<(Pattern, u32)>,
    any: Option<u32>,
    /// Routes that end here, as indices into `routes`, in the order of the rules.
    ends: Vec<u32>,
    ends_with_slash: Vec<u32>,
    rests: Vec<u32>,
}

impl Trie {
    pub(crate) fn new(letters: Letters) -> Self {
        Self { letters, nodes: vec![Node::default()], routes: Vec::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.routes.is_empty()
    }

    pub(crate) fn add(&mut self, route: Route) {
        let index = narrow(self.routes.len());
        let letters = self.letters;
        for path in route.line.paths(letters.reading()) {
            let at = path.segments.iter().fold(0, |at, segment| self.child(at, segment));
            let Some(node) = self.nodes.get_mut(wide(at)) else { continue };
            match (path.end, letters) {
                (PathEnd::Rest, _) => node.rests.push(index),
                (PathEnd::Slash, Letters::Exact) => node.ends_with_slash.push(index),
                _ => node.ends.push(index),
            }
        }
        self.routes.push(route);
    }

    /// The node that `segment` leads to from node `at`, made where it is not there.
    fn child(&mut self, at: u32, segment: &Pattern) -> u32 {
        let next = narrow(self.nodes.len());
        let letters = self.letters;
        let Some(node) = self.nodes.get_mut(wide(at)) else { return at };
        let found = match segment {
            Pattern::Literal(text) => {
                // A node of its own for a literal: only a node that no `{a|b}` leads to may be shared.
                let targets = node.literals.entry(folded(text, letters));
                match targets
                    .iter()
                    .copied()
                    .find(|target| !node.patterns.iter().any(|(_, child)| child == target))
                {
                    Some(target) => target,
                    None => {
                        targets.push(next);
                        next
                    }
                }
            }
            Pattern::OneOf(texts) => match node.patterns.iter().find(|(pattern, _)| pattern == segment) {
                Some((_, child)) => *child,
                None => {
                    // Found through the literals; the entry in `patterns` only marks the node as taken.
                    node.patterns.push((segment.clone(), next));
                    for text in texts.iter() {
                        let targets = node.literals.entry(folded(text, letters));
                        if !targets.contains(&next) {
                            targets.push(next);
                        }
                    }
                    next
                }
            },
            Pattern::Any | Pattern::AnyOrEmpty => *node.any.get_or_insert(next),
            Pattern::Kind(_) | Pattern::Regex(_) => {
                match node.patterns.iter().find(|(pattern, _)| pattern == segment) {
                    Some((_, child)) => *child,
                    None => {
                        node.patterns.push((segment.clone(), next));
                        next
                    }
                }
            }
        };
        if found == next {
            self.nodes.push(Node::default());
        }
        found
    }

    /// Visits the routes whose path matches until one is taken.
    pub(crate) fn find<'t>(
        &'t self,
        path: PathView<'_>,
        mut take: impl FnMut(&'t Route) -> bool,
    ) -> Option<&'t Route> {
        let mut visit = |index: u32| match self.routes.get(wide(index)) {
            Some(route) if take(route) => ControlFlow::Break(route),
            _ => ControlFlow::Continue(()),
        };
        match self.walk(0, path, 0, &mut visit) {
            ControlFlow::Break(route) => Some(route),
            ControlFlow::Continue(()) => None,
        }
    }

    /// The recursion is as deep as the longest route: at most `ROUTE_SEGMENTS_MAX`.
    fn walk<'t>(
        &'t self,
        at: u32,
        path: PathView<'_>,
        depth: usize,
        visit: &mut impl FnMut(u32) -> ControlFlow<&'t Route>,
    ) -> ControlFlow<&'t Route> {
        let Some(node) = self.nodes.get(wide(at)) else { return ControlFlow::Continue(()) };
        match path.segment(depth) {
            None => {
                let slash = path.trailing_slash && self.letters == Letters::Exact;
                let ends = if slash { &node.ends_with_slash } else { &node.ends };
                ends.iter().try_for_each(|index| visit(*index))?;
            }
            Some(segment) => {
                for child in self.literal_children(node, segment) {
                    self.walk(child, path, depth + 1, visit)?;
                }
                for (pattern, child) in &node.patterns {
                    if pattern.literals().is_none() && pattern.matches(segment) {
                        self.walk(*child, path, depth + 1, visit)?;
                    }
                }
                // Only the second reading of `a%2F%2Fb` has an empty segment, which is no `{x}`.
                if let Some(child) = node.any.filter(|_| !segment.is_empty()) {
                    self.walk(child, path, depth + 1, visit)?;
                }
            }
        }
        node.rests.iter().try_for_each(|index| visit(*index))
    }

    fn literal_children(&self, node: &Node, segment: &[u8]) -> SmallVec<[u32; 4]> {
        match self.letters {
            Letters::Exact => SmallVec::from_slice(node.literals.get(segment)),
            Letters::Folded => {
                let lower: SmallVec<[u8; 128]> = segment.iter().map(u8::to_ascii_lowercase).collect();
                SmallVec::from_slice(node.literals.get(&lower))
            }
        }
    }
}

/// Which routes a search through the tree is after.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Relation {
    /// Routes that cover the given one.
    Covers,
    /// Routes that have a request in common with the given one.
    Meets,
}

impl Trie {
    /// Visits every route that may stand in the relation to `line` as an allow line; `compare` has the last word on each.
    /// Reads the tree instead of comparing every pair, so that checking a policy stays near linear.
    pub(crate) fn related<'t>(
        &'t self,
        line: &RouteLine,
        relation: Relation,
        mut take: impl FnMut(&'t Route) -> bool,
    ) -> Option<&'t Route> {
        let reading = self.letters.reading();
        // Nodes by the segments of `line` that were used up to come there; a deny rule that reads an escaped slash as a border
        // of segments comes to one node in several ways.
        let mut seen = vec![0_u128; self.nodes.len()];
        // A line with several paths ends at several nodes.
        let mut told = vec![false; self.routes.len()];
        let mut open = vec![(0, 0)];
        while let Some((at, used)) = open.pop() {
            let (Some(node), Some(seen)) = (self.nodes.get(wide(at)), seen.get_mut(wide(at))) else {
                continue;
            };
            let before = std::mem::replace(seen, *seen | 1 << used);
            if before == *seen {
                continue;
            }
            let ends = node.ends.iter().chain(&node.ends_with_slash).chain(&node.rests);
            for index in ends.filter(|_| before == 0) {
                let (Some(route), Some(told)) = (self.routes.get(wide(*index)), told.get_mut(wide(*index)))
                else {
                    continue;
                };
                if std::mem::replace(told, true) {
                    continue;
                }
                let holds = match relation {
                    Relation::Covers => compare::covers(&route.line, line, reading),
                    Relation::Meets => compare::meets(&route.line, line, reading),
                };
                if holds && take(route) {
                    return Some(route);
                }
            }
            match line.path.segments.get(used) {
                Some(segment)
                    if (reading, relation) == (Reading::Deny, Relation::Meets)
                        && segment.may_hold_slash() =>
                {
                    node.push_all(|child| open.extend([(child, used), (child, used + 1)]));
                }
                Some(segment) => {
                    node.push_related(segment, relation, self.letters, |child| open.push((child, used + 1)));
                }
                None if relation == Relation::Meets && line.path.end == PathEnd::Rest => {
                    node.push_all(|child| open.push((child, used)));
                }
                None => {}
            }
        }
        None
    }
}

/// One bit for each number of segments that may be used up.
const _: () = assert!(ROUTE_SEGMENTS_MAX < 128);

impl Node {
    fn push_all(&self, mut push: impl FnMut(u32)) {
        self.literals.iter().flat_map(|(_, targets)| targets).for_each(|child| push(*child));
        self.patterns.iter().for_each(|(_, child)| push(*child));
        self.any.into_iter().for_each(push);
    }

    fn push_related(
        &self,
        segment: &Pattern,
        relation: Relation,
        letters: Letters,
        mut push: impl FnMut(u32),
    ) {
        let reading = letters.reading();
        match (segment, relation) {
            (Pattern::Literal(text), _) => {
                self.literals.get(&folded(text, letters)).iter().for_each(|child| push(*child));
            }
            // One node for each text: no single literal covers several texts.
            (_, Relation::Covers) => {}
            (_, Relation::Meets) => {
                let may = |text: &[u8]| letters == Letters::Folded || segment.matches(text);
                let children =
                    self.literals.iter().filter(|(text, _)| may(text)).flat_map(|(_, targets)| targets);
                children.for_each(|child| push(*child));
            }
        }
        for (pattern, child) in &self.patterns {
            let related = match relation {
                Relation::Covers => compare::pattern_covers(pattern, segment, reading),
                Relation::Meets => compare::pattern_meets(pattern, segment, reading),
            };
            if related {
                push(*child);
            }
        }
        self.any.into_iter().for_each(push);
    }
}

fn folded(text: &[u8], letters: Letters) -> Box<[u8]> {
    match letters {
        Letters::Exact => Box::from(text),
        Letters::Folded => text.to_ascii_lowercase().into_boxed_slice(),
    }
}

fn narrow(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

fn wide(index: u32) -> usize {
    usize::try_from(index).unwrap_or(usize::MAX)
}
