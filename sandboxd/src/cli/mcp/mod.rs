//! `sandboxd mcp`: a server of the Model Context Protocol for one caller of a daemon. It holds that caller's token and nothing
//! else; what a model may do through it is what the caller may do.

mod http;
mod tools;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use freeboard_client::Client;
use rmcp::ServiceExt as _;
use zeroize::Zeroizing;

use super::{Exit, Failure};
use crate::limits::MAX_TOKEN_BYTES;
use tools::Tools;

/// Speaks over standard input and output, as programs with a model start it, or over HTTP with --listen.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The daemon: https, or http to this host
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8746")]
    url: String,
    /// File with the caller's token, which only its owner can read
    #[arg(long, value_name = "FILE")]
    token_file: PathBuf,
    /// A grant that every run gets; repeat for several
    #[arg(long = "grant", value_name = "NAME")]
    grants: Vec<String>,
    /// Weakest tier of every run: process, container, kernel, vm
    #[arg(long, value_name = "TIER", default_value = "container")]
    floor: String,
    /// Serve streamable HTTP at this loopback address instead; clients send the caller's token as bearer
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
}

/// Why the server does not start.
#[derive(Debug, thiserror::Error)]
enum McpFailure {
    #[error("cannot read the token in `{}`", .0.display())]
    Token(PathBuf, #[source] std::io::Error),
    #[error("`{}` can be read by others (mode {mode:o}); run `chmod 600` on it", .file.display())]
    Mode { file: PathBuf, mode: u32 },
    #[error("`{}` has no token", .0.display())]
    NoToken(PathBuf),
    #[error("`{0}` is no tier: process, container, kernel or vm")]
    Floor(String),
    #[error("--listen {0} is not a loopback address; put a TLS proxy in front for others")]
    NotLoopback(SocketAddr),
}

pub(super) fn main(arguments: &Arguments) -> Result<Exit, Failure> {
    super::log("warn");
    if freeboard_policy::Tier::from_word(&arguments.floor).is_none() {
        return Err(McpFailure::Floor(arguments.floor.clone()).into());
    }
    let token = token(&arguments.token_file)?;
    let client = Client::new(&arguments.url, &token)?;
    let tools = Tools::new(client, arguments.grants.clone(), arguments.floor.clone());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    match arguments.listen {
        None => runtime.block_on(async {
            tools.serve(rmcp::transport::stdio()).await?.waiting().await?;
            Ok(Exit::Success)
        }),
        // SECURITY: clear text, and whoever speaks here acts as the caller. Guarded by mcp_over_http_takes_the_callers_token_only.
        Some(address) if !address.ip().is_loopback() => Err(McpFailure::NotLoopback(address).into()),
        Some(address) => {
            runtime.block_on(http::serve(&tools, address, &token))?;
            Ok(Exit::Success)
        }
    }
}

fn token(file: &Path) -> Result<Zeroizing<String>, McpFailure> {
    use std::io::Read as _;
    use std::os::unix::fs::MetadataExt as _;
    let failed = |error| McpFailure::Token(file.to_owned(), error);
    let opened = std::fs::File::open(file).map_err(failed)?;
    let mode = opened.metadata().map_err(failed)?.mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(McpFailure::Mode { file: file.to_owned(), mode });
    }
    let mut text = Zeroizing::new(String::new());
    opened.take(MAX_TOKEN_BYTES as u64 + 1).read_to_string(&mut text).map_err(failed)?;
    let token = Zeroizing::new(text.trim().to_owned());
    if token.is_empty() { Err(McpFailure::NoToken(file.to_owned())) } else { Ok(token) }
}
