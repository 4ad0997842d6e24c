//! The operations of a GraphQL document with the fields that each asks the root for. Everything else of a document is
//! read for its shape only. Recursion is bounded by `GRAPHQL_DEPTH_MAX`.

use std::collections::HashMap;

use super::lexer::{Lexer, Token, Unreadable};
use crate::limits::{GRAPHQL_DEFINITIONS_MAX, GRAPHQL_DEPTH_MAX};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OperationKind {
    Query,
    Mutation,
    Subscription,
}

impl OperationKind {
    pub(crate) const ALL: [Self; 3] = [Self::Query, Self::Mutation, Self::Subscription];

    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Query => "query",
            Self::Mutation => "mutation",
            Self::Subscription => "subscription",
        }
    }

    pub(crate) fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.word() == word)
    }
}

/// One operation: what it does at the root, by the real names of the fields, aliases undone and fragments unfolded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Operation<'a> {
    pub(crate) kind: OperationKind,
    pub(crate) name: Option<&'a str>,
    /// In the order in which they come, each once.
    pub(crate) fields: Vec<&'a str>,
}

/// Reads a document of executable definitions.
///
/// # Errors
/// It has no reading that everybody shares, or no operation.
pub(crate) fn read(text: &str) -> Result<Vec<Operation<'_>>, Unreadable> {
    let mut reader = Reader { lexer: Lexer::new(text), next: Token::End };
    reader.step()?;
    let (mut operations, mut fragments) = (Vec::new(), HashMap::new());
    while reader.next != Token::End {
        if operations.len() + fragments.len() >= GRAPHQL_DEFINITIONS_MAX {
            return Err(Unreadable::TooComplex);
        }
        match reader.next {
            Token::Mark(b'{') => operations.push((OperationKind::Query, None, reader.selections(0)?)),
            Token::Name("fragment") => {
                let (name, selections) = reader.fragment()?;
                // 5.5.1.1: of two fragments of one name one server takes the first and another the last.
                if fragments.insert(name, selections).is_some() {
                    return Err(Unreadable::Malformed);
                }
            }
            Token::Name(word) => {
                let kind = OperationKind::from_word(word).ok_or(Unreadable::Malformed)?;
                operations.push(reader.operation(kind)?);
            }
            _ => return Err(Unreadable::Malformed),
        }
    }
    if operations.is_empty() {
        return Err(Unreadable::Malformed);
    }
    let unfolded = operations.into_iter().map(|(kind, name, selections)| {
        let (mut fields, mut seen) = (Vec::new(), Vec::new());
        unfold(&selections, &fragments, &mut seen, &mut fields, 0)?;
        // SECURITY: only a cycle of fragments asks for nothing (5.5.2.2 forbids it), and a list of fields holds of nothing.
        if fields.is_empty() {
            return Err(Unreadable::Malformed);
        }
        Ok(Operation { kind, name, fields })
    });
    unfolded.collect()
}

type Fragments<'a> = HashMap<&'a str, Vec<Selection<'a>>>;

/// One entry of a selection set, as far as the root's fields are concerned.
#[derive(Debug)]
enum Selection<'a> {
    Field(&'a str),
    Spread(&'a str),
    Inline(Vec<Selection<'a>>),
}

/// Collects the fields; a fragment is unfolded once, so a cycle of them ends.
fn unfold<'a>(
    selections: &[Selection<'a>],
    fragments: &Fragments<'a>,
    seen: &mut Vec<&'a str>,
    fields: &mut Vec<&'a str>,
    depth: usize,
) -> Result<(), Unreadable> {
    if depth > GRAPHQL_DEPTH_MAX {
        return Err(Unreadable::TooComplex);
    }
    for selection in selections {
        match selection {
            Selection::Field(name) if fields.contains(name) => {}
            Selection::Field(name) => fields.push(name),
            Selection::Inline(inner) => unfold(inner, fragments, seen, fields, depth + 1)?,
            Selection::Spread(name) if seen.contains(name) => {}
            Selection::Spread(name) => {
                seen.push(name);
                let inner = fragments.get(name).ok_or(Unreadable::Malformed)?;
                unfold(inner, fragments, seen, fields, depth + 1)?;
            }
        }
    }
    Ok(())
}

struct Reader<'a> {
    lexer: Lexer<'a>,
    next: Token<'a>,
}

impl<'a> Reader<'a> {
    /// Takes the token.
    fn step(&mut self) -> Result<Token<'a>, Unreadable> {
        let next = self.lexer.next()?;
        Ok(std::mem::replace(&mut self.next, next))
    }

    fn wrong(&self) -> Unreadable {
        if self.next == Token::End { Unreadable::Truncated } else { Unreadable::Malformed }
    }

    fn mark(&mut self, mark: u8) -> Result<(), Unreadable> {
        if self.next != Token::Mark(mark) {
            return Err(self.wrong());
        }
        self.step().map(drop)
    }

    /// Takes the mark where it stands.
    fn takes(&mut self, mark: u8) -> Result<bool, Unreadable> {
        let there = self.next == Token::Mark(mark);
        if there {
            self.step()?;
        }
        Ok(there)
    }

    fn name(&mut self) -> Result<&'a str, Unreadable> {
        let Token::Name(name) = self.next else { return Err(self.wrong()) };
        self.step()?;
        Ok(name)
    }

    fn operation(
        &mut self,
        kind: OperationKind,
    ) -> Result<(OperationKind, Option<&'a str>, Vec<Selection<'a>>), Unreadable> {
        self.step()?;
        let name = if matches!(self.next, Token::Name(_)) { Some(self.name()?) } else { None };
        if self.takes(b'(')? {
            while !self.takes(b')')? {
                self.mark(b'$')?;
                self.name()?;
                self.mark(b':')?;
                self.kind(0)?;
                if self.takes(b'=')? {
                    self.value(0)?;
                }
                self.directives()?;
            }
        }
        self.directives()?;
        Ok((kind, name, self.selections(0)?))
    }

    fn fragment(&mut self) -> Result<(&'a str, Vec<Selection<'a>>), Unreadable> {
        self.step()?;
        let name = self.name()?;
        if name == "on" || self.name()? != "on" {
            return Err(Unreadable::Malformed);
        }
        self.name()?;
        self.directives()?;
        Ok((name, self.selections(0)?))
    }

    fn selections(&mut self, depth: usize) -> Result<Vec<Selection<'a>>, Unreadable> {
        let depth = deeper(depth)?;
        self.mark(b'{')?;
        let mut selections = Vec::new();
        while !self.takes(b'}')? {
            selections.push(if self.next == Token::Spread {
                self.spread(depth)?
            } else {
                self.field(depth)?
            });
        }
        if selections.is_empty() { Err(Unreadable::Malformed) } else { Ok(selections) }
    }

    fn spread(&mut self, depth: usize) -> Result<Selection<'a>, Unreadable> {
        self.step()?;
        match self.next {
            Token::Name("on") => {
                self.step()?;
                self.name()?;
            }
            Token::Name(name) => {
                self.step()?;
                self.directives()?;
                return Ok(Selection::Spread(name));
            }
            _ => {}
        }
        self.directives()?;
        Ok(Selection::Inline(self.selections(depth)?))
    }

    fn field(&mut self, depth: usize) -> Result<Selection<'a>, Unreadable> {
        let mut name = self.name()?;
        // SECURITY: what stands before the colon is an alias, a name of the client's choice.
        if self.takes(b':')? {
            name = self.name()?;
        }
        self.arguments(depth)?;
        self.directives()?;
        if self.next == Token::Mark(b'{') {
            self.selections(depth)?;
        }
        Ok(Selection::Field(name))
    }

    fn arguments(&mut self, depth: usize) -> Result<(), Unreadable> {
        if self.takes(b'(')? {
            while !self.takes(b')')? {
                self.name()?;
                self.mark(b':')?;
                self.value(depth)?;
            }
        }
        Ok(())
    }

    fn directives(&mut self) -> Result<(), Unreadable> {
        while self.takes(b'@')? {
            self.name()?;
            self.arguments(0)?;
        }
        Ok(())
    }

    fn value(&mut self, depth: usize) -> Result<(), Unreadable> {
        let depth = deeper(depth)?;
        match self.step()? {
            Token::Mark(b'$') => self.name().map(drop),
            Token::Mark(b'[') => {
                while !self.takes(b']')? {
                    self.value(depth)?;
                }
                Ok(())
            }
            Token::Mark(b'{') => {
                while !self.takes(b'}')? {
                    self.name()?;
                    self.mark(b':')?;
                    self.value(depth)?;
                }
                Ok(())
            }
            Token::Literal | Token::Name(_) => Ok(()),
            Token::End => Err(Unreadable::Truncated),
            _ => Err(Unreadable::Malformed),
        }
    }

    /// A type of a variable: `[Name!]!`.
    fn kind(&mut self, depth: usize) -> Result<(), Unreadable> {
        let depth = deeper(depth)?;
        if self.takes(b'[')? {
            self.kind(depth)?;
            self.mark(b']')?;
        } else {
            self.name()?;
        }
        self.takes(b'!').map(drop)
    }
}

fn deeper(depth: usize) -> Result<usize, Unreadable> {
    if depth >= GRAPHQL_DEPTH_MAX { Err(Unreadable::TooComplex) } else { Ok(depth + 1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `kind name: fields` of each operation.
    fn seen(text: &str) -> Result<Vec<String>, Unreadable> {
        let line = |operation: Operation<'_>| {
            let name = operation.name.unwrap_or("-");
            format!("{} {name}: {}", operation.kind.word(), operation.fields.join(" "))
        };
        Ok(read(text)?.into_iter().map(line).collect())
    }

    #[test]
    fn names_every_root_field_whatever_it_hides_behind() {
        for (text, expected) in [
            ("{a}", "query -: a"),
            ("query{a b(x:1){c}}", "query -: a b"),
            ("query Q($a:[Int!]!=[1],$b:T={x:\"}\"}@d(e:1)){a}", "query Q: a"),
            (
                "mutation M { viewer: deleteRepository(input: {id: $x}) { ok } }",
                "mutation M: deleteRepository",
            ),
            ("query{...F} fragment F on Query{b ...G} fragment G on Query{c ...F}", "query -: b c"),
            ("query{... on Query @include(if:false){secret} ...{other}}", "query -: secret other"),
            ("subscription{a @skip(if:true)}", "subscription -: a"),
            ("{a(x:\"\"\" } \\\"\"\" { b \"\"\") c}", "query -: a c"),
            ("{a(x:\"}{\\\"\") # } b\n c}", "query -: a c"),
            ("{a a:b}", "query -: a b"),
            ("{,a,,b,}", "query -: a b"),
            ("{query mutation fragment on}", "query -: query mutation fragment on"),
            ("{__typename __schema{types{name}}}", "query -: __typename __schema"),
        ] {
            assert_eq!(seen(text).map(|found| found.join("; ")), Ok(expected.to_owned()), "{text}");
        }
        assert_eq!(seen("query A{a} mutation B{b}"), Ok(vec!["query A: a".into(), "mutation B: b".into()]));
    }

    #[test]
    fn refuses_what_has_no_one_reading() {
        let deep = format!("{}a{}", "{a".repeat(100), "}".repeat(100));
        let list = format!("{{a(x:{}1{})}}", "[".repeat(100), "]".repeat(100));
        let kinds = format!("query($a:{}I{}){{a}}", "[".repeat(100), "]".repeat(100));
        let many = format!("{{{}}}", "a ".repeat(GRAPHQL_DEPTH_MAX * 1000));
        for (text, why) in [
            ("", Unreadable::Malformed),
            ("{}", Unreadable::Malformed),
            ("{a", Unreadable::Truncated),
            ("{a(x:\"", Unreadable::Truncated),
            ("query", Unreadable::Truncated),
            ("{a}}", Unreadable::Malformed),
            ("{...Missing}", Unreadable::Malformed),
            ("{...F} fragment F on Q{...F}", Unreadable::Malformed),
            ("{...F} fragment F on Q{... on Q{...G}} fragment G on Q{...F}", Unreadable::Malformed),
            ("{a} query B{...F} fragment F on Q{...F}", Unreadable::Malformed),
            ("fragment F on Q{a}", Unreadable::Malformed),
            ("{...F} fragment F on Q{a} fragment F on Q{b}", Unreadable::Malformed),
            ("fragment on on Q{a} {a}", Unreadable::Malformed),
            ("type T{a:Int} {a}", Unreadable::Malformed),
            ("{a(x:01)}", Unreadable::Malformed),
            ("{a(x:1b)}", Unreadable::Malformed),
            ("{a(x:\"\\u{41}\")}", Unreadable::Malformed),
            ("{a(x:\"\n\")}", Unreadable::Malformed),
            ("\u{feff}{a}", Unreadable::Malformed),
            ("{a #\u{2028} b\n}", Unreadable::Malformed),
            ("{a\u{a0}b}", Unreadable::Malformed),
            (&deep, Unreadable::TooComplex),
            (&list, Unreadable::TooComplex),
            (&kinds, Unreadable::TooComplex),
            (&many, Unreadable::TooComplex),
        ] {
            assert_eq!(seen(text), Err(why), "{}", text.get(..30).unwrap_or(text));
        }
    }
}
