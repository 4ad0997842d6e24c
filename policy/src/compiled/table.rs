//! Literal segments of one node: text to nodes, with a hash that is cheap on short texts.
//!
//! The keys come from the policy, never from a guest, so nobody can make them collide.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use smallvec::SmallVec;

/// Nodes that one text leads to: one, unless `{a|b}` and a literal stand side by side.
pub(crate) type Targets = SmallVec<[u32; 2]>;

#[derive(Debug, Default)]
pub(crate) struct LiteralTable {
    map: HashMap<Box<[u8]>, Targets, BuildHasherDefault<ShortTextHasher>>,
}

impl LiteralTable {
    pub(crate) fn get(&self, text: &[u8]) -> &[u32] {
        if self.map.is_empty() {
            return &[];
        }
        self.map.get(text).map(SmallVec::as_slice).unwrap_or_default()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], &[u32])> {
        self.map.iter().map(|(text, targets)| (&**text, targets.as_slice()))
    }

    pub(crate) fn entry(&mut self, text: Box<[u8]>) -> &mut Targets {
        self.map.entry(text).or_default()
    }
}

/// Eight bytes a step, mixed by a multiplication (the constant is 2^64 divided by the golden ratio).
#[derive(Debug, Default)]
pub(crate) struct ShortTextHasher(u64);

const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

impl ShortTextHasher {
    fn mix(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(23) ^ word).wrapping_mul(MULTIPLIER);
    }
}

impl Hasher for ShortTextHasher {
    fn write(&mut self, bytes: &[u8]) {
        let mut words = bytes.chunks_exact(8);
        for word in &mut words {
            self.mix(word.try_into().map_or(0, u64::from_le_bytes));
        }
        let rest = words.remainder();
        let tail = rest.iter().rev().fold(0, |tail, byte| tail << 8 | u64::from(*byte));
        self.mix(tail ^ ((bytes.len() as u64) << 56));
    }

    fn write_usize(&mut self, _length: usize) {
        // The length is in `write` already.
    }

    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }
}
