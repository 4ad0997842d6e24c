//! The path of a route line as a machine that reads a canonical path symbol by symbol.

use smallvec::SmallVec;

use super::alphabet::{Alphabet, Utf8, cost, is_never};
use super::machine::{Machine, State};
use crate::route::compare::Reading;
use crate::route::{PathEnd, RouteLine};

/// What a path is made of after its leading slash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Symbol {
    /// A decoded byte of a segment, never `/`.
    Byte(u8),
    /// `/` between segments.
    Separator,
    /// `%2F`: data inside a segment, and a separator in the second reading of deny rules.
    EscapedSlash,
}

impl Symbol {
    pub(super) const fn cost(self) -> usize {
        match self {
            Self::Byte(byte) => cost(byte),
            Self::Separator => 1,
            Self::EscapedSlash => 3,
        }
    }

    pub(super) fn write(self, out: &mut String) {
        match self {
            Self::Byte(byte) => crate::route::pattern::escape_into(&[byte], out),
            Self::Separator => out.push('/'),
            Self::EscapedSlash => out.push_str("%2F"),
        }
    }
}

/// The paths of a line made ready for walking.
#[derive(Debug)]
pub(super) struct PathMachine<'p> {
    paths: Vec<OnePath<'p>>,
    reading: Reading,
}

/// One of them.
#[derive(Debug)]
struct OnePath<'p> {
    segments: Vec<Machine<'p>>,
    end: PathEnd,
    reading: Reading,
}

/// Where one reading of one path stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum At {
    /// In segment `index`, of which `empty` says that nothing was read yet.
    Segment { index: u8, state: State, empty: bool },
    /// Whatever follows matches.
    Rest,
    /// Whatever follows does not match.
    Dead,
}

/// Where one rule stands, path by path: the plain reading, and for deny rules the one that takes `%2F` for a separator.
pub(super) type Readings = SmallVec<[(At, At); 1]>;

impl<'p> PathMachine<'p> {
    pub(super) fn new(line: &'p RouteLine, reading: Reading) -> Self {
        let paths = line.paths(reading).map(|path| {
            let segments = path.segments.iter().map(|pattern| Machine::new(pattern, reading)).collect();
            OnePath { segments, end: path.end, reading }
        });
        Self { paths: paths.collect(), reading }
    }

    pub(super) fn refine(&self, alphabet: &mut Alphabet) {
        self.paths.iter().flat_map(|path| &path.segments).for_each(|machine| machine.refine(alphabet));
    }

    /// After the leading slash.
    pub(super) fn start(&self) -> Readings {
        let starts = self.paths.iter().map(|path| path.enter(0));
        starts.map(|first| (first, if self.reading == Reading::Deny { first } else { At::Dead })).collect()
    }

    /// `None` where nothing that follows matches.
    pub(super) fn step(&self, readings: &Readings, symbol: Symbol) -> Option<Readings> {
        let next = self.paths.iter().zip(readings).map(|(path, (plain, split))| match symbol {
            Symbol::Byte(byte) => (path.byte(*plain, byte), path.byte(*split, byte)),
            Symbol::Separator => (path.separator(*plain), path.separator(*split)),
            Symbol::EscapedSlash => (path.byte(*plain, b'/'), path.separator(*split)),
        });
        let next: Readings = next.collect();
        next.iter().any(|readings| *readings != (At::Dead, At::Dead)).then_some(next)
    }

    pub(super) fn accepts(&self, readings: &Readings) -> bool {
        let mut paths = self.paths.iter().zip(readings);
        paths.any(|(path, (plain, split))| path.ends(*plain) || path.ends(*split))
    }
}

impl OnePath<'_> {
    fn enter(&self, index: usize) -> At {
        if index == self.segments.len() && self.end == PathEnd::Rest {
            return At::Rest;
        }
        let state = self.segments.get(index).map_or(0, Machine::start);
        // At most `ROUTE_SEGMENTS_MAX` segments, so the number fits.
        At::Segment { index: u8::try_from(index).unwrap_or(u8::MAX), state, empty: true }
    }

    fn byte(&self, at: At, byte: u8) -> At {
        let At::Segment { index, state, .. } = at else { return at };
        let next = self.segments.get(usize::from(index)).and_then(|machine| machine.step(state, byte));
        next.map_or(At::Dead, |state| At::Segment { index, state, empty: false })
    }

    fn separator(&self, at: At) -> At {
        let At::Segment { index, state, .. } = at else { return at };
        let index = usize::from(index);
        let whole = self.segments.get(index).is_some_and(|machine| machine.accepts(state));
        if whole { self.enter(index + 1) } else { At::Dead }
    }

    fn ends(&self, at: At) -> bool {
        let (index, state, empty) = match at {
            At::Rest => return true,
            At::Dead => return false,
            At::Segment { index, state, empty } => (usize::from(index), state, empty),
        };
        let either = self.reading == Reading::Deny;
        if empty {
            // The path ends with a slash, which belongs to no segment.
            return index == self.segments.len() && (either || self.end == PathEnd::Slash);
        }
        let whole = self.segments.get(index).is_some_and(|machine| machine.accepts(state));
        whole && index + 1 == self.segments.len() && (either || self.end != PathEnd::Slash)
    }
}

/// What every canonical path has in common: whole UTF-8, no empty and no dot segments, no byte that is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Canonical {
    utf8: Utf8,
    /// Dots of the piece read so far (a piece is what slashes of both kinds part); 3 when it is more than one or two dots.
    dots: u8,
    segment_is_empty: bool,
}

impl Canonical {
    pub(super) const START: Self = Self { utf8: Utf8::Whole, dots: 0, segment_is_empty: true };

    pub(super) fn refine(alphabet: &mut Alphabet) {
        Utf8::refine(alphabet);
        alphabet.refine(|byte| (byte == b'.', byte == b'/', byte == b';' || is_never(byte)));
    }

    /// Representatives that a path can have.
    pub(super) fn symbols(alphabet: &Alphabet) -> Vec<Symbol> {
        let bytes = alphabet.representatives().into_iter();
        let allowed = bytes.filter(|byte| !is_never(*byte) && !matches!(byte, b';' | b'/'));
        allowed.map(Symbol::Byte).chain([Symbol::Separator, Symbol::EscapedSlash]).collect()
    }

    pub(super) fn step(self, symbol: Symbol) -> Option<Self> {
        match symbol {
            Symbol::Byte(byte) => {
                let dots = if byte == b'.' { (self.dots + 1).min(3) } else { 3 };
                let utf8 = self.utf8.step(byte)?;
                Some(Self { utf8, dots, segment_is_empty: false })
            }
            Symbol::Separator if self.segment_is_empty => None,
            Symbol::Separator => self.is_whole_piece().then_some(Self::START),
            Symbol::EscapedSlash => {
                self.is_whole_piece().then_some(Self { segment_is_empty: false, ..Self::START })
            }
        }
    }

    /// Whether the path may end here.
    pub(super) fn is_whole_piece(self) -> bool {
        self.utf8 == Utf8::Whole && !matches!(self.dots, 1 | 2)
    }
}
