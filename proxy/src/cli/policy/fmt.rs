//! `freeboard policy fmt`: policy files in the one layout.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use clap::Args;
use freeboard_policy::{Diagnostic, SourceFile, format};

use super::source::{Source, source};
use super::{files, plural, unloaded};
use crate::cli::{Exit, exit, terminal};

#[derive(Debug, Args)]
pub(super) struct Fmt {
    /// Folder of policy files, one file, or `-` for standard input to standard output
    #[arg(value_name = "FOLDER", value_parser = writable)]
    folder: Source,
    /// Write nothing; name the files that would change, and end with 1 if there is one
    #[arg(long)]
    check: bool,
}

fn writable(text: &str) -> Result<Source, String> {
    match source(text)? {
        Source::Git { .. } => Err("a revision cannot be rewritten: name a folder or a file".to_owned()),
        source => Ok(source),
    }
}

/// One file and its layout.
struct LaidOut {
    file: SourceFile,
    text: String,
}

impl LaidOut {
    fn is_changed(&self) -> bool {
        self.text != self.file.text
    }
}

impl Fmt {
    pub(super) fn run(self) -> Exit {
        let wanted = |name: &str| SourceFile::is_policy(name) || SourceFile::is_cases(name);
        let files = match files(&self.folder, wanted) {
            Ok(files) => files,
            Err(why) => return unloaded(&why),
        };
        let (laid_out, broken) = lay_out(files);
        for problem in &broken {
            eprint!("{}", problem.render());
        }
        let done = match &self.folder {
            _ if self.check => check(&laid_out),
            Source::Path(path) => write(path, &laid_out),
            Source::Stdin | Source::Git { .. } => print(&laid_out),
        };
        if done == Exit::Success && !broken.is_empty() { Exit::Problems } else { done }
    }
}

fn write(path: &Path, laid_out: &[LaidOut]) -> Exit {
    let mut changed = 0;
    for laid_out in laid_out.iter().filter(|laid_out| laid_out.is_changed()) {
        let path = if path.is_dir() { path.join(&laid_out.file.name) } else { path.to_owned() };
        if let Err(error) = replace(&path, &laid_out.text) {
            eprintln!("error: cannot write `{}`: {error}", path.display());
            exit::hint("the file is as it was");
            return Exit::Usage;
        }
        eprintln!("formatted `{}`", laid_out.file.name);
        changed += 1;
    }
    terminal::print(&format!("{} formatted, {} as before", plural(changed, "file"), laid_out.len() - changed))
}

fn lay_out(files: Vec<SourceFile>) -> (Vec<LaidOut>, Vec<Diagnostic>) {
    let (mut laid_out, mut broken) = (Vec::new(), Vec::new());
    for file in files {
        match format::format(&file) {
            Ok(text) => laid_out.push(LaidOut { file, text }),
            Err(problem) => broken.push(*problem),
        }
    }
    (laid_out, broken)
}

fn check(laid_out: &[LaidOut]) -> Exit {
    let changed: Vec<&LaidOut> = laid_out.iter().filter(|laid_out| laid_out.is_changed()).collect();
    for laid_out in &changed {
        eprintln!("`{}` is laid out in another way", laid_out.file.name);
    }
    if changed.is_empty() {
        return Exit::Success;
    }
    exit::hint("`freeboard policy fmt` without `--check` lays the files out");
    Exit::Problems
}

fn print(laid_out: &[LaidOut]) -> Exit {
    match laid_out.first() {
        Some(laid_out) => terminal::print(&laid_out.text),
        None => Exit::Success,
    }
}

/// Writes the text beside the file and puts it in its place, so that a broker that watches the folder reads either the old
/// or the new text.
fn replace(path: &Path, text: &str) -> std::io::Result<()> {
    // A link stays a link: the file behind it is replaced.
    let path = fs::canonicalize(path)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    // Hidden, so that it is no policy file while it is there.
    let beside = path.with_file_name(format!(".{name}.{}.new", std::process::id()));
    let written = write_beside(&path, &beside, text);
    if written.is_err() {
        // Nothing to do about a second failure; the name says what the file is.
        let _ = fs::remove_file(&beside);
    }
    written
}

fn write_beside(path: &Path, beside: &Path, text: &str) -> std::io::Result<()> {
    let mut file = fs::File::create_new(beside)?;
    file.set_permissions(fs::metadata(path)?.permissions())?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(beside, path)
}
