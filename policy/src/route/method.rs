//! Methods of a route line and of a request. Names are case-sensitive (RFC 9110 9.1).

/// Methods that `*` in an allow rule stands for. Others are granted by name only.
const COMMON: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
const GET: u8 = 1;
const HEAD: u8 = 2;
const ALL_COMMON: u8 = 0x7f;

/// Never granted: they open tunnels or echo the request with what was injected into it (RFC 9110 9.3.6, 9.3.8).
pub(crate) const FORBIDDEN: [&str; 3] = ["CONNECT", "TRACE", "TRACK"];

/// What stands for a connection that is passed on unread, where a request has its method. No request can have it, and no
/// route line name it, because it is forbidden.
pub(crate) const CONNECTION: &str = "CONNECT";

/// Registered beside the common ones (IANA HTTP Method Registry), plus PURGE, which caches and CDNs use.
const REGISTERED: [&str; 33] = [
    "ACL",
    "BASELINE-CONTROL",
    "BIND",
    "CHECKIN",
    "CHECKOUT",
    "COPY",
    "LABEL",
    "LINK",
    "LOCK",
    "MERGE",
    "MKACTIVITY",
    "MKCALENDAR",
    "MKCOL",
    "MKREDIRECTREF",
    "MKWORKSPACE",
    "MOVE",
    "ORDERPATCH",
    "PRI",
    "PROPFIND",
    "PROPPATCH",
    "PURGE",
    "QUERY",
    "REBIND",
    "REPORT",
    "SEARCH",
    "UNBIND",
    "UNCHECKOUT",
    "UNLINK",
    "UNLOCK",
    "UPDATE",
    "UPDATEREDIRECTREF",
    "VERSION-CONTROL",
    "M-SEARCH",
];

/// The methods of one route line. GET includes HEAD (ATTACKS A42).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Methods {
    common: u8,
    others: Vec<Box<str>>,
    every: bool,
}

/// A method as a request has it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked<'a> {
    exact: u8,
    folded: u8,
    name: &'a str,
}

impl<'a> Asked<'a> {
    pub(crate) fn new(name: &'a str) -> Self {
        let bit =
            |same: &dyn Fn(&str) -> bool| COMMON.iter().position(|known| same(known)).map_or(0, |at| 1 << at);
        Self {
            exact: bit(&|known| known == name),
            folded: bit(&|known| known.eq_ignore_ascii_case(name)),
            name,
        }
    }

    pub(crate) fn is_forbidden(self) -> bool {
        self.exact == 0 && FORBIDDEN.iter().any(|forbidden| forbidden.eq_ignore_ascii_case(self.name))
    }
}

impl Methods {
    pub(crate) fn every() -> Self {
        Self { common: ALL_COMMON, others: Vec::new(), every: true }
    }

    /// Names are upper-case tokens, each once.
    pub(crate) fn listed<'n>(names: impl IntoIterator<Item = &'n str>) -> Self {
        let mut methods = Self { common: 0, others: Vec::new(), every: false };
        for name in names {
            match COMMON.iter().position(|known| *known == name) {
                Some(at) => methods.common |= 1 << at,
                None => methods.others.push(Box::from(name)),
            }
        }
        if methods.common & GET != 0 {
            methods.common |= HEAD;
        }
        methods.others.sort_unstable();
        methods
    }

    pub(crate) fn is_connection(&self) -> bool {
        self.others.iter().any(|other| **other == *CONNECTION)
    }

    /// For allow rules: the very method, and `*` only for the common ones.
    pub(crate) fn allow(&self, asked: Asked<'_>) -> bool {
        self.common & asked.exact != 0 || self.others.iter().any(|other| **other == *asked.name)
    }

    /// For deny rules: any letter case, and `*` for every method there is.
    pub(crate) fn deny(&self, asked: Asked<'_>) -> bool {
        self.every
            || self.common & asked.folded != 0
            || self.others.iter().any(|other| other.eq_ignore_ascii_case(asked.name))
    }

    pub(crate) fn covers(&self, other: &Self) -> bool {
        other.common & !self.common == 0
            && (self.every || !other.every)
            && other.others.iter().all(|name| self.others.contains(name))
    }

    /// Like `covers`, where `self` is a deny rule and `other` an allow rule.
    pub(crate) fn deny_covers(&self, other: &Self) -> bool {
        self.every
            || (other.common & !self.common == 0
                && other.others.iter().all(|name| self.others.contains(name)))
    }

    pub(crate) fn meets(&self, other: &Self) -> bool {
        self.common & other.common != 0 || self.others.iter().any(|name| other.others.contains(name))
    }

    /// Like `meets`, where `self` is a deny rule.
    pub(crate) fn deny_meets(&self, other: &Self) -> bool {
        self.every || self.meets(other)
    }

    /// Names beside the common ones.
    pub(crate) fn others(&self) -> impl Iterator<Item = &str> {
        self.others.iter().map(|name| &**name)
    }

    /// Whether some method beside GET, HEAD and OPTIONS is among them. Methods that are not common count as such.
    pub(crate) fn change_something(&self) -> bool {
        const SAFE: u8 = GET | HEAD | 1 << 6;
        self.common & !SAFE != 0 || !self.others.is_empty()
    }

    pub(crate) fn is_every(&self) -> bool {
        self.every
    }

    /// The methods by name, without the HEAD that every GET includes.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        let implied = self.common & GET != 0;
        let common = COMMON.iter().enumerate().filter(|(at, _)| self.common & (1 << at) != 0);
        let common = common.map(|(_, name)| *name).filter(move |name| !(implied && *name == "HEAD"));
        common.chain(self.others.iter().map(|other| &**other))
    }

    pub(crate) fn canonical(&self) -> String {
        if self.every {
            return "*".to_owned();
        }
        self.names().collect::<Vec<_>>().join("|")
    }
}

/// Whether some registry knows the method.
pub(crate) fn is_known(name: &str) -> bool {
    COMMON.contains(&name) || REGISTERED.contains(&name)
}

pub(crate) fn known() -> impl Iterator<Item = &'static str> {
    COMMON.into_iter().chain(REGISTERED)
}

#[cfg(test)]
mod tests {
    use super::{Asked, Methods};

    #[test]
    fn a41_allows_the_very_method_only() {
        let get = Methods::listed(["GET"]);
        assert!(get.allow(Asked::new("GET")));
        for name in ["get", "Get", "GETX", "GE", "POST", "G=\":<>(e),[T];?\"", ""] {
            assert!(!get.allow(Asked::new(name)), "{name}");
            assert!(!Methods::every().allow(Asked::new("PROPFIND")));
        }
    }

    #[test]
    fn a42_get_includes_head_for_allow_and_deny() {
        let get = Methods::listed(["GET"]);
        assert!(get.allow(Asked::new("HEAD")) && get.deny(Asked::new("HEAD")));
        assert!(!Methods::listed(["POST"]).allow(Asked::new("HEAD")));
        assert!(!Methods::listed(["HEAD"]).allow(Asked::new("GET")));
        assert!(!Methods::listed(["HEAD"]).deny(Asked::new("GET")));
    }

    #[test]
    fn a_deny_rule_sees_through_letter_case() {
        assert!(Methods::listed(["DELETE"]).deny(Asked::new("delete")));
        assert!(Methods::every().deny(Asked::new("anything")));
        assert!(Methods::listed(["PROPFIND"]).deny(Asked::new("propfind")));
        assert!(!Methods::listed(["DELETE"]).deny(Asked::new("GET")));
    }

    #[test]
    fn trace_track_and_connect_are_forbidden_in_any_case() {
        for name in ["TRACE", "trace", "TRACK", "Connect"] {
            assert!(Asked::new(name).is_forbidden(), "{name}");
        }
        assert!(!Asked::new("GET").is_forbidden());
    }

    #[test]
    fn the_canonical_form_sorts_and_leaves_out_what_is_implied() {
        assert_eq!(Methods::listed(["HEAD", "GET"]).canonical(), "GET");
        assert_eq!(Methods::listed(["PURGE", "POST", "GET"]).canonical(), "GET|POST|PURGE");
        assert_eq!(Methods::every().canonical(), "*");
    }
}
