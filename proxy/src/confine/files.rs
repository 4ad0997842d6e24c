//! The files of a running broker, as Landlock rules: what stands here can be opened, nothing else can.
//!
//! Certificate and key of the interception CA are not here: they are read before. Rules hold for the folders that were there
//! at the start: a policy that names a secret in another one needs a start, and the reload says so.

use std::path::{Path, PathBuf};

use freeboard_policy::{Policy, SecretReference};
use landlock::{
    ABI, Access as _, AccessFs, BitFlags, CompatLevel, Compatible as _, PathBeneath, PathFd, Ruleset,
    RulesetAttr as _, RulesetCreatedAttr as _, RulesetError, RulesetStatus,
};

use crate::config::Config;
use crate::reload::commit;

/// The newest interface that these rules were written for; an older kernel enforces what it knows.
const NEWEST: ABI = ABI::V5;

/// What may be done with a place and everything below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum May {
    /// Read files, list folders.
    Read,
    /// Read files whose name is known.
    ReadNamed,
    /// Read and write what is there.
    Use,
    /// Make, write, link and remove files.
    Keep,
    /// Remove what we made before.
    Remove,
}

impl May {
    fn access(self) -> BitFlags<AccessFs> {
        match self {
            Self::Read => AccessFs::ReadFile | AccessFs::ReadDir,
            Self::ReadNamed => AccessFs::ReadFile.into(),
            Self::Use => AccessFs::ReadFile | AccessFs::WriteFile,
            Self::Keep => {
                AccessFs::ReadFile
                    | AccessFs::ReadDir
                    | AccessFs::WriteFile
                    | AccessFs::Truncate
                    | AccessFs::MakeReg
                    | AccessFs::MakeDir
                    | AccessFs::RemoveFile
                    | AccessFs::Refer
            }
            Self::Remove => AccessFs::RemoveFile.into(),
        }
    }
}

/// One place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub path: PathBuf,
    pub may: May,
}

/// Places of every broker, and what it does there.
const ALWAYS: &[(&str, May, &str)] = &[
    (
        "/etc",
        May::ReadNamed,
        "hosts, resolv.conf, nsswitch.conf and their kin, which are replaced as the network changes: the folder, as a file that is renamed into place is a new one. Nothing below it can be listed",
    ),
    ("/etc/ssl", May::Read, "the system's root certificates"),
    ("/etc/pki", May::Read, "the same on other systems"),
    ("/usr/share/ca-certificates", May::Read, "where the links of /etc/ssl lead"),
    ("/usr/local/share/ca-certificates", May::Read, "the same for those that an administrator added"),
    ("/usr/lib", May::ReadNamed, "modules of the name service, which libc loads when a name is looked up"),
    ("/lib", May::ReadNamed, "the same"),
    ("/lib64", May::ReadNamed, "the same"),
    ("/run/systemd/resolve", May::ReadNamed, "where the link of resolv.conf leads"),
    ("/run/resolvconf", May::ReadNamed, "the same"),
    ("/run/NetworkManager", May::ReadNamed, "the same"),
    ("/run/nscd", May::ReadNamed, "the name service's cache"),
    ("/usr/share/zoneinfo", May::ReadNamed, "where the link of localtime leads"),
    ("/dev/null", May::Use, "what nobody wants to hear"),
    ("/dev/urandom", May::ReadNamed, "where getrandom is missing"),
    ("/proc/self", May::Read, "memory and descriptors, for the metrics"),
    ("/sys/fs/cgroup", May::ReadNamed, "how many processors there are for us"),
];

/// Everything that this broker opens after its start.
pub fn places(config: &Config, policy: &Policy) -> Vec<Place> {
    let always = ALWAYS.iter().map(|(path, may, _)| Place { path: PathBuf::from(path), may: *may });
    let mut places: Vec<Place> = always.collect();
    let mut add = |path: &Path, may| places.push(Place { path: path.to_owned(), may });
    for folder in with_target(&config.policy) {
        // A policy that is deployed as a whole is another folder of the same name.
        add(folder.parent().unwrap_or(&folder), May::Read);
        add(&folder, May::Read);
    }
    for place in commit::places(&config.policy) {
        add(&place, May::Read);
    }
    add(&config.audit.folder, May::Keep);
    if let Some(folder) = config.control_socket.parent() {
        add(folder, May::Remove);
    }
    // A file that is rotated is a new one: the folder.
    let of_proxy = config.upstream_proxy.as_ref().and_then(|proxy| proxy.credential_file.clone());
    for file in files_of(policy).into_iter().chain(of_proxy) {
        for path in with_target(&file) {
            if let Some(folder) = path.parent() {
                add(folder, May::ReadNamed);
            }
        }
    }
    for variable in ["CREDENTIALS_DIRECTORY", "SSL_CERT_DIR"] {
        if let Some(folder) = std::env::var_os(variable) {
            add(Path::new(&folder), May::Read);
        }
    }
    if let Some(folder) =
        std::env::var_os("SSL_CERT_FILE").as_deref().and_then(|file| Path::new(file).parent())
    {
        add(folder, May::ReadNamed);
    }
    places
}

/// The path, and where it leads if it is a link: either may be replaced.
fn with_target(path: &Path) -> Vec<PathBuf> {
    let mut paths = vec![path.to_owned()];
    paths.extend(path.canonicalize().ok().filter(|target| target != path));
    paths
}

/// Secrets and CA files of the policy.
fn files_of(policy: &Policy) -> Vec<PathBuf> {
    let references = policy.credentials().flat_map(|(_, view)| view.references());
    let secrets = references.filter_map(|reference| match reference {
        SecretReference::File(path) => Some(PathBuf::from(path)),
        _ => None,
    });
    let trusts = policy.apis().filter_map(|api| Some(PathBuf::from(&**api.ca_file.as_ref()?)));
    secrets.chain(trusts).collect()
}

/// Restricts this thread and all that it starts. False where the kernel has no Landlock.
pub fn restrict(places: &[Place]) -> Result<bool, RulesetError> {
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(NEWEST))?
        .create()?;
    for place in places {
        // A place that is not there needs no rule.
        let Ok(opened) = PathFd::new(&place.path) else { continue };
        let mut access = place.may.access();
        if !place.path.is_dir() {
            access &= AccessFs::from_file(NEWEST);
        }
        ruleset = ruleset.add_rule(PathBeneath::new(opened, access))?;
    }
    Ok(ruleset.restrict_self()?.ruleset != RulesetStatus::NotEnforced)
}

/// Whether this kernel has Landlock. Restricts nothing.
pub fn is_available() -> bool {
    let ruleset = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    ruleset.handle_access(AccessFs::from_all(ABI::V1)).and_then(Ruleset::create).is_ok()
}
