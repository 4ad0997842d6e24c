//! Names of refs, and patterns of them: `refs/heads/bot/*` is one component more, `refs/heads/bot/**` any number.

use std::fmt;

use crate::draft::Effect;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RefPattern {
    parts: Vec<Part>,
    /// `/**` at the end.
    rest: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Literal(Box<str>),
    /// `*`, or text around one `*`: `release-*`.
    Around(Box<str>, Box<str>),
}

impl RefPattern {
    /// # Errors
    /// Why not, for the author.
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        let (body, rest) = match text.strip_suffix("/**") {
            Some(body) => (body, true),
            None => (text, false),
        };
        let mut parts = Vec::new();
        for part in body.split('/') {
            parts.push(match part.split_once('*') {
                None => Part::Literal(part.into()),
                Some((_, after)) if after.contains('*') => {
                    return Err("one `*` in a component, and `**` at the end only");
                }
                Some((before, after)) => Part::Around(before.into(), after.into()),
            });
        }
        let sample = body.replace('*', "x");
        let sample = if rest { format!("{sample}/x") } else { sample };
        if !is_ref(sample.as_bytes()) {
            return Err("a ref is written whole, for example `refs/heads/main` or `refs/heads/bot/**`");
        }
        Ok(Self { parts, rest })
    }

    pub(crate) fn matches(&self, effect: Effect, name: &[u8]) -> bool {
        let Ok(name) = std::str::from_utf8(name) else { return effect == Effect::Deny };
        let found: Vec<&str> = name.split('/').collect();
        let length = if self.rest { found.len() > self.parts.len() } else { found.len() == self.parts.len() };
        length && self.parts.iter().zip(found).all(|(part, found)| part.matches(effect, found))
    }
}

impl Part {
    fn matches(&self, effect: Effect, text: &str) -> bool {
        // Servers on file systems that ignore letter case take `refs/heads/Main` for `refs/heads/main`.
        let fold =
            |text: &str| if effect == Effect::Deny { text.to_ascii_lowercase() } else { text.to_owned() };
        match self {
            Self::Literal(literal) => fold(literal) == fold(text),
            Self::Around(before, after) => {
                let text = fold(text);
                text.len() > before.len() + after.len()
                    && text.starts_with(&fold(before))
                    && text.ends_with(&fold(after))
            }
        }
    }
}

impl fmt::Display for RefPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, part) in self.parts.iter().enumerate() {
            let slash = if at == 0 { "" } else { "/" };
            match part {
                Part::Literal(text) => write!(f, "{slash}{text}")?,
                Part::Around(before, after) => write!(f, "{slash}{before}*{after}")?,
            }
        }
        f.write_str(if self.rest { "/**" } else { "" })
    }
}

/// git-check-ref-format, and starting with `refs/`.
pub(super) fn is_ref(name: &[u8]) -> bool {
    let component = |part: &[u8]| {
        !part.is_empty() && !part.starts_with(b".") && !part.ends_with(b".lock") && !part.ends_with(b".")
    };
    let has = |text: &[u8]| name.windows(text.len()).any(|window| window == text);
    name.starts_with(b"refs/")
        && name.len() <= 512
        && name.iter().all(|byte| *byte > b' ' && *byte != 0x7f && !b"~^:?*[\\".contains(byte))
        && name.split(|byte| *byte == b'/').all(component)
        && !has(b"..")
        && !has(b"@{")
}
