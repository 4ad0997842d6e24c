//! `freeboard approvals`: what waits for a person in the running broker, and the person's word on it.

use clap::Subcommand;
use freeboard_control::PendingApproval;
use serde_json::json;

use super::ask::ask;
use super::{ConfigFlags, Exit, terminal};

/// Requests that wait for a person
#[derive(Debug, Subcommand)]
pub enum Approvals {
    /// List the requests that wait, oldest first
    List {
        #[command(flatten)]
        config: ConfigFlags,
        /// One JSON object a line
        #[arg(long)]
        json: bool,
    },
    /// Let a waiting request go on
    Approve(Word),
    /// Refuse a waiting request
    Deny(Word),
}

#[derive(Debug, clap::Args)]
pub struct Word {
    /// Number of the request, from `list`
    #[arg(value_name = "ID")]
    id: u64,
    /// Who says so; goes into the audit record
    #[arg(long, value_name = "NAME")]
    by: String,
    #[command(flatten)]
    config: ConfigFlags,
}

impl Approvals {
    pub(super) fn run(self) -> Exit {
        match self {
            Self::List { config, json } => ask(&config, async |client| {
                let waiting = client.approvals().await?;
                Ok(terminal::print(&if json { lines(&waiting) } else { table(&waiting) }))
            }),
            Self::Approve(word) => word.say(true),
            Self::Deny(word) => word.say(false),
        }
    }
}

impl Word {
    fn say(&self, approve: bool) -> Exit {
        ask(&self.config, async |client| {
            client.decide_approval(self.id, approve, &self.by).await?;
            let done = if approve { "approved" } else { "denied" };
            Ok(terminal::print(&format!("{done}: request {}", self.id)))
        })
    }
}

fn lines(waiting: &[PendingApproval]) -> String {
    let lines: Vec<String> = waiting.iter().map(|one| json!(one).to_string()).collect();
    lines.join("\n")
}

fn table(waiting: &[PendingApproval]) -> String {
    if waiting.is_empty() {
        return "nothing waits".to_owned();
    }
    let line = |one: &PendingApproval| {
        let who = if one.by.is_empty() { "anybody".to_owned() } else { one.by.join(",") };
        format!(
            "{} {} https://{}{} body={} caller={} grant={} rule={} run={} may_approve={who} until_unix={}",
            one.id,
            one.method.escape_default(),
            one.host.escape_default(),
            one.path.escape_default(),
            one.body_bytes,
            one.caller.as_deref().unwrap_or("(anonymous)"),
            one.grant,
            one.rule,
            one.run,
            one.until_unix_ms / 1000,
        )
    };
    let lines: Vec<String> = waiting.iter().map(line).collect();
    lines.join("\n")
}
