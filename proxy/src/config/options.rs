//! Which options the broker has: the one table for reading, checking, printing and the reference page.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use freeboard_policy::Host;

use super::units;
use crate::confine::Wanted;
use crate::upstream::chain::ProxyPlace;

/// What kind of value an option takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// An absolute path.
    Path,
    Text,
    /// A whole number between the two.
    Count(u64, u64),
    /// An amount such as `64MiB`, at least so many bytes.
    Bytes(u64),
    /// A time such as `10s`.
    Time,
    /// A time such as `10s`, or `off`.
    TimeOrOff,
    /// An address such as `127.0.0.1:3128`, or `off`.
    AddressOrOff,
    /// Of this host only.
    LoopbackOrOff,
    /// A list of user ids.
    Uids,
    /// `HOST:PORT`, or `off`.
    ProxyOrOff,
    /// An absolute path, or `off`.
    PathOrOff,
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// A list of host names.
    Names,
}

/// A value that was read as its kind says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    Path(PathBuf),
    Text(String),
    Count(u64),
    Bytes(u64),
    Time(Option<Duration>),
    Address(Option<SocketAddr>),
    Uids(Vec<u32>),
    Proxy(Option<ProxyPlace>),
    PathOrNone(Option<PathBuf>),
    Names(Vec<Host>),
}

/// Where a default comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standard {
    Fixed(&'static str),
    /// Below `/etc/freeboard`, or `$XDG_CONFIG_HOME/freeboard` for an ordinary user.
    Config(&'static str),
    /// Below `/var/lib/freeboard`, or `$XDG_STATE_HOME/freeboard`.
    State(&'static str),
    /// Below `/run/freeboard`, or `$XDG_RUNTIME_DIR/freeboard`.
    Runtime(&'static str),
}

/// One option.
#[derive(Debug, Clone, Copy)]
pub struct OptionSpec {
    /// Below `[broker]`.
    pub key: &'static str,
    pub kind: Kind,
    pub standard: Standard,
    pub what: &'static str,
    /// Why the default is what it is, and what goes wrong when it is relaxed.
    pub why: &'static str,
}

const fn option(
    key: &'static str,
    kind: Kind,
    standard: Standard,
    what: &'static str,
    why: &'static str,
) -> OptionSpec {
    OptionSpec { key, kind, standard, what, why }
}

/// Every option with one value. `[broker.hosts]` and `[[broker.explicit_run]]` are read beside these.
pub const OPTIONS: &[OptionSpec] = &[
    option(
        "policy",
        Kind::Path,
        Standard::Config("policy"),
        "Folder of policy files; keep it in version control.",
        "The commit of the folder's git work tree goes into every audit record.",
    ),
    option(
        "ca_certificate",
        Kind::Path,
        Standard::State("ca/ca.pem"),
        "Certificate of the interception CA, which guests trust. `freeboard ca init` makes it.",
        "It is not made by `serve`, so that a lost file is seen and not papered over by a CA that no guest trusts.",
    ),
    option(
        "ca_key",
        Kind::Path,
        Standard::State("ca/ca-key.pem"),
        "Private key of the interception CA, mode 0600. As root it is read before privileges are dropped, so it may belong to root.",
        "Whoever reads it can pose as every site to every guest.",
    ),
    option(
        "control_socket",
        Kind::Path,
        Standard::Runtime("control.sock"),
        "Unix socket that sandboxd connects to.",
        "It is never in a guest's view: it opens gates.",
    ),
    option(
        "control_uids",
        Kind::Uids,
        Standard::Fixed("[]"),
        "User ids that may connect to the control socket besides root and the broker's own user.",
        "Each of them can open gates for every caller and grant.",
    ),
    option(
        "user",
        Kind::Text,
        Standard::Fixed("freeboard"),
        "User that the broker becomes when it is started as root; where there is no user `freeboard`, `nobody` is taken and a warning given.",
        "The broker parses hostile bytes and needs no privilege. `root` keeps root: a fault then costs the host.",
    ),
    option(
        "confine",
        Kind::OneOf(Wanted::WORDS),
        Standard::Fixed("available"),
        "The broker keeps itself to its files (Landlock), its system calls (seccomp) and starts no program, once it serves. `available`: as far as the kernel can, and says what it cannot; `required`: it does not start otherwise; `off`.",
        "A fault in a parser of hostile bytes then opens every file of the broker's user.",
    ),
    option(
        "workers",
        Kind::Count(0, 1024),
        Standard::Fixed("0"),
        "Worker threads; 0 = one per processor.",
        "A gate lives on one worker.",
    ),
    option(
        "max_gates",
        Kind::Count(1, 1_000_000),
        Standard::Fixed("1024"),
        "Gates that may be open at once; a further run is refused as `run_limit`.",
        "Each gate has about ten sockets; the limit on open files is raised to the hard limit at start.",
    ),
    option(
        "grace",
        Kind::Time,
        Standard::Fixed("10s"),
        "How long requests in flight may take after SIGTERM before they are cut.",
        "Service managers often kill after 90 s; runs end before that.",
    ),
    option(
        "reload_every",
        Kind::TimeOrOff,
        Standard::Fixed("2s"),
        "How often the policy folder is looked at for changes; `off` = on SIGHUP only.",
        "A change takes effect when two looks in a row saw the same files, so a half-written file is not loaded.",
    ),
    option(
        "explicit_listen",
        Kind::AddressOrOff,
        Standard::Fixed("off"),
        "Address of the explicit proxy on the host, for runs that are listed as `[[broker.explicit_run]]`. Usually 127.0.0.1:3128.",
        "Off: on hosts with gates nothing needs it. Programs on it are held by no boundary of ours.",
    ),
    option(
        "guard_listen",
        Kind::AddressOrOff,
        Standard::Fixed("off"),
        "Address of the guard: the explicit proxy over TLS, for sandboxes on other machines. Each run has a credential of its own there, which the control protocol issues.",
        "Off: it is reachable from a network. Whoever has a run's credential speaks as that run until it ends.",
    ),
    option(
        "guard_certificate",
        Kind::PathOrOff,
        Standard::Fixed("off"),
        "Certificate chain of the guard, PEM, for the name by which sandboxes reach it.",
        "Not of the interception CA: sandboxes verify the guard before they trust anything that it says.",
    ),
    option(
        "guard_key",
        Kind::PathOrOff,
        Standard::Fixed("off"),
        "Its private key, PEM, mode 0600. As root it is read before privileges are dropped.",
        "Whoever has it can pose as the guard and collect the credentials of runs.",
    ),
    option(
        "metrics_listen",
        Kind::AddressOrOff,
        Standard::Fixed("127.0.0.1:9464"),
        "Address of `/metrics` (Prometheus), `/livez` and `/readyz`. The default is given up with a warning where something else has it; an address of yours that cannot be had ends the start.",
        "They tell names of APIs and credentials, and how busy the broker is, to whoever can connect; no request, no guest and no secret.",
    ),
    option(
        "otlp_collector",
        Kind::LoopbackOrOff,
        Standard::Fixed("off"),
        "Address of an OpenTelemetry collector on this host, usually 127.0.0.1:4318. Each decision is sent to it as a span, by OTLP over HTTP (JSON, `/v1/traces`); a run is one trace, the caller's where its `traceId` is one.",
        "Spans say who asked what, without queries, headers and bodies, in clear text to whatever listens there. What it does not take is counted and dropped: nothing waits for it.",
    ),
    option(
        "upstream_proxy.address",
        Kind::ProxyOrOff,
        Standard::Fixed("off"),
        "Proxy through which every upstream and every issuer of credentials is reached, by HTTP CONNECT.",
        "For networks whose only way out is a proxy. TLS is verified end to end inside; when the proxy fails, requests fail, and nothing goes past it.",
    ),
    option(
        "upstream_proxy.credential_file",
        Kind::PathOrOff,
        Standard::Fixed("off"),
        "File with `USER:PASSWORD` for it, mode 0600 and readable for the broker's user (RFC 7617). A replaced file is used at once.",
        "It goes to the proxy in the clear, as with every program that uses one.",
    ),
    option(
        "upstream_proxy.resolve",
        Kind::OneOf(&["check", "proxy"]),
        Standard::Fixed("check"),
        "`check`: names are resolved here too, and refused where no address passes the check; the proxy gets the name, or the checked address where a connection is passed on unread. `proxy`: only the proxy resolves names.",
        "With `proxy`, for hosts without a name server for the outside, no address is checked: the verified certificate alone says where a request ends, and connections that are passed on unread are refused.",
    ),
    option(
        "upstream_proxy.direct",
        Kind::Names,
        Standard::Fixed("[]"),
        "Names of upstreams that are reached without the proxy, exactly.",
        "Usually APIs inside the network.",
    ),
    option(
        "audit.folder",
        Kind::Path,
        Standard::State("audit"),
        "Folder of the audit log.",
        "When it cannot be written, every request is refused as `audit_unavailable`.",
    ),
    option(
        "audit.file_size",
        Kind::Bytes(64 << 10),
        Standard::Fixed("64MiB"),
        "A log file of this size is closed and a new one begun; the hash chain goes on.",
        "Small enough to open in an editor, large enough for about 80,000 records.",
    ),
    option(
        "audit.keep_files",
        Kind::Count(0, 1_000_000),
        Standard::Fixed("0"),
        "Closed log files that are kept; older ones are removed. 0 keeps all.",
        "Nothing is removed unless somebody decided so. Removed files cannot be verified any more.",
    ),
    option(
        "audit.sync",
        Kind::Time,
        Standard::Fixed("1s"),
        "Longest time between a write to the log and its flush to the disk; `0s` flushes each batch.",
        "A power failure loses at most this much; a crash of the broker alone loses milliseconds.",
    ),
];

/// Names that an option has had, or that people try, with what to write instead.
pub const RENAMED: &[(&str, &str)] = &[
    ("policy_dir", "policy"),
    ("policies", "policy"),
    ("ca_cert", "ca_certificate"),
    ("ca", "ca_certificate"),
    ("socket", "control_socket"),
    ("threads", "workers"),
    ("grace_period", "grace"),
    ("listen", "explicit_listen"),
    ("guard", "guard_listen"),
    ("guard_cert", "guard_certificate"),
    ("metrics", "metrics_listen"),
    ("traces", "otlp_collector"),
    ("otlp_endpoint", "otlp_collector"),
    ("metrics_address", "metrics_listen"),
    ("proxy", "upstream_proxy.address"),
    ("http_proxy", "upstream_proxy.address"),
    ("https_proxy", "upstream_proxy.address"),
    ("no_proxy", "upstream_proxy.direct"),
    ("upstream_proxy.url", "upstream_proxy.address"),
    ("upstream_proxy.no_proxy", "upstream_proxy.direct"),
    ("audit_log", "audit.folder"),
    ("audit_dir", "audit.folder"),
    ("audit.path", "audit.folder"),
    ("audit.dir", "audit.folder"),
    ("audit.rotate", "audit.file_size"),
    ("audit.max_size", "audit.file_size"),
    ("audit.keep", "audit.keep_files"),
];

pub fn find(key: &str) -> Option<&'static OptionSpec> {
    OPTIONS.iter().find(|option| option.key == key)
}

impl Kind {
    /// What a value must look like, for messages and the reference.
    pub fn words(self) -> String {
        match self {
            Self::Path => "an absolute path".to_owned(),
            Self::Text => "text".to_owned(),
            Self::Count(least, most) => format!("a whole number from {least} to {most}"),
            Self::Bytes(least) => {
                format!("an amount such as \"64MiB\" (B, KiB, MiB, GiB), at least {least} bytes")
            }
            Self::Time => "a time such as \"10s\" (ms, s, m, h, d)".to_owned(),
            Self::TimeOrOff => "a time such as \"10s\" (ms, s, m, h, d) or \"off\"".to_owned(),
            Self::LoopbackOrOff => "an address of this host such as \"127.0.0.1:4318\" or \"off\"".to_owned(),
            Self::AddressOrOff => "an address such as \"127.0.0.1:3128\" or \"off\"".to_owned(),
            Self::Uids => "a list of user ids such as [1000]".to_owned(),
            Self::ProxyOrOff => "a host and port such as \"proxy.corp.example:3128\" or \"off\"".to_owned(),
            Self::PathOrOff => "an absolute path or \"off\"".to_owned(),
            Self::OneOf(words) => {
                words.iter().map(|word| format!("\"{word}\"")).collect::<Vec<_>>().join(" or ")
            }
            Self::Names => "a list of host names such as [\"api.internal\"]".to_owned(),
        }
    }

    /// Reads the text of a value. `None` when it is not one of this kind.
    pub fn read(self, text: &str) -> Option<Value> {
        match self {
            Self::Path => Some(PathBuf::from(text)).filter(|path| path.is_absolute()).map(Value::Path),
            Self::Text => Some(text.to_owned()).filter(|text| !text.is_empty()).map(Value::Text),
            Self::Count(least, most) => {
                text.parse().ok().filter(|count| (least..=most).contains(count)).map(Value::Count)
            }
            Self::Bytes(least) => units::bytes(text).filter(|bytes| *bytes >= least).map(Value::Bytes),
            Self::Time => units::time(text).map(Some).map(Value::Time),
            Self::TimeOrOff if text == "off" => Some(Value::Time(None)),
            Self::TimeOrOff => units::time(text).filter(|time| !time.is_zero()).map(Some).map(Value::Time),
            Self::AddressOrOff | Self::LoopbackOrOff if text == "off" => Some(Value::Address(None)),
            Self::LoopbackOrOff => {
                let address: SocketAddr = text.parse().ok()?;
                address.ip().is_loopback().then_some(Value::Address(Some(address)))
            }
            Self::AddressOrOff => text.parse().ok().map(Some).map(Value::Address),
            Self::Uids => uids(text).map(Value::Uids),
            Self::ProxyOrOff if text == "off" => Some(Value::Proxy(None)),
            Self::ProxyOrOff => ProxyPlace::parse(text).map(Some).map(Value::Proxy),
            Self::PathOrOff if text == "off" => Some(Value::PathOrNone(None)),
            Self::PathOrOff => {
                Some(PathBuf::from(text)).filter(|path| path.is_absolute()).map(Some).map(Value::PathOrNone)
            }
            Self::OneOf(words) => words.contains(&text).then(|| Value::Text(text.to_owned())),
            Self::Names => names(text).map(Value::Names),
        }
    }
}

/// `["a.test", "b.test"]`, with or without the quotes.
fn names(text: &str) -> Option<Vec<Host>> {
    let inner = text.strip_prefix('[')?.strip_suffix(']')?.trim();
    if inner.is_empty() {
        return Some(Vec::new());
    }
    inner.split(',').map(|name| Host::parse(name.trim().trim_matches('"')).ok()).collect()
}

fn uids(text: &str) -> Option<Vec<u32>> {
    let inner = text.strip_prefix('[')?.strip_suffix(']')?.trim();
    if inner.is_empty() {
        return Some(Vec::new());
    }
    inner.split(',').map(|uid| uid.trim().parse().ok()).collect()
}
