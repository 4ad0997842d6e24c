//! What an operator chooses about `native`.

use std::path::PathBuf;

use crate::provider::{Allowance, CreateError};

/// Settings of the provider. [`NativeConfig::default`] is what a machine without a configuration file gets.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NativeConfig {
    /// A folder to show as the root instead of the host's tools.
    pub root: Option<PathBuf>,
    /// Folders of the host to show besides /usr and its kin, read-only, at the same place. Never a home.
    pub extra_read_only: Vec<PathBuf>,
    /// The guest's user is called root (id 0). It has no more rights than any other id; some tools want the name.
    pub guest_root: bool,
    /// What one run gets.
    pub allowance: Allowance,
}

impl NativeConfig {
    /// No account of the host may have an id that runs are given: its files would be theirs.
    pub(super) fn check_ids(&self, passwd: &str) -> Result<(), CreateError> {
        let Allowance { uid_base, uid_count, .. } = self.allowance;
        let range = uid_base..uid_base.saturating_add(uid_count.max(1));
        let taken = passwd.lines().find_map(|line| {
            let mut fields = line.split(':');
            let name = fields.next()?;
            let id: u32 = fields.nth(1)?.parse().ok()?;
            range.contains(&id).then(|| format!("`{name}` has id {id}"))
        });
        match taken {
            None => Ok(()),
            Some(taken) => Err(CreateError::Host {
                what: format!("an account of this host has an id that runs would be given: {taken}"),
                help: format!("ids {} to {} must be unused", range.start, range.end - 1),
            }),
        }
    }

    /// The places that the operator chose are folders, and no link leads from them to where nobody looked.
    pub(super) fn check_places(&self) -> Result<(), CreateError> {
        let chosen = self.root.iter().map(|root| ("native_root", root));
        let extra = self.extra_read_only.iter().map(|folder| ("native_extra_read_only", folder));
        for (option, path) in chosen.chain(extra) {
            let said = |what: String, help: &str| {
                let what = format!("`{}` of `{option}` {what}", path.display());
                Err(CreateError::Host { what, help: help.to_owned() })
            };
            match path.canonicalize() {
                Err(error) => {
                    return said(format!("cannot be shown: {error}"), "make it, or name another folder");
                }
                Ok(found) if found != *path => {
                    let what = format!("leads over a link to `{}`", found.display());
                    return said(what, "name the folder itself");
                }
                Ok(found) if !found.is_dir() => return said("is no folder".to_owned(), "name a folder"),
                Ok(_) => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_with_an_id_of_the_runs_is_refused() {
        let config = NativeConfig::default();
        assert!(config.check_ids("root:x:0:0::/root:/bin/sh\nuser:x:60999:1::/:/bin/sh\n").is_ok());
        let refused = config.check_ids("root:x:0:0::/:/bin/sh\nbuild:x:61010:1::/:/bin/sh\n").unwrap_err();
        assert!(refused.to_string().contains("`build` has id 61010"), "{refused}");
    }

    #[test]
    fn a_place_that_is_no_folder_or_leads_elsewhere_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().canonicalize().unwrap();
        std::fs::create_dir(base.join("tools")).unwrap();
        std::fs::write(base.join("file"), "").unwrap();
        std::os::unix::fs::symlink("/root", base.join("link")).unwrap();
        let check = |name: &str| {
            let root = NativeConfig { root: Some(base.join(name)), ..NativeConfig::default() };
            let extra = NativeConfig { extra_read_only: vec![base.join(name)], ..NativeConfig::default() };
            let said =
                [root.check_places(), extra.check_places()].map(|checked| checked.map_err(|e| e.to_string()));
            assert_eq!(said[0].is_ok(), said[1].is_ok());
            said[0].clone()
        };
        assert_eq!(check("tools"), Ok(()));
        for (name, why) in
            [("file", "is no folder"), ("link", "leads over a link to `/root`"), ("none", "No such file")]
        {
            let said = check(name).unwrap_err();
            assert!(said.contains(why) && said.contains("native_root"), "{said}");
        }
    }
}
