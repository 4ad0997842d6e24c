//! Why this answer: the whole way of one request through the questions, for people and machines.
//!
//! The verdict is what `scope`, `destination` and `evaluate` say; the rest is found again by reading every rule.

use std::fmt::Write;
use std::sync::Arc;

use serde::Serialize;

use crate::compiled::{Compiled, Grant, Route as CompiledRoute};
use crate::condition::{Check, Head};
use crate::draft::Effect;
use crate::route::method;
use crate::{
    Approval, ConnectionQuestion, Decision, DestinationQuestion, HeldBody, Host, HostError, Permit, Policy,
    Reason, Refusal, RequestQuestion, RunScope, ScopeQuestion, Target, Tier, Traffic,
};

/// One request as a person writes it.
#[derive(Debug, Clone)]
pub struct Request<'a> {
    pub caller: Option<&'a str>,
    /// Grants that the run names; `None` = every grant that the caller may use.
    pub grants: Option<&'a [String]>,
    pub tier: Option<Tier>,
    pub method: &'a str,
    /// `https://HOST[:PORT]/PATH[?QUERY]`
    pub url: &'a str,
    /// Header fields by name.
    pub headers: &'a Vec<(String, String)>,
    /// The body, decoded; `None` for none.
    pub body: Option<&'a [u8]>,
    pub websocket: bool,
    pub now_unix: i64,
}

/// The answer and how it came about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Explanation {
    pub verdict: Verdict,
    /// The stable reason of a refusal.
    pub reason: Option<Reason>,
    /// The rule that decided.
    pub rule: Option<RuleView>,
    pub grant: Option<Arc<str>>,
    pub api: Option<Arc<str>>,
    pub credential: Option<Arc<str>>,
    /// Grants that the answer was sought in.
    pub grants: Vec<Arc<str>>,
    /// Canonical target, where there is one.
    pub target: Option<String>,
    /// What decided, in one sentence.
    pub because: String,
    /// Other rules that match too: allow rules of an allowed request, deny rules of a denied one.
    pub also: Vec<RuleView>,
    /// The allow rule that came closest, and where it parts ways.
    pub closest: Option<Closest>,
    /// Who must approve the request, and how long it waits for that.
    pub approval: Option<String>,
    /// What to add to the policy so that the request is allowed; as narrow as the request.
    pub would_allow: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    Allow,
    Refuse,
}

impl Verdict {
    pub const fn word(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Refuse => "refuse",
        }
    }
}

/// A rule as people find it: its id, its place and its text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RuleView {
    pub id: Arc<str>,
    pub file: Arc<str>,
    pub line: u32,
    pub route: Arc<str>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Closest {
    pub rule: RuleView,
    pub why: String,
}

impl From<&CompiledRoute> for RuleView {
    fn from(route: &CompiledRoute) -> Self {
        Self {
            id: Arc::clone(&route.id.0),
            file: Arc::clone(&route.place.file),
            line: route.place.line,
            route: Arc::clone(&route.line.written),
        }
    }
}

impl Explanation {
    fn refuse(reason: Reason, because: impl Into<String>) -> Self {
        Self {
            verdict: Verdict::Refuse,
            reason: Some(reason),
            rule: None,
            grant: None,
            api: None,
            credential: None,
            grants: Vec::new(),
            target: None,
            because: because.into(),
            also: Vec::new(),
            closest: None,
            approval: None,
            would_allow: None,
        }
    }

    /// The explanation as text, ending in a line break.
    pub fn render(&self) -> String {
        let mut out = String::new();
        let mut line = |label: &str, value: &str| {
            // Writing to a String cannot fail.
            let _ = writeln!(out, "{}", format!("{label:<12} {value}").trim_end());
        };
        let reason = self.reason.map(|reason| format!(" ({reason})")).unwrap_or_default();
        line("verdict", &format!("{}{reason}", self.verdict.word()));
        line("because", &self.because);
        if let Some(rule) = &self.rule {
            line("rule", &rule.to_string());
        }
        if let Some(approval) = &self.approval {
            line("approval", approval);
        }
        for (label, value) in [("api", &self.api), ("credential", &self.credential)] {
            if let Some(value) = value {
                line(label, value);
            }
        }
        if !self.grants.is_empty() {
            line("grants", &self.grants.join(", "));
        }
        if let Some(target) = &self.target {
            line("target", target);
        }
        for rule in &self.also {
            line("also matches", &rule.to_string());
        }
        if let Some(closest) = &self.closest {
            line("closest", &closest.rule.to_string());
            line("but", &closest.why);
        }
        if let Some(would_allow) = &self.would_allow {
            line("would allow", "");
            for added in would_allow.lines() {
                let _ = writeln!(out, "{}", format!("  {added}").trim_end());
            }
        }
        out
    }
}

impl std::fmt::Display for RuleView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} at {}:{}: {}", self.id, self.file, self.line, self.route)
    }
}

impl Policy {
    /// Asks every question about a request, as the broker does, and says why the answer is what it is.
    pub fn explain(&self, request: &Request<'_>) -> Explanation {
        let (host, port, path) = match destination_of(request) {
            Ok(parts) => parts,
            Err(explanation) => return *explanation,
        };
        let target = match Target::parse(path.as_bytes()) {
            Ok(target) => target,
            Err(error) => return Explanation::refuse(Reason::TargetNotCanonical, error.to_string()),
        };
        let grants = match request.grants {
            Some(grants) => grants.to_vec(),
            None => self.grants_of(request.caller, request.now_unix),
        };
        let question = ScopeQuestion {
            caller: request.caller,
            grants: &grants,
            tier: request.tier,
            session: false,
            now_unix: request.now_unix,
        };
        let scope = match self.scope(&question) {
            Ok(scope) => scope,
            Err(refusal) => return self.scope_refused(&refusal, request, &grants),
        };
        let mut explanation = self.on_destination(&scope, request, &host, port, &target);
        explanation.grants = scope
            .grants
            .iter()
            .filter_map(|at| self.grant_at(*at))
            .map(|g| Arc::clone(&g.view.name))
            .collect();
        explanation.target = Some(target.wire().to_owned());
        explanation
    }

    /// Names of the grants that a caller may use now.
    pub fn grants_of(&self, caller: Option<&str>, now_unix: i64) -> Vec<String> {
        let usable = self.compiled.grants.iter().filter(|grant| {
            let named = grant.callers.iter().any(|allowed| **allowed == *"*" || Some(&**allowed) == caller);
            caller.is_some() && named && grant.unavailable(now_unix).is_none()
        });
        usable.map(|grant| grant.view.name.to_string()).collect()
    }

    fn grant_at(&self, index: usize) -> Option<&Grant> {
        self.compiled.grants.get(index)
    }

    fn scope_refused(&self, refusal: &Refusal, request: &Request<'_>, grants: &[String]) -> Explanation {
        let because = match refusal.reason {
            Reason::FloorNotMet => {
                let strongest =
                    grants.iter().filter_map(|name| self.grant(name)).max_by_key(|grant| grant.floor);
                let (name, floor) = strongest.map_or(("?", None), |grant| (&*grant.name, grant.floor));
                let floor = floor.map_or("a stronger tier", Tier::word);
                let tier = request.tier.map_or("unknown", Tier::word);
                format!("grant `{name}` needs tier `{floor}`; the run is at `{tier}`")
            }
            Reason::GrantExpired => "a grant that the run names is past its last day".to_owned(),
            Reason::GrantNotYetValid => {
                "the first day of a grant that the run names is still to come".to_owned()
            }
            _ => {
                let caller = request
                    .caller
                    .map_or("an anonymous caller".to_owned(), |caller| format!("caller `{caller}`"));
                let unavailable = grants.iter().find(|name| {
                    let callers = self
                        .compiled
                        .grant_names
                        .get(name.as_str())
                        .and_then(|at| self.grant_at(*at))
                        .map(|g| &g.callers);
                    !callers.is_some_and(|callers| {
                        callers.iter().any(|c| **c == *"*" || Some(&**c) == request.caller)
                    })
                });
                match unavailable {
                    Some(name) if self.grant(name).is_none() => format!("no grant is named `{name}`"),
                    Some(name) => format!("grant `{name}` is not for {caller}"),
                    None => format!("the grants are not available to {caller}"),
                }
            }
        };
        Explanation::refuse(refusal.reason, because)
    }

    fn on_destination(
        &self,
        scope: &RunScope,
        request: &Request<'_>,
        host: &Host,
        port: u16,
        target: &Target,
    ) -> Explanation {
        let route = match self.destination(&DestinationQuestion { scope, host, port }) {
            Ok(route) => route,
            Err(refusal) => return self.destination_refused(&refusal, request, host, port, target),
        };
        let site = Rules::new(&self.compiled, scope, route.site);
        if route.traffic.is_passed_on() && request.method == method::CONNECTION {
            let question = ConnectionQuestion { scope, route: &route, now_unix: request.now_unix };
            return match self.connect(&question) {
                Ok(permit) => allowed(&permit.0, &site, &question.as_request(target)),
                Err(refusal) => request_refused(&refusal, &site, &question.as_request(target)),
            };
        }
        let question = RequestQuestion {
            scope,
            route: &route,
            method: request.method,
            target,
            fields: request.headers,
            websocket: request.websocket,
            now_unix: request.now_unix,
        };
        let answer = match self.evaluate(&question) {
            Decision::Allow(permit) => Ok(permit),
            Decision::NeedsBody(pending) => {
                let body = request.body.unwrap_or_default();
                let too_large = body.len() as u64 > pending.limit_bytes();
                pending.inspect(if too_large { HeldBody::TooLarge } else { HeldBody::Whole(body) })
            }
            Decision::Refuse(refusal) => Err(refusal),
        };
        match answer {
            Ok(permit) => allowed(&permit, &site, &question),
            Err(refusal) => request_refused(&refusal, &site, &question),
        }
    }

    fn destination_refused(
        &self,
        refusal: &Refusal,
        request: &Request<'_>,
        host: &Host,
        port: u16,
        target: &Target,
    ) -> Explanation {
        let because = match refusal.reason {
            Reason::PortNotGranted => format!("`{host}` is granted, but not on port {port}"),
            _ => format!("no grant of the run reaches `{host}`"),
        };
        let known = self
            .compiled
            .apis
            .iter()
            .find(|api| api.origins.iter().any(|o| o.host == *host && o.port == port));
        if request.method == method::CONNECTION {
            let would_allow = match known {
                Some(api) if api.view.traffic.is_passed_on() => {
                    Some(format!("[[grant.NAME.allow]]\napi = \"{}\"", api.view.name))
                }
                Some(_) => None,
                None => new_connections(request.url, host, port),
            };
            return Explanation { would_allow, ..Explanation::refuse(refusal.reason, because) };
        }
        let Some(line) = narrow_route(request.method, target) else {
            return Explanation::refuse(refusal.reason, because);
        };
        let routes = format!("routes = [\"{line}\"]");
        let would_allow = match known {
            Some(api) => format!("[[grant.NAME.allow]]\napi = \"{}\"\n{routes}", api.view.name),
            None => {
                let url = crate::origin::url(host, port);
                // What no policy may name, such as a metadata service, is not suggested either (ATTACKS G29).
                if crate::origin::Origin::parse(&url).is_err() {
                    return Explanation::refuse(refusal.reason, because);
                }
                format!("[api.NAME]\norigins = [\"{url}\"]\n\n[[grant.NAME.allow]]\napi = \"NAME\"\n{routes}")
            }
        };
        Explanation { would_allow: Some(would_allow), ..Explanation::refuse(refusal.reason, because) }
    }
}

fn allowed(permit: &Permit, site: &Rules<'_>, question: &RequestQuestion<'_>) -> Explanation {
    let mut matching: Vec<_> = site.matching(question);
    let rule = site.view(&permit.rule().0);
    matching.retain(|view| view.id != permit.rule().0);
    let passed_on = question.route.traffic.is_passed_on();
    let unread = if passed_on { ", and what it carries is passed on unread" } else { "" };
    Explanation {
        verdict: Verdict::Allow,
        reason: None,
        rule,
        grant: Some(Arc::clone(permit.grant())),
        api: Some(Arc::clone(permit.api())),
        credential: permit.credential().cloned(),
        approval: permit.approval().map(approval),
        also: matching,
        ..Explanation::refuse(Reason::NoRule, format!("grant `{}` allows it{unread}", permit.grant()))
    }
}

/// An API for connections to a destination that no file names.
fn new_connections(url: &str, host: &Host, port: u16) -> Option<String> {
    let written = format!("{host}:{port}");
    // What no policy may name, such as a metadata service, is not suggested either (ATTACKS G29).
    crate::origin::Origin::parse_destination(&written).ok()?;
    let to = if scheme(url) == Some(Traffic::TlsPassthrough) {
        format!("origins = [\"{}\"]\ntls = \"passthrough\"", crate::origin::url(host, port))
    } else {
        format!("tcp = [\"{written}\"]")
    };
    Some(format!("[api.NAME]\n{to}\n\n[[grant.NAME.allow]]\napi = \"NAME\""))
}

fn request_refused(refusal: &Refusal, site: &Rules<'_>, question: &RequestQuestion<'_>) -> Explanation {
    let method = question.method;
    let because = match refusal.reason {
        Reason::DeniedByRule => "a deny rule matches; deny wins over every allow rule".to_owned(),
        Reason::ConnectionOnly => {
            "the destination is granted for connections that are passed on unread: ask with `CONNECT`"
                .to_owned()
        }
        Reason::MethodForbidden => format!("`{method}` is refused whatever a grant says"),
        Reason::MethodNotGranted => format!("the path is granted, but not for `{method}`"),
        Reason::QueryNotGranted => "path and method are granted, but not with this query".to_owned(),
        Reason::UpgradeRefused => "the route is granted, but not as a websocket".to_owned(),
        Reason::GrantExpired => "the grant that would allow it is past its last day".to_owned(),
        Reason::GrantNotYetValid => {
            "the first day of the grant that would allow it is still to come".to_owned()
        }
        Reason::GrantOutsideSchedule => "the grant that would allow it does not work at this time".to_owned(),
        _ => match &refusal.detail {
            Some(detail) if refusal.rule.is_some() => {
                format!("a deny rule looks at the body, and cannot: {detail}")
            }
            Some(detail) => format!("the route is granted on a condition that does not hold: {detail}"),
            None => "no allow rule matches".to_owned(),
        },
    };
    let rule = refusal.rule.as_ref().and_then(|id| site.view(&id.0));
    let mut explanation = Explanation { rule, ..Explanation::refuse(refusal.reason, because) };
    if refusal.reason == Reason::DeniedByRule {
        explanation.also = site.denying(question);
        explanation.also.retain(|view| Some(view) != explanation.rule.as_ref());
    }
    let conditions = refusal.detail.is_some();
    if conditions && refusal.rule.is_none() {
        explanation.closest = site.closest(question);
    }
    if !conditions
        && !matches!(
            refusal.reason,
            Reason::DeniedByRule
                | Reason::MethodForbidden
                | Reason::ConnectionOnly
                | Reason::GrantExpired
                | Reason::GrantNotYetValid
                | Reason::GrantOutsideSchedule
        )
    {
        explanation.closest = site.closest(question);
        let note = if question.websocket { "    # in a rule with `websocket = true`" } else { "" };
        explanation.would_allow =
            narrow_route(method, question.target).map(|line| format!("\"{line}\",{note}"));
    }
    explanation
}

fn approval(approval: &Approval) -> String {
    let who = if approval.by.is_empty() { "somebody".to_owned() } else { approval.by.join(" or ") };
    format!("held until {who} approves, at most {} s", approval.timeout_seconds)
}

/// The rules that a request to one site is decided by.
struct Rules<'p> {
    allow: Vec<&'p CompiledRoute>,
    deny: Vec<&'p CompiledRoute>,
}

impl<'p> Rules<'p> {
    fn new(compiled: &'p Compiled, scope: &RunScope, site: usize) -> Self {
        let mut rules = Self { allow: Vec::new(), deny: Vec::new() };
        let Some(site) = compiled.sites.get(site) else { return rules };
        for grant in scope.grants.iter().filter_map(|at| compiled.grants.get(*at)) {
            let allowing = site.allowing.iter().filter_map(|api| grant.rules_of(*api));
            rules.allow.extend(allowing.flat_map(|of_api| &of_api.allow.routes));
            let denying = site.denying.iter().filter_map(|api| grant.rules_of(*api));
            rules.deny.extend(denying.flat_map(|of_api| &of_api.deny.routes));
        }
        rules
    }

    fn view(&self, id: &Arc<str>) -> Option<RuleView> {
        self.allow
            .iter()
            .chain(&self.deny)
            .find(|route| route.id.0 == *id)
            .map(|route| RuleView::from(*route))
    }

    fn matching(&self, question: &RequestQuestion<'_>) -> Vec<RuleView> {
        let head = Head::of(question);
        let matching = self.allow.iter().filter(|route| {
            let holds =
                route.terms.as_ref().is_none_or(|terms| terms.head(Effect::Allow, head) == Check::Holds);
            holds
                && route.websocket == question.websocket
                && route.line.mismatch(question.method, question.target).is_none()
        });
        matching.map(|route| RuleView::from(*route)).collect()
    }

    fn denying(&self, question: &RequestQuestion<'_>) -> Vec<RuleView> {
        let head = Head::of(question);
        let denying = self.deny.iter().filter(|route| {
            let holds =
                route.terms.as_ref().is_none_or(|terms| terms.head(Effect::Deny, head) == Check::Holds);
            holds && route.line.denies(question.method, question.target)
        });
        denying.map(|route| RuleView::from(*route)).collect()
    }

    fn closest(&self, question: &RequestQuestion<'_>) -> Option<Closest> {
        let head = Head::of(question);
        let judged = self.allow.iter().filter_map(|route| {
            let (agreed, why) = match route.line.mismatch(question.method, question.target) {
                Some(mismatch) => (mismatch.agreed, mismatch.why),
                None if question.websocket && !route.websocket => {
                    (usize::MAX, "the rule has no `websocket = true`".to_owned())
                }
                None if route.websocket && !question.websocket => {
                    (usize::MAX, "the rule is for websockets only".to_owned())
                }
                None => match route.terms.as_ref().map(|terms| terms.head(Effect::Allow, head)) {
                    Some(Check::Fails(miss)) => (usize::MAX, miss.detail.into_owned()),
                    Some(Check::NeedsBody) => {
                        (usize::MAX, "the body does not meet its conditions".to_owned())
                    }
                    _ => return None,
                },
            };
            Some((agreed, route, why))
        });
        // Of equally near ones the first.
        let best = judged.fold(None, |best: Option<(usize, _, String)>, next| match best {
            Some(best) if best.0 >= next.0 => Some(best),
            _ => Some(next),
        });
        best.map(|(_, route, why)| Closest { rule: RuleView::from(*route), why })
    }
}

/// The route line that matches this request and nothing wider (a GET line also matches HEAD); `None` where the language
/// has none, for example for a parameter that is there twice.
fn narrow_route(method: &str, target: &Target) -> Option<String> {
    let view = target.view();
    let mut line = format!("{method} ");
    for index in 0..view.len() {
        line.push('/');
        crate::route::pattern::escape_into(view.segment(index).unwrap_or_default(), &mut line);
    }
    if view.trailing_slash {
        line.push('/');
    }
    let pairs = target.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
    for (index, pair) in pairs.enumerate() {
        line.push(if index == 0 { '?' } else { '&' });
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let decoded = |text: &str| crate::route::pattern::Decoded::form(text.as_bytes()).collect::<Vec<u8>>();
        crate::route::pattern::escape_into(&decoded(name), &mut line);
        line.push('=');
        crate::route::pattern::escape_into(&decoded(value), &mut line);
    }
    let read = crate::route::line::parse(&line).0?;
    read.mismatch(method, target).is_none().then_some(line)
}

/// The scheme of a destination of connections.
fn scheme(url: &str) -> Option<Traffic> {
    let (scheme, _) = url.split_once("://")?;
    let known = [Traffic::Tcp, Traffic::TlsPassthrough];
    known.into_iter().find(|traffic| traffic.scheme().eq_ignore_ascii_case(scheme))
}

/// Where a request goes. A connection is `CONNECT` and `tcp://HOST:PORT` or `tls://HOST[:PORT]`.
fn destination_of(request: &Request<'_>) -> Result<(Host, u16, String), Box<Explanation>> {
    if scheme(request.url).is_none() {
        return split_url(request.url);
    }
    let (_, rest) = request.url.split_once("://").unwrap_or_default();
    let refuse = |because: &str| Err(Box::new(Explanation::refuse(Reason::Malformed, because)));
    if request.method != method::CONNECTION {
        return refuse("only `CONNECT` asks for a connection that is passed on unread");
    }
    if rest.trim_end_matches('/').contains(['/', '?', '#']) {
        return refuse("a connection has no path");
    }
    split_url(&format!("https://{rest}")).map(|(host, port, _)| (host, port, "/".to_owned()))
}

/// Host, port and the rest of an absolute URL, or the refusal that such a request gets.
fn split_url(url: &str) -> Result<(Host, u16, String), Box<Explanation>> {
    let refuse = |reason: Reason, because: &str| Err(Box::new(Explanation::refuse(reason, because)));
    let lower = url.get(..8).unwrap_or(url).to_ascii_lowercase();
    if lower.starts_with("http://") {
        return refuse(Reason::PlainHttp, "only HTTPS is sent to upstreams");
    }
    if !lower.starts_with("https://") {
        return refuse(Reason::Malformed, "the request is not `https://HOST[:PORT]/PATH`");
    }
    let rest = url.get(8..).unwrap_or_default();
    let at = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(at);
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !authority.ends_with(']') => (host, port),
        _ => (authority, "443"),
    };
    let plain = !port.is_empty() && !port.starts_with('0') && port.bytes().all(|byte| byte.is_ascii_digit());
    let Some(port) = port.parse().ok().filter(|_| plain) else {
        return refuse(Reason::Malformed, "the port is not a number from 1 to 65535");
    };
    if host.parse::<std::net::Ipv4Addr>().is_ok() || is_ipv6(host) {
        return refuse(Reason::RawAddress, "the destination is an address, not a granted name");
    }
    let path = if path.is_empty() || path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    let path = if path.is_empty() { "/".to_owned() } else { path };
    match Host::parse(host) {
        Ok(host) => Ok((host, port, path)),
        Err(HostError::Address(_)) => refuse(Reason::Malformed, "an odd spelling of an address"),
        Err(error) => refuse(Reason::Malformed, &error.to_string()),
    }
}

fn is_ipv6(host: &str) -> bool {
    let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    inner.is_some_and(|inner| inner.parse::<std::net::Ipv6Addr>().is_ok())
}
