//! `freeboard approvals`: what waits for a person in the running broker, and the person's word on it.

use clap::Subcommand;
use freeboard_control::{Client, ClientError, PendingApproval};
use serde_json::json;

use super::{ConfigFlags, Exit, exit, terminal};

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
            Self::List { config, json } => with_broker(&config, async |client| {
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
        with_broker(&self.config, async |client| {
            client.decide_approval(self.id, approve, &self.by).await?;
            let done = if approve { "approved" } else { "denied" };
            Ok(terminal::print(&format!("{done}: request {}", self.id)))
        })
    }
}

fn with_broker(config: &ConfigFlags, ask: impl AsyncFnOnce(Client) -> Result<Exit, ClientError>) -> Exit {
    let config = match config.load(&[]) {
        Ok(config) => config,
        Err(code) => return code,
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return exit::report(Exit::System, &error),
    };
    let socket = config.control_socket.clone();
    let asked = runtime.block_on(async { ask(Client::connect(&socket).await?).await });
    match asked {
        Ok(code) => code,
        Err(error @ ClientError::Refused { .. }) => exit::report(Exit::Problems, &error),
        Err(error) => {
            let code = exit::report(Exit::System, &error);
            exit::hint(&format!(
                "the broker listens at `{}`, for root, its own user and `control_uids`",
                socket.display()
            ));
            code
        }
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
