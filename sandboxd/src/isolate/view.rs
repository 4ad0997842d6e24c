//! What of the host a run can see: a list of places and where each comes from. Pure but for asking which of the
//! well-known places exist. Everything is read-only; nothing of /home, /root, /opt, /var, /run or /srv is on the list.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The root of a run, top level first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct View {
    pub entries: Vec<Entry>,
}

/// One place in the guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Relative to the guest's root: `usr`, `etc/alternatives`.
    pub place: PathBuf,
    pub source: Source,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Source {
    /// A folder of the host, read-only, with everything mounted below it.
    Folder(PathBuf),
    /// A file of the host, read-only.
    File(PathBuf),
    /// The same link as on the host.
    Link(PathBuf),
}

/// Top-level places with the host's programs and libraries.
const TOOLS: [&str; 8] = ["usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "nix"];

/// Parts of /etc that programs need, that are the same on every host of a distribution and hold nothing of this one:
/// where alternatives point, the linker's cache, and the settings of Java that Debian keeps there.
const ETC_FOLDERS: [&str; 1] = ["alternatives"];
const ETC_FILES: [&str; 3] = ["ld.so.cache", "mime.types", "magic"];
const ETC_FOLDER_PREFIXES: [&str; 1] = ["java-"];

/// Places of the host that no run may see, and why: homes, what changes while the host runs, and sockets of its daemons.
const NEVER: [(&str, &str); 13] = [
    ("home", HOMES),
    ("root", HOMES),
    ("etc", "/etc is made for each run; settings and keys of the host stay there"),
    ("run", STATE),
    ("var/run", STATE),
    ("var/tmp", STATE),
    ("var/lock", STATE),
    ("boot", STATE),
    ("proc", OWN_PLACE),
    ("sys", OWN_PLACE),
    ("dev", OWN_PLACE),
    ("tmp", OWN_PLACE),
    ("work", OWN_PLACE),
];
const HOMES: &str = "homes hold keys and histories";
const STATE: &str = "it holds state of the host and sockets of its daemons";
const OWN_PLACE: &str = "every run has its own there";

/// Places that a given root folder cannot supply: they are the sandbox's own.
const OWN: [&str; 8] = ["proc", "sys", "dev", "tmp", "work", "run", "home", "root"];

impl View {
    /// Why a folder of the host cannot be added to the tools; `None` when it can.
    pub fn refuses(folder: &Path) -> Option<&'static str> {
        let place = folder.strip_prefix("/").unwrap_or(folder);
        if TOOLS.iter().any(|tools| place.starts_with(tools)) {
            return Some("it is shown already");
        }
        // Neither such a place, nor one inside it, nor one that holds it.
        let meets = |never: &str| place.starts_with(never) || Path::new(never).starts_with(place);
        NEVER.iter().find(|(never, _)| meets(never)).map(|(_, why)| *why)
    }

    /// The host's own tools, and the folders that the operator adds.
    pub fn of_host(extra: &[PathBuf]) -> io::Result<Self> {
        let mut entries = Vec::new();
        for name in TOOLS {
            entries.extend(entry(Path::new("/"), Path::new(name))?);
        }
        for name in ETC_FOLDERS.iter().chain(&ETC_FILES) {
            entries.extend(entry(Path::new("/"), &Path::new("etc").join(name))?);
        }
        for name in names_in(Path::new("/etc"))? {
            if ETC_FOLDER_PREFIXES.iter().any(|prefix| name.starts_with(prefix)) {
                entries.extend(entry(Path::new("/"), &Path::new("etc").join(&name))?);
            }
        }
        for folder in extra {
            let place = folder.strip_prefix("/").unwrap_or(folder).to_owned();
            entries.push(Entry { place, source: Source::Folder(folder.clone()) });
        }
        Ok(Self { entries })
    }

    /// A folder that the operator prepared, in place of the host's tools. Its /etc is shown as well, except for the
    /// files that are generated for each run.
    pub fn of_folder(root: &Path) -> io::Result<Self> {
        let mut entries = Vec::new();
        for name in names_in(root)? {
            if name != "etc" && !OWN.contains(&name.as_str()) {
                entries.extend(entry(root, Path::new(&name))?);
            }
        }
        for name in names_in(&root.join("etc")).unwrap_or_default() {
            if !super::etc::is_generated(&name) {
                entries.extend(entry(root, &Path::new("etc").join(&name))?);
            }
        }
        Ok(Self { entries })
    }

    /// Where a program of this name is found in the guest, looking through the usual folders.
    pub fn find_program(&self, name: &str) -> Option<PathBuf> {
        ["usr/local/bin", "usr/bin", "bin", "usr/sbin", "sbin"].iter().find_map(|folder| {
            let place = Path::new(folder).join(name);
            self.on_host(&place).filter(|path| path.is_file()).map(|_| Path::new("/").join(&place))
        })
    }

    /// The host's path of a place in the guest, links at the top level included.
    pub fn on_host(&self, place: &Path) -> Option<PathBuf> {
        let place = place.strip_prefix("/").unwrap_or(place);
        self.entries.iter().find_map(|entry| {
            let rest = place.strip_prefix(&entry.place).ok()?;
            match &entry.source {
                Source::Folder(folder) => Some(folder.join(rest)),
                Source::File(file) => rest.as_os_str().is_empty().then(|| file.clone()),
                Source::Link(target) if target.is_relative() => self.on_host(&target.join(rest)),
                Source::Link(target) => self.on_host(&target.strip_prefix("/").ok()?.join(rest)),
            }
        })
    }
}

fn names_in(folder: &Path) -> io::Result<Vec<String>> {
    let mut names: Vec<String> =
        std::fs::read_dir(folder)?.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    names.sort();
    Ok(names)
}

/// The entry for a place below `root`, or nothing where the host has none.
fn entry(root: &Path, place: &Path) -> io::Result<Option<Entry>> {
    let path = root.join(place);
    let Ok(metadata) = path.symlink_metadata() else { return Ok(None) };
    let kind = metadata.file_type();
    let source = if kind.is_symlink() {
        Source::Link(std::fs::read_link(&path)?)
    } else if kind.is_dir() {
        Source::Folder(path)
    } else if kind.is_file() {
        Source::File(path)
    } else {
        return Ok(None);
    };
    Ok(Some(Entry { place: place.to_owned(), source }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_tools_and_no_homes() {
        let view = View::of_host(&[]).unwrap();
        let places: Vec<_> = view.entries.iter().map(|entry| entry.place.display().to_string()).collect();
        assert!(places.contains(&"usr".to_owned()));
        for absent in
            ["home", "root", "opt", "var", "run", "srv", "mnt", "media", "boot", "sys", "etc/shadow"]
        {
            assert!(!places.iter().any(|place| place == absent), "{absent}");
        }
        assert!(view.find_program("sh").is_some());
        assert_eq!(view.find_program("no-such-program"), None);
    }

    #[test]
    fn a_given_root_supplies_all_but_what_is_the_sandboxs_own() {
        let root = tempfile::tempdir().unwrap();
        for folder in ["usr/bin", "etc/ssl", "proc", "root", "opt/tool"] {
            std::fs::create_dir_all(root.path().join(folder)).unwrap();
        }
        std::fs::write(root.path().join("usr/bin/tool"), "").unwrap();
        std::fs::write(root.path().join("etc/passwd"), "").unwrap();
        std::fs::write(root.path().join("etc/tool.conf"), "").unwrap();
        std::os::unix::fs::symlink("usr/bin", root.path().join("bin")).unwrap();
        let view = View::of_folder(root.path()).unwrap();
        let places: Vec<_> = view.entries.iter().map(|entry| entry.place.display().to_string()).collect();
        assert_eq!(places, ["bin", "opt", "usr", "etc/tool.conf"]);
        assert_eq!(view.on_host(Path::new("/bin/tool")), Some(root.path().join("usr/bin/tool")));
    }
}
