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
    #[error("`{0}` has an `xn--` label that is not the one spelling of an international name")]
    Idna(String),
}

/// Whether a lower-case ASCII name is exactly what UTS 46 makes of itself.
fn is_strict_idna(lower: &str) -> bool {
    use idna::uts46::{AsciiDenyList, DnsLength, Hyphens, Uts46};
    let mapped =
        Uts46::new().to_ascii(lower.as_bytes(), AsciiDenyList::EMPTY, Hyphens::Allow, DnsLength::Verify);
    mapped.is_ok_and(|ascii| ascii == lower)
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
        let lower = text.to_ascii_lowercase();
        // SECURITY: `xn--api-` decodes to `api`: one name with two spellings. Guarded by ATTACKS A36.
        if lower.split('.').any(|label| label.starts_with("xn--")) && !is_strict_idna(&lower) {
            return Err(HostError::Idna(raw.to_owned()));
        }
        Ok(Self(lower.into_boxed_str()))
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

#[cfg(test)]
mod tests {
    use super::{Host, HostError};

    #[test]
    fn a33_case_and_one_trailing_dot_do_not_matter() {
        for raw in ["api.test", "API.TesT", "api.test.", "API.test."] {
            assert_eq!(Host::parse(raw).unwrap().as_str(), "api.test", "{raw}");
        }
        assert!(Host::parse("api.test..").is_err());
    }

    #[test]
    fn a38_refuses_every_spelling_of_an_ipv4_address() {
        for raw in [
            "2130706433",
            "0x7f.1",
            "0177.0.0.1",
            "127.1",
            "010.0.0.1",
            "127.0.0.1.",
            "127.0.0.1",
            "0x",
            "a.0x7f",
            "a.1",
        ] {
            assert!(matches!(Host::parse(raw), Err(HostError::Address(_))), "{raw}");
        }
    }

    #[test]
    fn a21_a34_a51_refuses_userinfo_brackets_ports_paths_and_wildcards() {
        for raw in [
            "api.test@evil.test",
            "[api.test]",
            "[[evil.test]]",
            "[::1]",
            "api.test:443",
            "api.test/v1",
            "*.api.test",
            "*",
            " api.test",
            "api.test ",
            "api.test\u{a0}",
            "a..b",
            ".a",
            "-a.test",
            "a-.test",
            "a,b",
            "a%2eb",
            "api.test\0",
        ] {
            assert!(matches!(Host::parse(raw), Err(HostError::Malformed(_))), "{raw:?}");
        }
        assert_eq!(Host::parse(""), Err(HostError::Empty));
        assert_eq!(Host::parse("."), Err(HostError::Empty));
        assert_eq!(Host::parse(&"a.".repeat(130)), Err(HostError::TooLong));
        assert!(Host::parse(&"a".repeat(64)).is_err());
    }

    #[test]
    fn a36_takes_international_names_in_their_one_ascii_form_only() {
        assert_eq!(Host::parse("xn--bcher-kva.test").unwrap().as_str(), "xn--bcher-kva.test");
        for raw in [
            "xn--api-.test",
            "xn--.test",
            "xn--a.test",
            "xn--BCHER-KVA-.test",
            "b\u{fc}cher.test",
            "\u{ff41}pi.test",
        ] {
            assert!(Host::parse(raw).is_err(), "{raw}");
        }
    }
}
