//! One rule for each kind of body, and a request with any body to it.

use std::sync::LazyLock;

use freeboard_policy::{
    Decision, DestinationQuestion, HeldBody, Host, Policy, Reason, RequestQuestion, ScopeQuestion,
    SourceFile, Target,
};

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
    let policy = LOADED.as_ref().ok_or(Reason::PolicyUnavailable)?;
    let grants = ["g".to_owned()];
    let question = ScopeQuestion { caller: Some("x"), grants: &grants, tier: None, now_unix: 0 };
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
        Decision::Allow(_) => Ok(()),
        Decision::Refuse(refusal) => Err(refusal.reason),
        Decision::NeedsBody(pending) => {
            // A beginning that is enough says what the whole says, however much follows.
            let _ = pending.is_enough(body);
            pending.inspect(HeldBody::Whole(body)).map(drop).map_err(|refusal| refusal.reason)
        }
    }
}
