//! Where in a document: RFC 6901, with `*` for every element of a list.

use std::fmt;

use super::value::Json;
use crate::condition::Miss;
use crate::limits::JSON_DEPTH_MAX;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pointer {
    steps: Vec<Step>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    /// A member, or an element by its number.
    Key(Box<str>),
    /// `*`
    Each,
}

impl Pointer {
    /// # Errors
    /// Why not, for the author.
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        if text.is_empty() {
            return Ok(Self { steps: Vec::new() });
        }
        let Some(rest) = text.strip_prefix('/') else {
            return Err("a pointer starts with `/`; the empty one is the whole body");
        };
        let mut steps = Vec::new();
        for part in rest.split('/') {
            steps.push(if part == "*" { Step::Each } else { Step::Key(unescape(part)?.into()) });
        }
        if steps.len() > JSON_DEPTH_MAX {
            return Err("the pointer is deeper than any body that is read");
        }
        Ok(Self { steps })
    }

    /// Whether it stands for several places.
    pub(crate) fn has_each(&self) -> bool {
        self.steps.contains(&Step::Each)
    }

    /// Its steps: a key, or `None` for `*`.
    pub(crate) fn keys(&self) -> impl Iterator<Item = Option<&str>> {
        self.steps.iter().map(|step| match step {
            Step::Key(key) => Some(&**key),
            Step::Each => None,
        })
    }

    /// Calls `each` with what stands there: a value, or `None` where the way ends before.
    ///
    /// # Errors
    /// A member on the way has two readings.
    pub(crate) fn visit<'j, 'a>(
        &self,
        document: &'j Json<'a>,
        each: &mut dyn FnMut(Option<&'j Json<'a>>),
    ) -> Result<(), Miss> {
        walk(&self.steps, document, each)
    }
}

fn walk<'j, 'a>(
    steps: &[Step],
    at: &'j Json<'a>,
    each: &mut dyn FnMut(Option<&'j Json<'a>>),
) -> Result<(), Miss> {
    let Some((step, rest)) = steps.split_first() else {
        each(Some(at));
        return Ok(());
    };
    match (step, at) {
        (Step::Each, Json::List(items)) => items.iter().try_for_each(|item| walk(rest, item, each)),
        (Step::Key(name), Json::Map(_)) => match at.member(name)? {
            Some(value) => walk(rest, value, each),
            None => {
                each(None);
                Ok(())
            }
        },
        (Step::Key(name), Json::List(items)) => {
            let index = name.parse::<usize>().ok().filter(|index| index.to_string() == **name);
            match index.and_then(|index| items.get(index)) {
                Some(value) => walk(rest, value, each),
                None => {
                    each(None);
                    Ok(())
                }
            }
        }
        _ => {
            each(None);
            Ok(())
        }
    }
}

fn unescape(part: &str) -> Result<String, &'static str> {
    let mut out = String::with_capacity(part.len());
    let mut chars = part.chars();
    while let Some(c) = chars.next() {
        match c {
            '~' => match chars.next() {
                Some('0') => out.push('~'),
                Some('1') => out.push('/'),
                _ => return Err("`~` is written `~0`, and `/` inside a name `~1`"),
            },
            c => out.push(c),
        }
    }
    Ok(out)
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for step in &self.steps {
            match step {
                Step::Each => f.write_str("/*")?,
                Step::Key(name) => write!(f, "/{}", name.replace('~', "~0").replace('/', "~1"))?,
            }
        }
        Ok(())
    }
}
