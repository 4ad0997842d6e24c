//! One pattern as a machine that reads a decoded text byte by byte.

use super::alphabet::Alphabet;
use crate::route::compare::Reading;
use crate::route::pattern::Pattern;
use crate::route::regex::Regex;

pub(super) type State = u32;

/// A pattern made ready for walking.
#[derive(Debug)]
pub(super) enum Machine<'p> {
    Texts(Tree),
    Regex(&'p Regex),
    /// Any text but the empty one.
    Any,
    AnyOrEmpty,
}

impl<'p> Machine<'p> {
    pub(super) fn new(pattern: &'p Pattern, reading: Reading) -> Self {
        if let Some(texts) = pattern.literals() {
            return Self::Texts(Tree::new(texts, reading));
        }
        match (pattern, pattern.automaton()) {
            (Pattern::AnyOrEmpty, _) => Self::AnyOrEmpty,
            (_, Some(regex)) => Self::Regex(regex),
            (_, None) => Self::Any,
        }
    }

    pub(super) fn start(&self) -> State {
        match self {
            Self::Regex(regex) => regex.start(),
            Self::Texts(_) | Self::Any | Self::AnyOrEmpty => 0,
        }
    }

    /// `None`: no text that goes on like this matches.
    pub(super) fn step(&self, state: State, byte: u8) -> Option<State> {
        match self {
            Self::Texts(tree) => tree.step(state, byte),
            Self::Regex(regex) => regex.step(state, byte),
            Self::Any => Some(1),
            Self::AnyOrEmpty => Some(0),
        }
    }

    pub(super) fn accepts(&self, state: State) -> bool {
        match self {
            Self::Texts(tree) => tree.nodes.get(index(state)).is_some_and(|node| node.ends),
            Self::Regex(regex) => regex.accepts_at(state),
            Self::Any => state == 1,
            Self::AnyOrEmpty => true,
        }
    }

    /// Splits the classes of bytes that the machine tells apart.
    pub(super) fn refine(&self, alphabet: &mut Alphabet) {
        match self {
            Self::Texts(tree) => {
                let bytes: std::collections::HashSet<u8> =
                    tree.nodes.iter().flat_map(|node| node.next.iter().map(|(byte, _)| *byte)).collect();
                let folded = |byte: u8| if tree.folded { byte.to_ascii_lowercase() } else { byte };
                alphabet.refine(|byte| Some(folded(byte)).filter(|byte| bytes.contains(byte)));
            }
            Self::Regex(regex) => alphabet.refine(|byte| regex.class(byte)),
            Self::Any | Self::AnyOrEmpty => {}
        }
    }
}

/// Texts as a tree of bytes.
#[derive(Debug)]
pub(super) struct Tree {
    nodes: Vec<Node>,
    /// Letter case does not matter.
    folded: bool,
}

#[derive(Debug, Default)]
struct Node {
    next: Vec<(u8, State)>,
    ends: bool,
}

impl Tree {
    fn new(texts: &[Box<[u8]>], reading: Reading) -> Self {
        let folded = reading == Reading::Deny;
        let mut tree = Self { nodes: vec![Node::default()], folded };
        for text in texts {
            let mut at = 0;
            for byte in text.iter().map(|byte| if folded { byte.to_ascii_lowercase() } else { *byte }) {
                at = tree.child(at, byte);
            }
            if let Some(node) = tree.nodes.get_mut(index(at)) {
                node.ends = true;
            }
        }
        tree
    }

    fn child(&mut self, at: State, byte: u8) -> State {
        if let Some(found) = self.step(at, byte) {
            return found;
        }
        // A route line has at most `ROUTE_LINE_MAX_BYTES`, so the number fits.
        let next = State::try_from(self.nodes.len()).unwrap_or(State::MAX);
        self.nodes.push(Node::default());
        if let Some(node) = self.nodes.get_mut(index(at)) {
            node.next.push((byte, next));
        }
        next
    }

    fn step(&self, state: State, byte: u8) -> Option<State> {
        let byte = if self.folded { byte.to_ascii_lowercase() } else { byte };
        let node = self.nodes.get(index(state))?;
        node.next.iter().find(|(edge, _)| *edge == byte).map(|(_, next)| *next)
    }
}

fn index(state: State) -> usize {
    usize::try_from(state).unwrap_or(usize::MAX)
}
