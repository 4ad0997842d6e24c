//! Tokens of a GraphQL document (October 2021, 2.1). Stricter than the specification where servers differ.

use crate::limits::GRAPHQL_TOKENS_MAX;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Token<'a> {
    /// One of `! $ & ( ) : = @ [ ] { | }`.
    Mark(u8),
    Spread,
    Name(&'a str),
    /// A number or a text: where it stands matters, what it says does not.
    Literal,
    End,
}

/// Why a document cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unreadable {
    Malformed,
    /// It ends inside something.
    Truncated,
    TooComplex,
}

#[derive(Debug)]
pub(super) struct Lexer<'a> {
    text: &'a str,
    at: usize,
    tokens: usize,
}

impl<'a> Lexer<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, at: 0, tokens: 0 }
    }

    fn byte(&self, ahead: usize) -> Option<u8> {
        self.text.as_bytes().get(self.at + ahead).copied()
    }

    fn starts_with(&self, text: &str) -> bool {
        self.text.get(self.at..).is_some_and(|rest| rest.starts_with(text))
    }

    /// The next token.
    pub(super) fn next(&mut self) -> Result<Token<'a>, Unreadable> {
        self.skip_ignored()?;
        self.tokens += 1;
        if self.tokens > GRAPHQL_TOKENS_MAX {
            return Err(Unreadable::TooComplex);
        }
        let Some(byte) = self.byte(0) else { return Ok(Token::End) };
        match byte {
            b'!' | b'$' | b'&' | b'(' | b')' | b':' | b'=' | b'@' | b'[' | b']' | b'{' | b'|' | b'}' => {
                self.at += 1;
                Ok(Token::Mark(byte))
            }
            b'.' if self.starts_with("...") => {
                self.at += 3;
                Ok(Token::Spread)
            }
            b'"' if self.starts_with("\"\"\"") => self.block(),
            b'"' => self.string(),
            b'-' | b'0'..=b'9' => self.number(),
            b'_' | b'a'..=b'z' | b'A'..=b'Z' => Ok(Token::Name(self.name())),
            _ => Err(Unreadable::Malformed),
        }
    }

    fn skip_ignored(&mut self) -> Result<(), Unreadable> {
        while let Some(byte) = self.byte(0) {
            match byte {
                b' ' | b'\t' | b'\n' | b'\r' | b',' => self.at += 1,
                b'#' => self.comment()?,
                _ => break,
            }
        }
        Ok(())
    }

    fn comment(&mut self) -> Result<(), Unreadable> {
        while let Some(byte) = self.byte(0) {
            match byte {
                b'\n' | b'\r' => break,
                // SECURITY: U+2028 and its like end a comment for some readers: nothing but plain text passes in one.
                b'\t' | b' '..=b'~' => self.at += 1,
                _ => return Err(Unreadable::Malformed),
            }
        }
        Ok(())
    }

    fn name(&mut self) -> &'a str {
        let start = self.at;
        while self.byte(0).is_some_and(|byte| byte == b'_' || byte.is_ascii_alphanumeric()) {
            self.at += 1;
        }
        self.text.get(start..self.at).unwrap_or_default()
    }

    fn number(&mut self) -> Result<Token<'a>, Unreadable> {
        let start = self.at;
        while self
            .byte(0)
            .is_some_and(|byte| byte.is_ascii_digit() || matches!(byte, b'-' | b'+' | b'.' | b'e' | b'E'))
        {
            self.at += 1;
        }
        let text = self.text.get(start..self.at).unwrap_or_default();
        // 2.9.1: a name or a dot right behind a number is an error. The numbers of JSON are those of GraphQL.
        let glued = self.byte(0).is_some_and(|byte| byte == b'_' || byte.is_ascii_alphabetic());
        let good = serde_json::from_str::<serde_json::Number>(text).is_ok();
        if glued || !good { Err(Unreadable::Malformed) } else { Ok(Token::Literal) }
    }

    fn string(&mut self) -> Result<Token<'a>, Unreadable> {
        self.at += 1;
        loop {
            match self.byte(0).ok_or(Unreadable::Truncated)? {
                b'"' => break,
                b'\\' => self.escape()?,
                byte if byte < b' ' && byte != b'\t' => return Err(Unreadable::Malformed),
                _ => self.at += 1,
            }
        }
        self.at += 1;
        Ok(Token::Literal)
    }

    /// Only what every edition has: `\u{…}` is a surprise to older readers.
    fn escape(&mut self) -> Result<(), Unreadable> {
        let length = match self.byte(1).ok_or(Unreadable::Truncated)? {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => 2,
            b'u' if (2..6).all(|ahead| self.byte(ahead).is_some_and(|byte| byte.is_ascii_hexdigit())) => 6,
            _ => return Err(Unreadable::Malformed),
        };
        self.at += length;
        Ok(())
    }

    fn block(&mut self) -> Result<Token<'a>, Unreadable> {
        self.at += 3;
        loop {
            if self.starts_with("\\\"\"\"") {
                self.at += 4;
            } else if self.starts_with("\"\"\"") {
                self.at += 3;
                return Ok(Token::Literal);
            } else {
                match self.byte(0).ok_or(Unreadable::Truncated)? {
                    byte if byte < b' ' && !matches!(byte, b'\t' | b'\n' | b'\r') => {
                        return Err(Unreadable::Malformed);
                    }
                    _ => self.at += 1,
                }
            }
        }
    }
}
