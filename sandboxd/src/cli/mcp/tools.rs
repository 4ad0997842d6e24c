//! What a model can do: run a program, see what it may reach, learn why something was refused.

use std::fmt::Write as _;
use std::sync::Arc;

use freeboard_client::{Client, Error, Program, Run, Start};
use freeboard_policy::Reason;
use rmcp::handler::server::router::tool::ToolRouter;
use rmcp::handler::server::wrapper::Parameters;
use rmcp::model::{CallToolResult, ContentBlock, Implementation, ServerCapabilities, ServerConfig};
use rmcp::{ServerHandler, tool, tool_handler, tool_router};
use schemars::JsonSchema;
use serde::Deserialize;

/// What a model is told about this server.
const INSTRUCTIONS: &str = "Runs programs in a sandbox without a network but for what list_grants shows. Programs use ordinary HTTP \
    clients; credentials are added outside, so send none. A refused request says why in its answer; do not send it again unchanged: \
    explain_refusal says what the reason means.";
/// Characters of output that a model is shown of each stream; the rest is left out and said to be.
const SHOWN_CHARACTERS: usize = 30_000;
/// Refused requests that a model is shown.
const SHOWN_REFUSALS: usize = 20;

/// The tools for one caller.
#[derive(Debug, Clone)]
pub(super) struct Tools {
    client: Arc<Client>,
    grants: Arc<[String]>,
    floor: Arc<str>,
    tool_router: ToolRouter<Self>,
}

/// Language of a program.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Language {
    Javascript,
    Python,
    Shell,
}

/// A program to run.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RunCode {
    /// The program's language
    language: Language,
    /// Its source text
    code: String,
    /// Longest time in milliseconds; left out, the daemon's default
    #[serde(default)]
    timeout_ms: u64,
}

/// A reason to explain.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Explain {
    /// The code, for example `no_rule`
    reason: String,
}

#[tool_router]
impl Tools {
    pub(super) fn new(client: Client, grants: Vec<String>, floor: String) -> Self {
        Self {
            client: Arc::new(client),
            grants: grants.into(),
            floor: floor.into(),
            tool_router: Self::tool_router(),
        }
    }

    #[tool(
        description = "Run a program in a sandbox and get its output. Each run starts anew: no file and no variable is left of the one before."
    )]
    async fn run_code(&self, Parameters(asked): Parameters<RunCode>) -> CallToolResult {
        let program = match asked.language {
            Language::Javascript => Program::Javascript(asked.code),
            Language::Python => Program::Python(asked.code),
            Language::Shell => Program::Shell(asked.code),
        };
        let mut start = Start::of(program).floor(&self.floor);
        start.request.grants = self.grants.to_vec();
        start.request.timeout_ms = asked.timeout_ms;
        match self.client.run(start).await {
            Ok(run) => ran(&run),
            Err(error) => failed(&error),
        }
    }

    #[tool(
        description = "List what programs may reach: APIs with their base URLs and the routes that are allowed."
    )]
    async fn list_grants(&self) -> CallToolResult {
        if self.grants.is_empty() {
            return said(
                "Programs reach no network at all: this server was started without a grant.".to_owned(),
            );
        }
        let grants = match self.client.grants(&self.grants).await {
            Ok(grants) => grants,
            Err(error) => return failed(&error),
        };
        let mut text = String::new();
        for grant in grants {
            let floor = if grant.floor.is_empty() {
                String::new()
            } else {
                format!(" (tier {} or stronger)", grant.floor)
            };
            let _ = writeln!(text, "grant {}{floor}", grant.grant);
            for api in grant.apis {
                let _ = writeln!(text, "  {} at {}", api.api, api.base_url);
                for route in api.routes {
                    let _ = writeln!(text, "    {route}");
                }
            }
        }
        said(text)
    }

    #[tool(description = "Say what the reason code of a refused request means and whose fault it is.")]
    fn explain_refusal(&self, Parameters(asked): Parameters<Explain>) -> CallToolResult {
        let Some(reason) = Reason::ALL.iter().find(|reason| reason.code() == asked.reason) else {
            return CallToolResult::error(vec![ContentBlock::text(format!(
                "`{}` is no reason code; it is in the field `reason` of a refused request's answer",
                asked.reason
            ))]);
        };
        let whose = match reason.fault() {
            freeboard_policy::Fault::Client => "The program's request is at fault; change it.",
            freeboard_policy::Fault::Policy => {
                "The policy does not allow it. Sending it again changes nothing; use what list_grants shows, or ask the people who keep the policy."
            }
            freeboard_policy::Fault::Upstream => {
                "The API is at fault, not the request; trying later may help."
            }
            freeboard_policy::Fault::Ours => {
                "The broker or its host is at fault; tell the people who run it."
            }
        };
        said(format!("{}:{}\n{whose}", reason.code(), reason.meaning()))
    }
}

#[tool_handler(router = self.tool_router)]
impl ServerHandler for Tools {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("freeboard", env!("CARGO_PKG_VERSION")))
            .with_instructions(INSTRUCTIONS)
    }
}

fn said(text: String) -> CallToolResult {
    CallToolResult::success(vec![ContentBlock::text(text)])
}

/// Says whether code ran: a model must not send again what may have run.
fn failed(error: &Error) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(crate::causes::chain(error))])
}

fn ran(run: &Run) -> CallToolResult {
    let (Some(result), Some(record)) = (&run.result, &run.record) else {
        return CallToolResult::error(vec![ContentBlock::text("the run has no result".to_owned())]);
    };
    let ending = run.ending.map_or("", freeboard_client::Ending::word);
    let mut text = String::new();
    let mut failed = ending != "completed";
    for step in &result.steps {
        failed |= step.exit_code != 0;
        let _ = writeln!(
            text,
            "exit code {}{}",
            step.exit_code,
            if step.timed_out { ", the time was over" } else { "" }
        );
        stream(&mut text, "stdout", &step.stdout, step.stdout_truncated);
        stream(&mut text, "stderr", &step.stderr, step.stderr_truncated);
    }
    if !result.detail.is_empty() {
        let _ = writeln!(text, "{ending}: {}", result.detail);
    }
    for refused in result.refused.iter().take(SHOWN_REFUSALS) {
        let _ = writeln!(
            text,
            "{} {} {}{}: {}",
            refused.verdict, refused.method, refused.host, refused.path, refused.reason
        );
    }
    let _ =
        write!(text, "ran at tier {} by {}, {} ms", record.isolation, record.provider, result.duration_ms);
    let content = vec![ContentBlock::text(text)];
    if failed { CallToolResult::error(content) } else { CallToolResult::success(content) }
}

fn stream(text: &mut String, name: &str, bytes: &[u8], truncated: bool) {
    if bytes.is_empty() {
        return;
    }
    let whole = String::from_utf8_lossy(bytes);
    let shown: String = whole.chars().take(SHOWN_CHARACTERS).collect();
    let cut = truncated || shown.len() < whole.len();
    let _ =
        writeln!(text, "{name}:\n{}{}", shown.trim_end(), if cut { "\n[the rest is left out]" } else { "" });
}
