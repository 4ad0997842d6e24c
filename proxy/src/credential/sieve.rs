//! A quick "not here" for long texts: looks at four bytes in twenty instead of at every byte.
//!
//! Every form of a secret has at least `shortest` bytes, so whatever place it stands at, it covers one of the places that are
//! `shortest - 3` apart, and the four bytes there are four bytes of it. They are looked up in a table of all four bytes in a
//! row that any form has. Where they are in it, the text around is searched by the matcher, which has the last word; where none is,
//! no form can be in the text.

use crate::limits::SIEVE_MIN_FORM_BYTES;

/// Bytes that are looked at together.
const GRAM: usize = 4;
/// The table has two to this many bits: 16 KiB, which stay in the processor's first cache beside the text. Some 1,500 of
/// 131,072 are set, so that one look in a hundred is in vain.
const TABLE_BITS: u32 = 17;

/// The table of one credential.
pub(super) struct Sieve {
    table: Box<[u64]>,
    step: usize,
    longest: usize,
}

impl Sieve {
    /// `None` where a form is so short that skipping gains nothing.
    pub(super) fn new<'f>(forms: impl Iterator<Item = &'f [u8]> + Clone) -> Option<Self> {
        let lengths = forms.clone().map(<[u8]>::len);
        let (shortest, longest) = (lengths.clone().min()?, lengths.max()?);
        if shortest < SIEVE_MIN_FORM_BYTES {
            return None;
        }
        let mut table = vec![0_u64; 1 << (TABLE_BITS - 6)].into_boxed_slice();
        for gram in forms.flat_map(|form| form.windows(GRAM)).filter_map(<[u8]>::first_chunk) {
            let (word, bit) = place(*gram);
            if let Some(word) = table.get_mut(word) {
                *word |= 1 << bit;
            }
        }
        Some(Self { table, step: shortest - GRAM + 1, longest })
    }

    /// Parts of `bytes` of which at least one holds a form, if `bytes` holds one.
    pub(super) fn suspects<'b>(&self, bytes: &'b [u8]) -> impl Iterator<Item = &'b [u8]> {
        let places = bytes.chunks(self.step).zip((0..).step_by(self.step));
        places.filter(|(chunk, _)| chunk.first_chunk().is_some_and(|gram| self.knows(*gram))).filter_map(
            |(_, at)| {
                // A form that covers these four bytes has those one further or those one before as well.
                let beside = self.knows_at(bytes, at + 1) || (at > 0 && self.knows_at(bytes, at - 1));
                let (from, to) = (at.saturating_sub(self.longest), (at + self.longest).min(bytes.len()));
                bytes.get(from..to).filter(|_| beside)
            },
        )
    }

    fn knows_at(&self, bytes: &[u8], at: usize) -> bool {
        bytes.get(at..).and_then(<[u8]>::first_chunk).is_some_and(|gram| self.knows(*gram))
    }

    fn knows(&self, gram: [u8; GRAM]) -> bool {
        let (word, bit) = place(gram);
        self.table.get(word).is_none_or(|word| word >> bit & 1 == 1)
    }
}

/// Multiplicative hashing (Knuth, volume 3, 6.4): the upper bits of the product with the golden ratio.
const fn place(gram: [u8; GRAM]) -> (usize, u32) {
    let hash = u32::from_le_bytes(gram).wrapping_mul(0x9E37_79B1) >> (u32::BITS - TABLE_BITS);
    ((hash >> 6) as usize, hash & 63)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sieve(forms: &[&[u8]]) -> Sieve {
        Sieve::new(forms.iter().copied()).unwrap()
    }

    #[test]
    fn needs_forms_that_are_long_enough() {
        assert!(Sieve::new([b"eleven-byte".as_slice()].into_iter()).is_none());
        assert!(Sieve::new(std::iter::empty()).is_none());
        assert!(Sieve::new([b"twelve-bytes".as_slice()].into_iter()).is_some());
    }

    #[test]
    fn passes_over_what_has_nothing_of_a_form() {
        let sieve = sieve(&[b"s3cr3t-token-0123456789"]);
        assert_eq!(sieve.suspects(&b"lorem ipsum dolor sit amet, ".repeat(100)).count(), 0);
        assert_eq!(sieve.suspects(b"").count(), 0);
    }

    proptest! {
        /// C01: no form slips through, wherever it stands and whatever stands around it.
        #[test]
        fn c01_suspects_every_place_of_every_form(
            forms in prop::collection::vec("[ab01]{12,40}", 1..6),
            which in any::<prop::sample::Index>(),
            before in "[ab01x]{0,120}",
            after in "[ab01x]{0,120}",
        ) {
            let list: Vec<&[u8]> = forms.iter().map(String::as_bytes).collect();
            let form = which.get(&forms).as_str();
            let text = format!("{before}{form}{after}");
            let sieve = sieve(&list);
            let found = sieve.suspects(text.as_bytes()).any(|part| String::from_utf8_lossy(part).contains(form));
            prop_assert!(found);
        }
    }
}
