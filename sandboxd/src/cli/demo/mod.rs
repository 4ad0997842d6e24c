//! `sandboxd demo`: the whole thing on one machine, in plain words, with nothing else installed.
//!
//! `world` makes a folder, an HTTPS API, the broker and sandboxd, and removes them; `story` is what is shown; `client`
//! speaks to sandboxd as any caller would.

mod client;
mod story;
mod upstream;
mod world;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use tokio::signal::unix::{SignalKind, signal};

use super::{Exit, Failure, put, say};
use story::Story;
use world::World;

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Folder for policy and audit log; must not exist (default: a new one under the temporary folder)
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
}

pub(super) fn main(arguments: Arguments) -> Result<Exit, Failure> {
    let freeboard = freeboard()?;
    let folder = match arguments.folder {
        Some(folder) => std::path::absolute(folder)?,
        None => fresh_folder()?,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(until_interrupted(freeboard, folder))
}

/// Interrupted or not, the world is dropped, which cleans up.
async fn until_interrupted(freeboard: PathBuf, folder: PathBuf) -> Result<Exit, Failure> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = signal(SignalKind::hangup())?;
    let begun = Instant::now();
    let building = tokio::task::spawn_blocking(move || {
        World::build(freeboard, folder).map_err(|error| error.to_string())
    });
    let mut world = building.await??;
    tell(&introduction(&world));
    let told = tokio::select! {
        told = told(&world) => Some(told),
        _ = interrupt.recv() => None,
        _ = terminate.recv() => None,
        _ = hangup.recv() => None,
    };
    world.stop();
    let Some(told) = told else {
        say(&format!(
            "\ninterrupted; everything is stopped. Policy and audit log: {}",
            world.folder.display()
        ));
        return Ok(Exit::Interrupted);
    };
    let mut failed = told?;
    if !verified(&world) {
        failed.push("the audit log verifies".to_owned());
    }
    tell(&farewell(&world, begun.elapsed().as_secs_f64()));
    if failed.is_empty() {
        return Ok(Exit::Success);
    }
    say(&format!("\nThe demo FAILED; what did not hold: {}", failed.join("; ")));
    Ok(Exit::Failure)
}

async fn told(world: &World) -> Result<Vec<String>, Failure> {
    Story::begin(world).await?.tell().await
}

/// One line of the story, to stdout.
fn tell(line: &str) {
    put(&format!("{line}\n"));
}

fn introduction(world: &World) -> String {
    let folder = world.folder.display();
    format!(
        "Freeboard demo. Started on this machine:\n\
         - an HTTPS API, {}, with a CA of its own; it answers only who brings its bearer token\n\
         - the broker (`freeboard serve`): it alone holds the token, and adds it to granted requests\n\
         - sandboxd (`sandboxd serve`): it runs programs behind a measured boundary without a way out\n\
         The policy is {folder}/policy/demo.toml: GET /v1/items and POST /v1/notes, and nothing else.",
        world.api()
    )
}

fn verified(world: &World) -> bool {
    let lines = world.tool(&["audit", "verify"]);
    tell("\n6. The audit log is a hash chain; `freeboard audit verify` says:");
    for line in &lines {
        tell(&format!("  {line}"));
    }
    world
        .freeboard(&["audit", "verify", "--audit"])
        .arg(world.audit())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

fn farewell(world: &World, seconds: f64) -> String {
    let folder = world.folder.display();
    let freeboard = world.freeboard.display();
    let sandboxd =
        std::env::current_exe().map_or_else(|_| "sandboxd".into(), |path| path.display().to_string());
    format!(
        "\nDone in {seconds:.1} s. Both daemons are stopped; keys, tokens and sockets are removed.\n\
         Left for you in {folder}: policy/, audit/, freeboard.toml and the daemons' logs.\n\n\
         Next:\n  \
         {freeboard} audit tail --audit {folder}/audit\n  \
         {freeboard} policy check {folder}/policy\n  \
         {sandboxd} run -- sh -c 'id; ls /; cat /proc/net/route'\n  \
         echo 'console.log(6 * 7)' | {sandboxd} run\n  \
         {sandboxd} doctor"
    )
}

/// The broker's binary: beside ours, or built now where cargo has started us.
fn freeboard() -> Result<PathBuf, Failure> {
    let ours = std::env::current_exe()?;
    let beside = ours.with_file_name("freeboard");
    if beside.is_file() {
        return Ok(beside);
    }
    let Some(cargo) = std::env::var_os("CARGO") else {
        return Err(format!("there is no `freeboard` beside {}; install both", ours.display()).into());
    };
    let release = ours.parent().and_then(Path::file_name).is_some_and(|name| name == "release");
    say(&format!(
        "building the broker first: cargo build {}--bin freeboard",
        if release { "--release " } else { "" }
    ));
    let mut command = Command::new(cargo);
    command.args(["build", "--bin", "freeboard"]).args(release.then_some("--release"));
    // Built where our sources are, into the folder that we were built into.
    command.current_dir(env!("CARGO_MANIFEST_DIR")).env_remove("CARGO_MANIFEST_DIR");
    if let Some(target) = ours.parent().and_then(Path::parent) {
        command.arg("--target-dir").arg(target);
    }
    // Both packages, as `cargo run` chose them: one alone would have dependencies built again with other features.
    command.args(["--package", "freeboard-proxy", "--package", "freeboard-sandboxd"]);
    let built = command.status()?;
    if !built.success() || !beside.is_file() {
        return Err("the broker could not be built".into());
    }
    Ok(beside)
}

/// A new name under the temporary folder; `World` makes the folder itself.
fn fresh_folder() -> Result<PathBuf, Failure> {
    let mut bytes = [0_u8; 4];
    getrandom::fill(&mut bytes).map_err(|_| "no random bytes from the operating system")?;
    Ok(std::env::temp_dir().join(format!("freeboard-demo-{}", freeboard_wire::digest::hex(&bytes))))
}
