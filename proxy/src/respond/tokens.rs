//! Tokens that an upstream hands out in exchange for our credential (ATTACKS C22).
//!
//! In: the body of a JSON or form-encoded answer, piece by piece. Out: the same bytes with the values of fields that are
//! named as OAuth 2.0 names its tokens (RFC 6749 5.1, OpenID Connect) masked. They would be credentials of their own,
//! outside every grant.

use memchr::{memchr, memchr2};

const NAMES: [&[u8]; 5] =
    [b"access_token", b"refresh_token", b"id_token", b"client_secret", b"registration_access_token"];
/// A longer string is none of the names.
const LONGEST: usize = 32;

/// Where in the document the last piece ended.
#[derive(Debug)]
pub(super) enum TokenMask {
    Json(Json),
    Form(Form),
}

#[derive(Debug, Default)]
pub(super) struct Json {
    state: JsonState,
    /// The string that is being read, as far as it could be a name.
    text: Vec<u8>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum JsonState {
    #[default]
    Outside,
    Text,
    TextEscape,
    AfterName,
    AfterColon,
    Token,
    TokenEscape,
}

#[derive(Debug, Default)]
pub(super) struct Form {
    name: Vec<u8>,
    in_token: bool,
    in_value: bool,
}

impl TokenMask {
    /// For bodies of this type; `None` where there is nothing to look for.
    pub(super) fn for_type(content_type: Option<&[u8]>) -> Option<Self> {
        let kind = content_type?.split(|byte| *byte == b';').next()?.trim_ascii().to_ascii_lowercase();
        match kind.as_slice() {
            b"application/json" | b"text/json" => Some(Self::Json(Json::default())),
            b"application/x-www-form-urlencoded" => Some(Self::Form(Form::default())),
            kind if kind.ends_with(b"+json") => Some(Self::Json(Json::default())),
            _ => None,
        }
    }

    /// Masks tokens in the next piece; true when there was one.
    pub(super) fn mask(&mut self, bytes: &mut [u8]) -> bool {
        match self {
            Self::Json(json) => json.mask(bytes),
            Self::Form(form) => form.mask(bytes),
        }
    }
}

impl Json {
    fn mask(&mut self, bytes: &mut [u8]) -> bool {
        let mut found = false;
        let mut at = 0;
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            // Most of a document is neither a quote nor a name: skip to what matters.
            at += match self.state {
                JsonState::Outside => memchr(b'"', rest).unwrap_or(rest.len()),
                JsonState::Text if self.text.len() > LONGEST => {
                    memchr2(b'"', b'\\', rest).unwrap_or(rest.len())
                }
                _ => 0,
            };
            let Some(byte) = bytes.get_mut(at) else { break };
            at += 1;
            found |= self.step(byte);
        }
        found
    }

    /// One byte; true when it was masked.
    fn step(&mut self, byte: &mut u8) -> bool {
        use JsonState::{AfterColon, AfterName, Outside, Text, TextEscape, Token, TokenEscape};
        let white = matches!(*byte, b' ' | b'\t' | b'\r' | b'\n');
        self.state = match (self.state, *byte) {
            (Outside | AfterName, b'"') => {
                self.text.clear();
                Text
            }
            (Outside, _) => Outside,
            (Text, b'"') if NAMES.contains(&self.text.as_slice()) => AfterName,
            (Text, b'"') => Outside,
            (Text, b'\\') => {
                // None of the names has an escape in it.
                self.text.resize(LONGEST + 1, 0);
                TextEscape
            }
            (Text, letter) => {
                if self.text.len() <= LONGEST {
                    self.text.push(letter.to_ascii_lowercase());
                }
                Text
            }
            (TextEscape, _) => Text,
            (AfterName, b':') => AfterColon,
            (AfterColon, b'"') => Token,
            (AfterName | AfterColon, _) if white => self.state,
            (AfterName | AfterColon, _) => Outside,
            (Token, b'"') => Outside,
            (Token, letter) => {
                *byte = b'*';
                self.state = if letter == b'\\' { TokenEscape } else { Token };
                return true;
            }
            (TokenEscape, _) => {
                *byte = b'*';
                Token
            }
        };
        false
    }
}

impl Form {
    fn mask(&mut self, bytes: &mut [u8]) -> bool {
        let mut found = false;
        for byte in bytes {
            match *byte {
                b'&' => *self = Self::default(),
                b'=' if !self.in_value => {
                    self.in_value = true;
                    self.in_token = NAMES.contains(&self.name.as_slice());
                }
                _ if self.in_token => {
                    *byte = b'*';
                    found = true;
                }
                letter if !self.in_value && self.name.len() <= LONGEST => {
                    self.name.push(letter.to_ascii_lowercase());
                }
                _ => {}
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mask(kind: &str, body: &str, size: usize) -> String {
        let mut mask = TokenMask::for_type(Some(kind.as_bytes())).unwrap();
        let mut bytes = body.as_bytes().to_vec();
        for piece in bytes.chunks_mut(size) {
            mask.mask(piece);
        }
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn c22_masks_values_of_token_fields_only() {
        for (body, expected) in [
            (r#"{"access_token":"abc"}"#, r#"{"access_token":"***"}"#),
            (r#"{ "refresh_token" : "a\"b" , "x":1}"#, r#"{ "refresh_token" : "****" , "x":1}"#),
            (r#"{"a":{"b":[{"id_token":"abc"}]}}"#, r#"{"a":{"b":[{"id_token":"***"}]}}"#),
            (r#"{"Access_Token":"abc"}"#, r#"{"Access_Token":"***"}"#),
            (r#"{"note":"access_token","x":"y"}"#, r#"{"note":"access_token","x":"y"}"#),
            (r#"{"access_token":null,"x":"y"}"#, r#"{"access_token":null,"x":"y"}"#),
            (r#"["access_token","x"]"#, r#"["access_token","x"]"#),
            (r#"{"say":"\"access_token\":","x":"y"}"#, r#"{"say":"\"access_token\":","x":"y"}"#),
            (r#"{"token_type":"bearer"}"#, r#"{"token_type":"bearer"}"#),
        ] {
            for size in 1..=body.len() {
                assert_eq!(mask("application/json", body, size), expected, "pieces of {size}");
            }
        }
    }

    #[test]
    fn c22_masks_form_encoded_answers() {
        let (body, expected) =
            ("access_token=gho_1&scope=repo&id_token=", "access_token=*****&scope=repo&id_token=");
        for size in 1..=body.len() {
            assert_eq!(mask("application/x-www-form-urlencoded", body, size), expected);
        }
    }

    #[test]
    fn looks_into_json_and_forms_only() {
        for (kind, looks) in [
            ("application/json; charset=utf-8", true),
            ("Application/Problem+JSON", true),
            ("text/html", false),
            ("application/octet-stream", false),
        ] {
            assert_eq!(TokenMask::for_type(Some(kind.as_bytes())).is_some(), looks, "{kind}");
        }
        assert!(TokenMask::for_type(None).is_none());
    }
}
