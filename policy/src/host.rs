//! Host names, normalised once: lower case, no trailing dot, never an IP address.

use serde::Serialize;

/// A DNS host name in canonical form: ASCII lower case, labels of 1-63 bytes of letters, digits, `-`
/// (and `_` inside service labels), no trailing dot, at most 253 bytes (RFC 1035 2.3.4, RFC 5890 2.3.1).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Host(Box<str>);

/// Why a text is not a host name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    #[error("the host name is empty")]
    Empty,
    #[error("the host name is longer than 253 bytes")]
    TooLong,
    #[error("`{0}` is not a host name")]
    Malformed(String),
    #[error("`{0}` is an IP address, not a host name")]
    Address(String),
}

impl Host {
    /// Parses and normalises `raw`: case is folded, one trailing dot is dropped. Every spelling of an
    /// IPv4 address that some resolver accepts (`127.1`, `0x7f.1`, `2130706433`) is refused as an address.
    pub fn parse(raw: &str) -> Result<Self, HostError> {
        let text = raw.strip_suffix('.').unwrap_or(raw);
        if text.is_empty() {
            return Err(HostError::Empty);
        }
        if text.len() > 253 {
            return Err(HostError::TooLong);
        }
        let label_ok = |label: &str| {
            !label.is_empty()
                && label.len() <= 63
                && !label.starts_with('-')
                && !label.ends_with('-')
                && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
        };
        if !text.split('.').all(label_ok) {
            return Err(HostError::Malformed(raw.to_owned()));
        }
        // SECURITY: the last label of a name is never numeric (WHATWG URL "ends in a number"): what looks
        // like a number would be read as an IPv4 address by some resolver. Guarded by ATTACKS A38.
        let last = text.rsplit('.').next().unwrap_or(text);
        let numeric = last.bytes().all(|b| b.is_ascii_digit())
            || last
                .strip_prefix("0x")
                .or_else(|| last.strip_prefix("0X"))
                .is_some_and(|hex| hex.bytes().all(|b| b.is_ascii_hexdigit()));
        if numeric {
            return Err(HostError::Address(raw.to_owned()));
        }
        Ok(Self(text.to_ascii_lowercase().into_boxed_str()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}
