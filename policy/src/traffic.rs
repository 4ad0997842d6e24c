//! How the broker carries what goes to an API: as requests that it reads, or as connections that it passes on unread.

use crate::Host;
use crate::origin::HTTPS_PORT;

/// What an API is made of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Traffic {
    /// HTTPS requests: the broker ends TLS and decides on each one.
    #[default]
    Requests,
    /// TCP connections, whatever they carry.
    Tcp,
    /// TLS connections that the broker does not end; it reads the server name and nothing else.
    TlsPassthrough,
}

impl Traffic {
    /// Whether the broker decides on connections, and reads nothing of what they carry.
    pub const fn is_passed_on(self) -> bool {
        !matches!(self, Self::Requests)
    }

    /// The scheme of its destinations, for people.
    pub const fn scheme(self) -> &'static str {
        match self {
            Self::Requests => "https",
            Self::Tcp => "tcp",
            Self::TlsPassthrough => "tls",
        }
    }

    /// `https://HOST`, `tls://HOST`, both with the port where it is not 443; `tcp://HOST:PORT`.
    pub fn url(self, host: &Host, port: u16) -> String {
        self.url_of(host.as_str(), port)
    }

    /// The same of a host as it stands in a record.
    pub(crate) fn url_of(self, host: &str, port: u16) -> String {
        let scheme = self.scheme();
        if port == HTTPS_PORT && self != Self::Tcp {
            format!("{scheme}://{host}")
        } else {
            format!("{scheme}://{host}:{port}")
        }
    }
}
