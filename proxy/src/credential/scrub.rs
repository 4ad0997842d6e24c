//! Takes an attached secret out of what comes back: heads, trailers and bodies, across the borders of chunks.
//!
//! In: the secrets of one credential. Out: bytes in which each known form of them is masked with `*`, of the same
//! length, so that framing stays as it was. Known forms: as it is, in lower and upper case, percent-encoded, hex,
//! base64 and base64url at each of the three alignments, and with the escapes of JSON. Other transformations cannot be
//! found (ATTACKS C07): a route that reflects its request in ways of its own should not hold a credential.

use std::collections::BTreeSet;

use aho_corasick::{AhoCorasick, MatchKind};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

use super::sieve::Sieve;
use crate::limits::{SCRUB_MIN_BYTES, SIEVE_MIN_TEXT_BYTES};

/// Everything but RFC 3986 2.3's unreserved characters.
pub(super) const UNRESERVED: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Finds the forms of one credential's secrets.
pub struct Scrubber {
    forms: Vec<zeroize::Zeroizing<Vec<u8>>>,
    matcher: Option<AhoCorasick>,
    sieve: Option<Sieve>,
    longest: usize,
    /// Which bytes begin a form: most suffixes of a body are dismissed by one look.
    begins: Box<[bool; 256]>,
}

impl Scrubber {
    /// Secrets shorter than `SCRUB_MIN_BYTES` are looked for as they are only: their encoded pieces are so short that
    /// they would be found in ordinary text.
    pub fn new(secrets: &[&[u8]]) -> Self {
        let mut forms = BTreeSet::new();
        for secret in secrets.iter().filter(|secret| !secret.is_empty()) {
            add_forms(secret, &mut forms);
        }
        let forms: Vec<_> = forms.into_iter().map(zeroize::Zeroizing::new).collect();
        let patterns = forms.iter().map(|form| form.as_slice());
        let matcher = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(patterns);
        let sieve = Sieve::new(forms.iter().map(|form| form.as_slice()));
        let longest = forms.iter().map(|form| form.len()).max().unwrap_or(0);
        let mut begins = Box::new([false; 256]);
        for first in forms.iter().filter_map(|form| form.first()) {
            if let Some(entry) = begins.get_mut(usize::from(*first)) {
                *entry = true;
            }
        }
        // Without a matcher (too many patterns to build one, which a secret's size limit excludes) every byte would
        // be masked, see `mask`: closed, not open.
        Self { forms, matcher: matcher.ok(), sieve, longest, begins }
    }

    /// A credential whose secret never comes near a response.
    pub fn nothing() -> Self {
        Self::new(&[])
    }

    /// Masks every form inside `bytes`; true when there was one.
    pub fn mask(&self, bytes: &mut [u8]) -> bool {
        let Some(matcher) = &self.matcher else {
            bytes.fill(b'*');
            return true;
        };
        if !self.contains(bytes) {
            return false;
        }
        let mut from = 0;
        let mut found = false;
        while let Some(place) = bytes.get(from..).and_then(|rest| matcher.find(rest)) {
            let range = from + place.start()..from + place.end();
            from = range.end;
            if let Some(secret) = bytes.get_mut(range) {
                secret.fill(b'*');
            }
            found = true;
        }
        found
    }

    /// True when `bytes` holds a form.
    pub fn contains(&self, bytes: &[u8]) -> bool {
        let Some(matcher) = &self.matcher else { return true };
        match &self.sieve {
            // A short text is searched as fast as it is sifted.
            Some(sieve) if bytes.len() > SIEVE_MIN_TEXT_BYTES => {
                sieve.suspects(bytes).any(|part| matcher.is_match(part))
            }
            _ => matcher.is_match(bytes),
        }
    }

    /// Masks `bytes` and says how many of its last bytes could be the beginning of a form: keep them back and put them
    /// in front of the next piece of the body. At the end of the body nothing needs keeping back.
    pub fn mask_piece(&self, bytes: &mut [u8]) -> Masked {
        let found = self.mask(bytes);
        Masked { found, keep_back: self.open_end(bytes) }
    }

    /// Length of the longest suffix that is the beginning of some form.
    pub fn open_end(&self, bytes: &[u8]) -> usize {
        let most = bytes.len().min(self.longest.saturating_sub(1));
        let tail = bytes.get(bytes.len() - most..).unwrap_or_default();
        let begins = |suffix: &[u8]| {
            self.forms.iter().any(|form| form.len() > suffix.len() && form.starts_with(suffix))
        };
        let possible = |first: u8| self.begins.get(usize::from(first)).copied().unwrap_or(true);
        (0..tail.len())
            .filter_map(|start| tail.get(start..))
            .find(|suffix| suffix.first().is_some_and(|first| possible(*first)) && begins(suffix))
            .map_or(0, <[u8]>::len)
    }
}

/// What [`Scrubber::mask_piece`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Masked {
    pub found: bool,
    pub keep_back: usize,
}

impl std::fmt::Debug for Scrubber {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scrubber").field("forms", &self.forms.len()).finish_non_exhaustive()
    }
}

fn add_forms(secret: &[u8], forms: &mut BTreeSet<Vec<u8>>) {
    forms.insert(secret.to_vec());
    forms.insert(json_escaped(secret, b"\"\\"));
    forms.insert(json_escaped(secret, b"\"\\/"));
    let percent = percent_encode(secret, UNRESERVED).to_string().into_bytes();
    forms.insert(with_lower_escapes(&percent));
    forms.insert(percent);
    if secret.len() < SCRUB_MIN_BYTES {
        return;
    }
    // JSON with `\u0026` for `&`, and with that for everything that is no letter or digit.
    let go_style = unicode_escaped(secret, |byte| matches!(byte, b'<' | b'>' | b'&'));
    let every_sign = unicode_escaped(secret, |byte| !byte.is_ascii_alphanumeric());
    forms.extend([go_style.0, go_style.1, every_sign.0, every_sign.1]);
    forms.insert(secret.to_ascii_lowercase());
    forms.insert(secret.to_ascii_uppercase());
    let every_byte: Vec<u8> = secret.iter().flat_map(|byte| format!("%{byte:02X}").into_bytes()).collect();
    forms.insert(with_lower_escapes(&every_byte));
    forms.insert(every_byte);
    let hex: Vec<u8> = secret.iter().flat_map(|byte| format!("{byte:02x}").into_bytes()).collect();
    forms.insert(hex.to_ascii_uppercase());
    forms.insert(hex);
    for alignment in 0..3 {
        for encoded in [base64_inner(secret, alignment, false), base64_inner(secret, alignment, true)] {
            forms.insert(encoded);
        }
    }
}

/// The base64 characters that depend on the secret alone when it starts at `alignment` modulo 3 of the encoded text.
fn base64_inner(secret: &[u8], alignment: usize, url_safe: bool) -> Vec<u8> {
    let padded = [[0_u8, 0].get(..alignment).unwrap_or_default(), secret].concat();
    let encoded = if url_safe { URL_SAFE_NO_PAD.encode(&padded) } else { STANDARD_NO_PAD.encode(&padded) };
    // A character holds 6 bits: the first whole one begins at bit 8 × alignment, the last ends with the secret.
    let first = (alignment * 8).div_ceil(6);
    let last = padded.len() * 8 / 6;
    encoded.as_bytes().get(first..last).unwrap_or_default().to_vec()
}

fn json_escaped(secret: &[u8], escaped_bytes: &[u8]) -> Vec<u8> {
    let mut escaped = Vec::with_capacity(secret.len() + 8);
    for byte in secret {
        if escaped_bytes.contains(byte) {
            escaped.push(b'\\');
        }
        escaped.push(*byte);
    }
    escaped
}

/// With `\u002d` for the bytes that `escape` names, in lower and in upper case.
fn unicode_escaped(secret: &[u8], escape: impl Fn(u8) -> bool) -> (Vec<u8>, Vec<u8>) {
    let (mut lower, mut upper) = (Vec::new(), Vec::new());
    for byte in secret {
        if escape(*byte) {
            lower.extend(format!("\\u{byte:04x}").into_bytes());
            upper.extend(format!("\\u{byte:04X}").into_bytes());
        } else {
            lower.push(*byte);
            upper.push(*byte);
        }
    }
    (lower, upper)
}

/// `%2F` as `%2f`: both cases are in use.
fn with_lower_escapes(encoded: &[u8]) -> Vec<u8> {
    let mut lower = Vec::with_capacity(encoded.len());
    let mut escape_left = 0_u8;
    for byte in encoded {
        lower.push(if escape_left > 0 { byte.to_ascii_lowercase() } else { *byte });
        escape_left = if *byte == b'%' { 2 } else { escape_left.saturating_sub(1) };
    }
    lower
}
