//! Upstream origins: `https://HOST[:PORT]` and nothing else.

use crate::diagnostic::Code;
use crate::{Host, HostError};

/// Where requests of an API go. Always HTTPS.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Origin {
    pub(crate) host: Host,
    pub(crate) port: u16,
}

pub(crate) const HTTPS_PORT: u16 = 443;

/// Ports at which the broker itself answers in every gate.
const GATE_PORTS: [(u16, &str); 2] = [(53, "the name server's"), (3128, "the proxy's")];

/// Names that clouds resolve to a metadata service (ATTACKS D10).
const METADATA_HOSTS: [&str; 5] = [
    "metadata.google.internal",
    "metadata.goog",
    "metadata.azure.internal",
    "metadata.tencentyun.com",
    "instance-data.ec2.internal",
];

/// Why a text is not an origin.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct OriginError {
    pub(crate) code: Code,
    pub(crate) message: String,
    pub(crate) help: String,
}

fn refuse<T>(code: Code, message: impl Into<String>, help: impl Into<String>) -> Result<T, OriginError> {
    Err(OriginError { code, message: message.into(), help: help.into() })
}

impl Origin {
    pub(crate) fn parse(text: &str) -> Result<Self, OriginError> {
        let Some(authority) = text.strip_prefix("https://") else {
            return match text.split_once("://") {
                Some(("http", rest)) => refuse(
                    Code::BadOrigin,
                    format!("`{text}` is not HTTPS"),
                    format!("credentials and requests go over verified TLS only: `https://{rest}`"),
                ),
                Some(_) => refuse(
                    Code::BadOrigin,
                    format!("`{text}` is not HTTPS"),
                    "an origin is `https://HOST[:PORT]`",
                ),
                None => refuse(
                    Code::BadOrigin,
                    format!("`{text}` is not an origin"),
                    format!("write the scheme: `https://{text}`"),
                ),
            };
        };
        if let Some(at) = authority.find(['/', '?', '#']) {
            let bare = authority.get(..at).unwrap_or_default();
            return refuse(
                Code::BadOrigin,
                format!("`{text}` has more than scheme, host and port"),
                format!("write `https://{bare}`; paths belong in route lines"),
            );
        }
        if authority.contains('@') {
            return refuse(
                Code::BadOrigin,
                "an origin with a user name",
                "credentials are defined in `[credential.NAME]`",
            );
        }
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !authority.ends_with(']') => (host, port_number(port, text)?),
            _ => (authority, HTTPS_PORT),
        };
        Ok(Self { host: host_name(host)?, port })
    }

    /// `HOST:PORT` of a TCP destination.
    pub(crate) fn parse_destination(text: &str) -> Result<Self, OriginError> {
        const EXAMPLE: &str = "write `HOST:PORT`, for example `db.internal:5432`";
        if text.contains("://") {
            return refuse(Code::BadOrigin, format!("`{text}` has a scheme"), EXAMPLE);
        }
        let Some((host, port)) = text.rsplit_once(':').filter(|_| !text.ends_with(']')) else {
            return refuse(Code::BadOrigin, format!("`{text}` has no port"), EXAMPLE);
        };
        let port = port_number(port, text)?;
        if let Some((_, whose)) = GATE_PORTS.iter().find(|(taken, _)| *taken == port) {
            let help = format!("in a gate this port is {whose}; let the server listen on another one too");
            return refuse(Code::BadOrigin, format!("port {port} cannot be granted"), help);
        }
        Ok(Self { host: host_name(host)?, port })
    }

    /// `https://host`, with the port where it is not 443.
    pub(crate) fn url(&self) -> String {
        url(&self.host, self.port)
    }
}

pub(crate) fn url(host: &Host, port: u16) -> String {
    if port == HTTPS_PORT { format!("https://{host}") } else { format!("https://{host}:{port}") }
}

/// A host name exactly as policy files must write it.
pub(crate) fn host_name(text: &str) -> Result<Host, OriginError> {
    if text.contains('*') {
        return refuse(
            Code::WildcardHost,
            format!("`{text}` has a wildcard"),
            "name each host; a wildcard would send the credential to hosts that nobody reviewed",
        );
    }
    if !text.is_ascii() {
        let ascii = idna::domain_to_ascii(text).ok().and_then(|ascii| Host::parse(&ascii).ok());
        let help = match ascii {
            Some(host) => format!("if this very name is meant, write its ASCII form `{host}`"),
            None => "write the ASCII form of the name".to_owned(),
        };
        return refuse(
            Code::BadOrigin,
            format!("`{}` has characters outside ASCII", text.escape_unicode_only()),
            help,
        );
    }
    match Host::parse(text) {
        Ok(host) if METADATA_HOSTS.contains(&host.as_str()) => refuse(
            Code::MetadataHost,
            format!("`{text}` is a metadata service"),
            "it hands out the credentials of the host itself; it can never be granted",
        ),
        Ok(host) if host.as_str() != text => {
            refuse(Code::BadOrigin, format!("`{text}` is not in its plain form"), format!("write `{host}`"))
        }
        Ok(host) => Ok(host),
        Err(error) => {
            let help = match error {
                HostError::Address(_) => {
                    "an origin has a host name; name its addresses in `addresses` where they are private"
                }
                HostError::Malformed(_) if text.starts_with('[') => {
                    "an origin has a host name, not an address"
                }
                _ => "a host name has labels of letters, digits and `-`, separated by dots",
            };
            refuse(Code::BadOrigin, error.to_string(), help)
        }
    }
}

fn port_number(text: &str, whole: &str) -> Result<u16, OriginError> {
    let plain = !text.is_empty() && !text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse() {
        Ok(port) if plain => Ok(port),
        _ => {
            refuse(Code::BadOrigin, format!("`{whole}` has a bad port"), "a port is a number from 1 to 65535")
        }
    }
}

trait EscapeUnicodeOnly {
    fn escape_unicode_only(&self) -> String;
}

impl EscapeUnicodeOnly for str {
    /// Letters that look alike are told apart in the message.
    fn escape_unicode_only(&self) -> String {
        self.chars()
            .map(|c| if c.is_ascii() { c.to_string() } else { c.escape_unicode().to_string() })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Origin;
    use crate::Code;

    #[test]
    fn takes_exact_https_origins_only() {
        for (text, url) in [
            ("https://api.test", "https://api.test"),
            ("https://api.test:443", "https://api.test"),
            ("https://api.test:8443", "https://api.test:8443"),
            ("https://xn--bcher-kva.test", "https://xn--bcher-kva.test"),
            ("https://localhost:9443", "https://localhost:9443"),
        ] {
            assert_eq!(Origin::parse(text).unwrap().url(), url);
        }
    }

    #[test]
    fn takes_host_and_port_of_a_destination_only() {
        let db = Origin::parse_destination("db.internal:5432").unwrap();
        assert_eq!((db.host.as_str(), db.port), ("db.internal", 5432));
        for (text, code, help) in [
            ("db.internal", Code::BadOrigin, "HOST:PORT"),
            ("tcp://db.internal:5432", Code::BadOrigin, "HOST:PORT"),
            ("db.internal:", Code::BadOrigin, "65535"),
            ("db.internal:0", Code::BadOrigin, "65535"),
            ("db.internal:05432", Code::BadOrigin, "65535"),
            ("db.internal:53", Code::BadOrigin, "name server"),
            ("db.internal:3128", Code::BadOrigin, "proxy"),
            ("DB.internal:5432", Code::BadOrigin, "`db.internal`"),
            ("10.0.0.1:5432", Code::BadOrigin, "addresses"),
            ("[::1]:5432", Code::BadOrigin, "not an address"),
            ("*.internal:5432", Code::WildcardHost, "each host"),
            ("metadata.google.internal:80", Code::MetadataHost, "never"),
        ] {
            let error = Origin::parse_destination(text).unwrap_err();
            assert_eq!(error.code, code, "{text}: {error:?}");
            assert!(error.help.contains(help), "{text}: {error:?}");
        }
    }

    #[test]
    fn g08_g09_g11_refuses_everything_else_and_says_what_to_write() {
        for (text, code, help) in [
            ("https://api.test/", Code::BadOrigin, "`https://api.test`"),
            ("https://api.test/v1", Code::BadOrigin, "route lines"),
            ("api.test", Code::BadOrigin, "`https://api.test`"),
            ("api.test:443", Code::BadOrigin, "`https://api.test:443`"),
            ("http://api.test", Code::BadOrigin, "`https://api.test`"),
            ("ftp://api.test", Code::BadOrigin, "https://HOST"),
            ("https://API.test.", Code::BadOrigin, "`api.test`"),
            ("https://api.test ", Code::BadOrigin, "labels"),
            ("https://api.test\u{a0}", Code::BadOrigin, "ASCII"),
            ("https://\u{430}pi.test", Code::BadOrigin, "xn--"),
            ("https://u:p@api.test", Code::BadOrigin, "[credential.NAME]"),
            ("https://10.0.0.1", Code::BadOrigin, "addresses"),
            ("https://[::1]", Code::BadOrigin, "not an address"),
            ("https://[::1]:443", Code::BadOrigin, "not an address"),
            ("https://", Code::BadOrigin, "labels"),
            ("https://*.api.test", Code::WildcardHost, "each host"),
            ("https://*", Code::WildcardHost, "each host"),
            ("https://*.com", Code::WildcardHost, "each host"),
            ("https://a*.test", Code::WildcardHost, "each host"),
            ("https://api.test:65979", Code::BadOrigin, "65535"),
            ("https://api.test:0", Code::BadOrigin, "65535"),
            ("https://api.test:-1", Code::BadOrigin, "65535"),
            ("https://api.test:+443", Code::BadOrigin, "65535"),
            ("https://api.test:0443", Code::BadOrigin, "65535"),
            ("https://api.test:https", Code::BadOrigin, "65535"),
            ("https://api.test:", Code::BadOrigin, "65535"),
            ("https://metadata.google.internal", Code::MetadataHost, "never"),
        ] {
            let error = Origin::parse(text).unwrap_err();
            assert_eq!(error.code, code, "{text}: {error:?}");
            assert!(error.help.contains(help), "{text}: {error:?}");
        }
    }
}
