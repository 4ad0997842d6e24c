//! Bounded regular expressions: compiled when a policy is loaded, anchored at both ends, matched in one pass without
//! backtracking or allocation.

use regex_automata::Anchored;
use regex_automata::dfa::{Automaton, StartKind, dense};
use regex_automata::nfa::thompson::{self, WhichCaptures};
use regex_automata::util::primitives::StateID;
use regex_syntax::hir::{Class, Hir, HirKind, Look};

use crate::limits::{REGEX_COMPILED_MAX_BYTES, REGEX_MAX_BYTES};

/// A compiled expression that matches whole texts.
pub(crate) struct Regex {
    dfa: dense::DFA<Vec<u32>>,
    start: StateID,
}

impl std::fmt::Debug for Regex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Regex")
    }
}

/// Reads the text inside `{re:…}`. Classes are ASCII; `.` is any byte but a line break.
///
/// # Errors
/// Why not, for the author.
pub(crate) fn parse(text: &str) -> Result<Hir, String> {
    if text.is_empty() {
        return Err("the expression is empty".to_owned());
    }
    if text.len() > REGEX_MAX_BYTES {
        return Err(format!("the expression is longer than {REGEX_MAX_BYTES} bytes"));
    }
    // SECURITY: read by itself before it is anchored, so that `a)|(b` cannot escape its anchors. Guarded by ATTACKS G28.
    regex_syntax::ParserBuilder::new().unicode(false).utf8(false).nest_limit(32).build().parse(text).map_err(
        |error| match error {
            regex_syntax::Error::Parse(error) => error.kind().to_string(),
            regex_syntax::Error::Translate(error) => error.kind().to_string(),
            _ => "it cannot be read".to_owned(),
        },
    )
}

/// An expression of our own, known to be good.
pub(crate) fn builtin(text: &str) -> Hir {
    parse(text).unwrap_or_else(|_| Hir::fail())
}

/// Whether a text that matches may have this byte. Yes too often, never no.
pub(crate) fn may_hold(hir: &Hir, byte: u8) -> bool {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => false,
        HirKind::Literal(literal) => literal.0.contains(&byte),
        HirKind::Class(Class::Bytes(class)) => {
            class.iter().any(|range| (range.start()..=range.end()).contains(&byte))
        }
        HirKind::Class(Class::Unicode(class)) => {
            class.iter().any(|range| (range.start()..=range.end()).contains(&char::from(byte)))
        }
        HirKind::Repetition(repetition) => may_hold(&repetition.sub, byte),
        HirKind::Capture(capture) => may_hold(&capture.sub, byte),
        HirKind::Concat(parts) | HirKind::Alternation(parts) => parts.iter().any(|part| may_hold(part, byte)),
    }
}

impl Regex {
    /// # Errors
    /// When the compiled form is larger than the limit.
    pub(crate) fn compile(hir: &Hir) -> Result<Self, String> {
        let whole = Hir::concat(vec![Hir::look(Look::Start), hir.clone(), Hir::look(Look::End)]);
        let too_large = || format!("the expression needs more than {} KiB", REGEX_COMPILED_MAX_BYTES / 1024);
        let nfa = thompson::Compiler::new()
            .configure(
                thompson::Config::new()
                    .utf8(false)
                    .nfa_size_limit(Some(REGEX_COMPILED_MAX_BYTES))
                    .which_captures(WhichCaptures::None),
            )
            .build_from_hir(&whole)
            .map_err(|_| too_large())?;
        let config = dense::Config::new()
            .start_kind(StartKind::Anchored)
            .dfa_size_limit(Some(REGEX_COMPILED_MAX_BYTES))
            .determinize_size_limit(Some(REGEX_COMPILED_MAX_BYTES));
        let dfa = dense::Builder::new().configure(config).build_from_nfa(&nfa).map_err(|_| too_large())?;
        let start = start_of(&dfa).ok_or_else(|| "the expression has no start".to_owned())?;
        Ok(Self { dfa, start })
    }

    pub(crate) fn matches(&self, text: impl IntoIterator<Item = u8>) -> bool {
        let mut state = self.start;
        for byte in text {
            state = self.dfa.next_state(state, byte);
            if self.dfa.is_dead_state(state) {
                return false;
            }
        }
        self.accepts(state)
    }

    /// For walking several expressions together: the state before the first byte.
    pub(crate) fn start(&self) -> u32 {
        self.start.as_u32()
    }

    /// The state after one more byte; `None` when no text that goes on like this matches.
    pub(crate) fn step(&self, state: u32, byte: u8) -> Option<u32> {
        let state = StateID::new(usize::try_from(state).ok()?).ok()?;
        let next = self.dfa.next_state(state, byte);
        (!self.dfa.is_dead_state(next)).then(|| next.as_u32())
    }

    /// Whether the text that led to a state matches.
    pub(crate) fn accepts_at(&self, state: u32) -> bool {
        let state = usize::try_from(state).ok().and_then(|state| StateID::new(state).ok());
        state.is_some_and(|state| self.accepts(state))
    }

    /// Bytes of one class lead from every state to the same one.
    pub(crate) fn class(&self, byte: u8) -> u8 {
        self.dfa.byte_classes().get(byte)
    }

    fn accepts(&self, state: StateID) -> bool {
        self.dfa.is_match_state(self.dfa.next_eoi_state(state))
    }

    /// Whether some text satisfies `wanted(self matches, other matches)`; `None` when it is too large to tell.
    pub(crate) fn some_text(&self, other: &Self, wanted: impl Fn(bool, bool) -> bool) -> Option<bool> {
        const PAIRS_MAX: usize = 20_000;
        let mut seen = std::collections::HashSet::from([(self.start, other.start)]);
        let mut open = vec![(self.start, other.start)];
        // One byte of each class stands for all of it; with all 256 a policy of many expressions takes seconds to check.
        let classes = |byte: u8| (self.class(byte), other.class(byte));
        let mut bytes: Vec<u8> = (0..=u8::MAX).collect();
        bytes.dedup_by_key(|byte| classes(*byte));
        while let Some((left, right)) = open.pop() {
            // The empty text is no segment and no value that a pattern is asked about.
            if (left, right) != (self.start, other.start) && wanted(self.accepts(left), other.accepts(right))
            {
                return Some(true);
            }
            for byte in &bytes {
                let next = (self.dfa.next_state(left, *byte), other.dfa.next_state(right, *byte));
                if seen.insert(next) {
                    open.push(next);
                }
            }
            if seen.len() > PAIRS_MAX {
                return None;
            }
        }
        Some(false)
    }
}

/// The one anchored start state. A text is always asked about from its beginning, with nothing before it.
fn start_of(dfa: &dense::DFA<Vec<u32>>) -> Option<StateID> {
    let input = regex_automata::Input::new("").anchored(Anchored::Yes);
    dfa.start_state_forward(&input).ok()
}

#[cfg(test)]
mod tests {
    use super::{Regex, parse};

    fn matches(pattern: &str, text: &str) -> bool {
        Regex::compile(&parse(pattern).unwrap()).unwrap().matches(text.bytes())
    }

    #[test]
    fn g28_expressions_match_whole_texts_only() {
        assert!(matches("a|b", "a") && matches("a|b", "b"));
        for text in ["ab", "xa", "ax", "", "c"] {
            assert!(!matches("a|b", text), "{text}");
        }
        assert!(matches("api.test", "apixtest"), "a dot is any byte; write \\.");
        assert!(!matches(r"api\.test", "apixtest"));
        assert!(matches("^ab$", "ab"));
        assert!(matches("(?i)ab", "AB"));
    }

    #[test]
    fn g28_an_expression_cannot_leave_its_anchors() {
        assert!(parse("a)|(b").is_err());
        assert!(parse("(?x)a #").is_ok());
        assert!(!matches("(?x)a #", "ab"));
        assert!(!matches("a|.*b$|", "ac"));
    }

    #[test]
    fn refuses_what_is_too_large_or_cannot_be_read() {
        assert!(
            parse("").is_err() && parse("[").is_err() && parse(r"(a)\1").is_err() && parse("(?=a)").is_err()
        );
        assert!(parse(&"a".repeat(257)).is_err());
        assert!(Regex::compile(&parse("(a|b)*a(a|b){20}").unwrap()).is_err());
        assert!(Regex::compile(&parse("((a{100}){100}){100}").unwrap()).is_err());
    }

    #[test]
    fn tells_whether_two_expressions_have_a_text_in_common() {
        let compiled = |pattern: &str| Regex::compile(&parse(pattern).unwrap()).unwrap();
        let common = |a: &str, b: &str| compiled(a).some_text(&compiled(b), |a, b| a && b).unwrap();
        assert!(common("[a-z]+", "x[0-9]?"));
        assert!(!common("[a-z]+", "[0-9]+"));
        assert!(!common("a*", "b*"), "only the empty text is in both");
    }
}
