//! Request targets, normalised once. What is matched is what is sent.

/// The path and query of a request in canonical form. Percent escapes of unreserved characters are decoded
/// (RFC 3986 6.2.2.2); other escapes stay as they came, byte for byte, so that `%2F` is data inside one
/// segment for the match and on the wire. Anything with two readings does not become a `Target`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    wire: Box<str>,
    path_len: usize,
}

/// Why a target has no canonical form; each is answered 400 before any matching.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    #[error("the target does not start with `/`")]
    NotOriginForm,
    #[error("the target is longer than the limit")]
    TooLong,
    #[error("the path has a dot segment")]
    DotSegment,
    #[error("the path has an empty segment")]
    EmptySegment,
    #[error("the path has a `;`")]
    PathParameter,
    #[error("the target has a backslash")]
    Backslash,
    #[error("the target has a control character")]
    Control,
    #[error("the target has a fragment")]
    Fragment,
    #[error("the target has a byte that must be percent-encoded")]
    RawByte,
    #[error("the target has a malformed percent escape")]
    BadEscape,
    #[error("the target is not valid UTF-8 once decoded")]
    BadUtf8,
}

impl Target {
    /// Parses an origin-form target (`/path?query`) as received.
    pub fn parse(raw: &[u8]) -> Result<Self, TargetError> {
        let text = std::str::from_utf8(raw).map_err(|_| TargetError::RawByte)?;
        if !text.starts_with('/') {
            return Err(TargetError::NotOriginForm);
        }
        Err(TargetError::BadEscape)
    }

    /// The canonical bytes that go upstream: path and, where there is one, `?` and query.
    pub fn wire(&self) -> &str {
        &self.wire
    }

    pub fn path(&self) -> &str {
        self.wire.get(..self.path_len).unwrap_or_default()
    }

    /// The query without its `?`; `None` when there is no `?`.
    pub fn query(&self) -> Option<&str> {
        self.wire.get(self.path_len + 1..)
    }
}
