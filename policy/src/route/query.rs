//! Queries of a route line and of a request.
//!
//! An allow rule lists what may be there; a deny rule lists what must not be there, whatever else is.

use super::pattern::{Decoded, Pattern, escape_into};
use crate::limits::QUERY_PARAMETERS_MAX;

/// What a query must look like.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum QueryPattern {
    /// No `?` in the line: no parameters.
    None,
    /// `?*`
    Any,
    Listed(Listed),
}

/// `?a={int}&b!&*`
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Listed {
    /// Sorted by name, each once, at most `QUERY_PARAMETERS_MAX`.
    pub(crate) parameters: Vec<Parameter>,
    /// `&*`: other parameters pass too.
    pub(crate) others: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Parameter {
    /// Decoded.
    pub(crate) name: Box<[u8]>,
    pub(crate) value: Pattern,
    pub(crate) required: bool,
}

impl QueryPattern {
    /// For allow rules: listed parameters only, each at most once, required ones there.
    pub(crate) fn allow(&self, query: Option<&str>) -> bool {
        let query = query.unwrap_or_default();
        match self {
            Self::Any => true,
            Self::None => query.is_empty(),
            Self::Listed(listed) => listed.allow(query),
        }
    }

    /// For deny rules: every listed parameter is there with such a value. No list: always.
    pub(crate) fn deny(&self, query: Option<&str>) -> bool {
        match self {
            Self::Any | Self::None => true,
            Self::Listed(listed) => {
                listed.parameters.iter().all(|parameter| parameter.denies(query.unwrap_or_default()))
            }
        }
    }

    /// Why `allow` says no; `None` when it says yes.
    pub(crate) fn mismatch(&self, query: Option<&str>) -> Option<String> {
        let query = query.unwrap_or_default();
        match self {
            Self::Any => None,
            Self::None => {
                (!query.is_empty()).then(|| "the request has a query, the route takes none".to_owned())
            }
            Self::Listed(listed) => listed.mismatch(query),
        }
    }

    pub(crate) fn canonical(&self) -> String {
        match self {
            Self::None => String::new(),
            Self::Any => "?*".to_owned(),
            Self::Listed(listed) => {
                let mut out = String::new();
                for parameter in &listed.parameters {
                    out.push(if out.is_empty() { '?' } else { '&' });
                    escape_into(&parameter.name, &mut out);
                    if parameter.required {
                        out.push('!');
                    }
                    if parameter.value != Pattern::AnyOrEmpty {
                        out.push('=');
                        parameter.value.write_canonical(&mut out);
                    }
                }
                if listed.others {
                    out.push_str("&*");
                }
                out
            }
        }
    }
}

const _: () = assert!(QUERY_PARAMETERS_MAX <= 64, "one bit of a u64 each");

impl Listed {
    pub(crate) fn find(&self, name: &[u8]) -> Option<&Parameter> {
        self.parameters.iter().find(|parameter| *parameter.name == *name)
    }

    fn allow(&self, query: &str) -> bool {
        let mut seen: u64 = 0;
        if !query.is_empty() {
            for pair in query.as_bytes().split(|byte| *byte == b'&') {
                let (name, value) = split_pair(pair);
                let named = self.parameters.iter().position(|parameter| is_name(name, &parameter.name));
                match named.and_then(|at| self.parameters.get(at).map(|parameter| (at, parameter))) {
                    Some((at, parameter)) => {
                        let bit = 1 << at;
                        if seen & bit != 0 || !parameter.allows(value) {
                            return false;
                        }
                        seen |= bit;
                    }
                    None if self.others && !has_semicolon(pair) => {}
                    None => return false,
                }
            }
        }
        self.parameters.iter().enumerate().all(|(at, parameter)| !parameter.required || seen & (1 << at) != 0)
    }

    fn mismatch(&self, query: &str) -> Option<String> {
        let pairs = query.as_bytes().split(|byte| *byte == b'&').filter(|_| !query.is_empty());
        let mut seen: Vec<&[u8]> = Vec::new();
        for (name, value) in pairs.clone().map(split_pair) {
            let shown = String::from_utf8_lossy(name);
            let Some(parameter) = self.parameters.iter().find(|parameter| is_name(name, &parameter.name))
            else {
                if self.others && !has_semicolon(name) && !has_semicolon(value) {
                    continue;
                }
                return Some(format!("the parameter `{shown}` is not listed"));
            };
            if seen.contains(&&*parameter.name) {
                return Some(format!("the parameter `{shown}` is repeated"));
            }
            seen.push(&parameter.name);
            if !parameter.allows(value) {
                let mut wanted = String::new();
                parameter.value.write_canonical(&mut wanted);
                return Some(format!("the parameter `{shown}` is not `{wanted}`"));
            }
        }
        let missing = self
            .parameters
            .iter()
            .find(|parameter| parameter.required && !seen.contains(&&*parameter.name))?;
        Some(format!("the parameter `{}` is missing", String::from_utf8_lossy(&missing.name)))
    }
}

impl Listed {
    /// What one raw `name=value` is to an allow rule.
    pub(crate) fn pair(&self, pair: &[u8]) -> Pair {
        let (name, value) = split_pair(pair);
        let named = self.parameters.iter().enumerate().find(|(_, parameter)| is_name(name, &parameter.name));
        match named {
            Some((at, parameter)) => Pair::Listed { at, fits: parameter.allows(value) },
            None => Pair::Unlisted { fits: self.others && !has_semicolon(pair) },
        }
    }
}

/// How an allow rule reads one pair of a query by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pair {
    /// The parameter at this place of the list.
    Listed {
        at: usize,
        fits: bool,
    },
    Unlisted {
        fits: bool,
    },
}

impl Parameter {
    /// Whether a raw name is this parameter's, to an allow rule.
    pub(crate) fn is_named(&self, raw: &[u8]) -> bool {
        is_name(raw, &self.name)
    }

    /// The same to a deny rule, which reads each piece between semicolons as a name.
    pub(crate) fn is_named_widely(&self, raw: &[u8]) -> bool {
        raw.split(|byte| *byte == b';').any(|piece| self.has_folded_name(piece))
    }

    /// SECURITY: `;` separates parameters for some servers, and `+` is a space for some: a listed value must match in
    /// every reading. Guarded by ATTACKS A46.
    fn allows(&self, value: &[u8]) -> bool {
        if has_semicolon(value) || !self.value.matches_decoded(Decoded::form(value)) {
            return false;
        }
        // A literal `+` is compared as a space on both sides; an expression must hold for both readings.
        !matches!(self.value, Pattern::Regex(_))
            || !value.contains(&b'+')
            || self.value.matches_decoded(Decoded::of(value))
    }

    fn has_folded_name(&self, raw: &[u8]) -> bool {
        let same = |text: Decoded<'_>| {
            text.map(|byte| byte.to_ascii_lowercase()).eq(self.name.iter().map(u8::to_ascii_lowercase))
        };
        same(Decoded::form(raw)) || same(Decoded::of(raw))
    }

    /// Whether the parameter is there with such a value, to a deny rule.
    pub(crate) fn denies(&self, query: &str) -> bool {
        query.as_bytes().split(|byte| matches!(byte, b'&' | b';')).filter(|pair| !pair.is_empty()).any(
            |pair| {
                let (name, value) = split_pair(pair);
                if !self.has_folded_name(name) {
                    return false;
                }
                let readings: [smallvec::SmallVec<[u8; 64]>; 2] =
                    [Decoded::form(value).collect(), Decoded::of(value).collect()];
                readings.iter().any(|reading| self.value.matches_folded(reading))
            },
        )
    }
}

fn split_pair(pair: &[u8]) -> (&[u8], &[u8]) {
    match pair.iter().position(|byte| *byte == b'=') {
        Some(at) => (pair.get(..at).unwrap_or_default(), pair.get(at + 1..).unwrap_or_default()),
        None => (pair, &[]),
    }
}

fn is_name(raw: &[u8], name: &[u8]) -> bool {
    Decoded::form(raw).eq(name.iter().copied())
}

fn has_semicolon(raw: &[u8]) -> bool {
    raw.contains(&b';')
}
