//! Bytes that no machine tells apart, as classes with one representative each.

use std::collections::HashMap;

/// A partition of the bytes, refined machine by machine.
#[derive(Debug)]
pub(super) struct Alphabet {
    classes: Vec<usize>,
}

impl Alphabet {
    /// Every byte in one class.
    pub(super) fn new() -> Self {
        Self { classes: vec![0; 256] }
    }

    /// Splits classes so that bytes with different keys are apart.
    pub(super) fn refine<K: Eq + std::hash::Hash>(&mut self, key: impl Fn(u8) -> K) {
        let mut numbers = HashMap::new();
        for (byte, class) in (0..=u8::MAX).zip(&mut self.classes) {
            let next = numbers.len();
            *class = *numbers.entry((*class, key(byte))).or_insert(next);
        }
    }

    /// The most readable byte of each class, the most readable classes first.
    pub(super) fn representatives(&self) -> Vec<u8> {
        let mut best: HashMap<usize, u8> = HashMap::new();
        for (byte, class) in (0..=u8::MAX).zip(&self.classes) {
            let found = best.entry(*class).or_insert(byte);
            if rank(byte) < rank(*found) {
                *found = byte;
            }
        }
        let mut bytes: Vec<u8> = best.into_values().collect();
        bytes.sort_unstable_by_key(|byte| rank(*byte));
        bytes
    }
}

/// Letters, digits, what needs no escape, the rest.
fn rank(byte: u8) -> (u8, u8) {
    let kind = match byte {
        b'a'..=b'z' => 0,
        b'0'..=b'9' => 1,
        b'A'..=b'Z' => 2,
        b'-' | b'_' | b'~' | b'.' => 3,
        b' '..=b'~' => 4,
        _ => 5,
    };
    (kind, byte)
}

/// How many bytes a decoded byte takes in a canonical target.
pub(super) const fn cost(byte: u8) -> usize {
    if crate::target::is_unreserved(byte) { 1 } else { 3 }
}

/// Whether the bytes read so far are UTF-8 (RFC 3629 4), one byte at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Utf8 {
    Whole,
    /// This many continuation bytes are missing, the next one within the bounds.
    Inside {
        missing: u8,
        low: u8,
        high: u8,
    },
}

impl Utf8 {
    pub(super) const fn step(self, byte: u8) -> Option<Self> {
        const fn inside(missing: u8, low: u8, high: u8) -> Utf8 {
            Utf8::Inside { missing, low, high }
        }
        let next = match (self, byte) {
            (Self::Whole, 0x00..=0x7f) => Self::Whole,
            (Self::Whole, 0xc2..=0xdf) => inside(1, 0x80, 0xbf),
            (Self::Whole, 0xe0) => inside(2, 0xa0, 0xbf),
            (Self::Whole, 0xe1..=0xec | 0xee..=0xef) => inside(2, 0x80, 0xbf),
            (Self::Whole, 0xed) => inside(2, 0x80, 0x9f),
            (Self::Whole, 0xf0) => inside(3, 0x90, 0xbf),
            (Self::Whole, 0xf1..=0xf3) => inside(3, 0x80, 0xbf),
            (Self::Whole, 0xf4) => inside(3, 0x80, 0x8f),
            (Self::Inside { missing, low, high }, _) if byte >= low && byte <= high => {
                if missing == 1 {
                    Self::Whole
                } else {
                    inside(missing - 1, 0x80, 0xbf)
                }
            }
            _ => return None,
        };
        Some(next)
    }

    /// Bytes between which `step` makes a difference.
    pub(super) fn refine(alphabet: &mut Alphabet) {
        alphabet.refine(|byte| match byte {
            0x00..=0x7f => 0,
            0x80..=0x8f => 1,
            0x90..=0x9f => 2,
            0xa0..=0xbf => 3,
            0xc2..=0xdf => 4,
            0xe0 => 5,
            0xe1..=0xec | 0xee..=0xef => 6,
            0xed => 7,
            0xf0 => 8,
            0xf1..=0xf3 => 9,
            0xf4 => 10,
            _ => 11,
        });
    }
}

/// Bytes that no canonical path or query has, decoded or not.
pub(super) const fn is_never(byte: u8) -> bool {
    matches!(byte, 0x00..=0x1f | 0x7f | b'\\')
}

#[cfg(test)]
mod tests {
    use super::Utf8;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_utf8_machine_agrees_with_the_library(bytes in prop::collection::vec(any::<u8>(), 0..6)) {
            let end = bytes.iter().try_fold(Utf8::Whole, |state, byte| state.step(*byte));
            prop_assert_eq!(end == Some(Utf8::Whole), std::str::from_utf8(&bytes).is_ok());
        }
    }
}
