//! Bodies that rules look at: one rule for each kind, and a request with any body to it.

use std::sync::LazyLock;

use freeboard_policy::{
    Decision, DestinationQuestion, HeldBody, Host, PendingBody, Policy, Reason, RequestQuestion,
    ScopeQuestion, SourceFile, Target,
};
use serde_json::Value;

/// What a body is read as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Json,
    Graphql,
    Mcp,
    Push,
    Fetch,
}

impl Kind {
    pub const ALL: [Self; 5] = [Self::Json, Self::Graphql, Self::Mcp, Self::Push, Self::Fetch];

    /// Also the name of the folder with kept inputs.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Graphql => "graphql",
            Self::Mcp => "mcp",
            Self::Push => "push",
            Self::Fetch => "fetch",
        }
    }

    const fn path(self) -> &'static str {
        match self {
            Self::Push => "/push/git-receive-pack",
            Self::Fetch => "/fetch/git-upload-pack",
            Self::Json => "/json",
            Self::Graphql => "/graphql",
            Self::Mcp => "/mcp",
        }
    }

    const fn content_type(self) -> &'static str {
        match self {
            Self::Push => "application/x-git-receive-pack-request",
            Self::Fetch => "application/x-git-upload-pack-request",
            _ => "application/json",
        }
    }
}

const POLICY: &str = r#"
[api.a]
origins = ["https://a.test"]
[grant.g]
callers = ["x"]
[[grant.g.allow]]
api = "a"
routes = ["POST /json"]
json = { "/state" = ["open", "closed"], "/n" = { type = "integer", min = 1, max = 9, optional = true }, "/tags/*" = { pattern = "[a-z]+", optional = true }, "/admin" = { absent = true } }
[[grant.g.allow]]
api = "a"
routes = ["POST /graphql"]
graphql = { operations = ["query"], fields = ["viewer", "repository"] }
[[grant.g.allow]]
api = "a"
routes = ["POST /mcp"]
mcp = { methods = ["initialize", "notifications/*", "tools/call"], tools = ["search"], arguments = { "/q" = { type = "string", max_length = 9 } } }
[[grant.g.allow]]
api = "a"
routes = ["POST /push/git-receive-pack"]
git = { operation = "push", refs = ["refs/heads/bot/**"], changes = ["create", "delete"] }
[[grant.g.allow]]
api = "a"
routes = ["POST /fetch/git-upload-pack"]
git = { operation = "fetch" }
"#;

static LOADED: LazyLock<Option<Policy>> =
    LazyLock::new(|| Policy::load(&[SourceFile::new("p.toml", POLICY)]).ok().map(|loaded| loaded.policy));

/// What policy says of a request with this body.
pub fn judge(kind: Kind, body: &[u8]) -> Result<(), Reason> {
    let whole =
        pending(kind, body)?.inspect(HeldBody::Whole(body)).map(drop).map_err(|refusal| refusal.reason);
    // Where a beginning is enough, the answer to it is the answer to all.
    for length in [body.len() / 2, body.len()] {
        let Some(beginning) = body.get(..length) else { continue };
        let pending = pending(kind, body)?;
        if pending.is_enough(beginning) {
            let early = pending.inspect(HeldBody::Beginning(beginning));
            assert_eq!(
                early.is_ok(),
                whole.is_ok(),
                "{kind:?}: {length} bytes are enough, and say something else"
            );
        }
    }
    whole
}

/// The request up to its body.
fn pending(kind: Kind, body: &[u8]) -> Result<PendingBody, Reason> {
    let policy = LOADED.as_ref().ok_or(Reason::PolicyUnavailable)?;
    let grants = ["g".to_owned()];
    let question =
        ScopeQuestion { caller: Some("x"), grants: &grants, tier: None, session: false, now_unix: 0 };
    let scope = policy.scope(&question).map_err(|refusal| refusal.reason)?;
    let host = Host::parse("a.test").map_err(|_| Reason::Internal)?;
    let destination = DestinationQuestion { scope: &scope, host: &host, port: 443 };
    let route = policy.destination(&destination).map_err(|refusal| refusal.reason)?;
    let target = Target::parse(kind.path().as_bytes()).map_err(|_| Reason::Internal)?;
    let fields = vec![("content-type".to_owned(), kind.content_type().to_owned())];
    let question = RequestQuestion {
        scope: &scope,
        route: &route,
        method: "POST",
        target: &target,
        fields: &fields,
        websocket: false,
        now_unix: 0,
    };
    match policy.evaluate(&question) {
        Decision::NeedsBody(pending) => Ok(pending),
        Decision::Refuse(refusal) => Err(refusal.reason),
        Decision::Allow(_) => panic!("{kind:?}: {} bytes pass without a look at them", body.len()),
    }
}

pub(crate) fn json(data: &[u8]) {
    if judge(Kind::Json, data).is_ok() {
        let document = read(data);
        assert!(json_is_granted(&document), "{document}");
    }
}

/// What `POLICY` says of JSON.
pub fn json_is_granted(document: &Value) -> bool {
    let tags = document.get("tags").and_then(Value::as_array);
    matches!(document.get("state").and_then(Value::as_str), Some("open" | "closed"))
        && document.get("n").is_none_or(|n| n.as_i64().is_some_and(|n| (1..=9).contains(&n)))
        && tags.is_none_or(|tags| {
            let is_tag = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_lowercase());
            tags.iter().all(|tag| tag.as_str().is_some_and(is_tag))
        })
        && document.get("admin").is_none()
}

pub(crate) fn graphql(data: &[u8]) {
    if judge(Kind::Graphql, data).is_ok() {
        let body = read(data);
        for request in batch(&body) {
            let text = request.get("query").and_then(Value::as_str);
            assert!(
                text.is_some_and(|text| ["viewer", "repository"].iter().any(|field| text.contains(field))),
                "{body}"
            );
        }
    }
}

pub(crate) fn mcp(data: &[u8]) {
    if judge(Kind::Mcp, data).is_ok() {
        let body = read(data);
        assert!(batch(&body).iter().all(mcp_is_granted), "{body}");
    }
}

/// What `POLICY` says of one message.
pub fn mcp_is_granted(message: &Value) -> bool {
    let parameter = |name: &str| message.get("params").and_then(|params| params.get(name));
    match message.get("method").and_then(Value::as_str) {
        Some("tools/call") => {
            let query =
                parameter("arguments").and_then(|arguments| arguments.get("q")).and_then(Value::as_str);
            parameter("name").and_then(Value::as_str) == Some("search")
                && query.is_some_and(|query| query.chars().count() <= 9)
        }
        Some(method) => method == "initialize" || method.starts_with("notifications/"),
        None => false,
    }
}

pub(crate) fn push(data: &[u8]) {
    let _ = judge(Kind::Push, data);
}

pub(crate) fn fetch(data: &[u8]) {
    let _ = judge(Kind::Fetch, data);
}

/// A body that is allowed, as another parser reads it.
fn read(data: &[u8]) -> Value {
    serde_json::from_slice(data).unwrap_or_else(|error| panic!("what is allowed is no JSON: {error}"))
}

fn batch(body: &Value) -> &[Value] {
    body.as_array().map_or_else(|| std::slice::from_ref(body), Vec::as_slice)
}
