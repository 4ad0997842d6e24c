//! Which kernel a machine boots, and which of its modules it needs.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use crate::provider::CreateError;

/// Where distributions put kernels, and their modules.
const KERNELS: &str = "/boot";
const MODULES: &str = "/lib/modules";
const PREFIX: &str = "vmlinuz-";

/// What a machine has: devices on the virtio bus as the microvm machine offers it, and the root.
const NEEDED: [&str; 5] = ["virtio_mmio", "virtio_net", "virtio_console", "9pnet_virtio", "9p"];

/// A kernel with what it needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Kernel {
    pub(super) path: PathBuf,
    pub(super) release: String,
    /// In the order in which they are loaded.
    pub(super) modules: Vec<PathBuf>,
}

/// Finds the named kernel, or the newest that will do.
pub(super) fn find(named: Option<&Path>) -> Result<Kernel, CreateError> {
    let missing = |what: String| CreateError::Host {
        what,
        help: format!(
            "install a kernel with the modules {} (`apt-get install linux-image-amd64`; it need not be the one that runs), \
             or name one with `microvm_kernel`",
            NEEDED.join(", ")
        ),
    };
    if let Some(path) = named {
        let release = release_of(path)
            .ok_or_else(|| missing(format!("`{}` is not called {PREFIX}RELEASE", path.display())))?;
        if !path.is_file() {
            return Err(missing(format!("there is no kernel `{}`", path.display())));
        }
        return with_modules(path.to_owned(), release)
            .map_err(|lacking| missing(format!("the kernel `{}` has no module {lacking}", path.display())));
    }
    let mut kernels: Vec<PathBuf> =
        std::fs::read_dir(KERNELS).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    kernels.sort_by_key(|path| std::cmp::Reverse(order(&path.to_string_lossy())));
    let usable = kernels.into_iter().find_map(|path| {
        let release = release_of(&path)?;
        with_modules(path, release).ok()
    });
    usable.ok_or_else(|| missing(format!("no kernel in {KERNELS} has what a machine needs")))
}

fn release_of(path: &Path) -> Option<String> {
    let release = path.file_name()?.to_str()?.strip_prefix(PREFIX)?;
    (!release.is_empty()).then(|| release.to_owned())
}

/// Numbers are compared as numbers: 6.12 is newer than 6.9.
fn order(name: &str) -> Vec<u64> {
    name.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse().ok()).collect()
}

/// The name of the module that is missing, when one is.
fn with_modules(path: PathBuf, release: String) -> Result<Kernel, String> {
    let folder = Path::new(MODULES).join(&release);
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap_or_default();
    let modules = resolve(&read("modules.dep"), &read("modules.builtin"))?;
    Ok(Kernel { path, release, modules: modules.iter().map(|module| folder.join(module)).collect() })
}

/// From the lines `FILE: WHAT IT NEEDS` to the files in the order in which they can be loaded.
fn resolve(dependencies: &str, built_in: &str) -> Result<Vec<String>, String> {
    let lines = dependencies.lines().filter_map(|line| line.split_once(':'));
    let known: HashMap<String, (&str, &str)> =
        lines.map(|(file, needs)| (module_name(file), (file, needs))).collect();
    let mut order: Vec<String> = Vec::new();
    for needed in NEEDED {
        let Some((file, needs)) = known.get(needed) else {
            if built_in.lines().any(|file| module_name(file) == needed) {
                continue;
            }
            return Err(needed.to_owned());
        };
        // Each file of the list may need those behind it.
        for file in needs.split_whitespace().rev().chain([*file]) {
            if !order.iter().any(|known| known == file) {
                order.push(file.to_owned());
            }
        }
    }
    Ok(order)
}

fn module_name(file: &str) -> String {
    let name = file.rsplit('/').next().unwrap_or(file);
    name.split(".ko").next().unwrap_or(name).replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEP: &str = "kernel/drivers/virtio/virtio.ko:\n\
        kernel/drivers/virtio/virtio_ring.ko: kernel/drivers/virtio/virtio.ko\n\
        kernel/drivers/virtio/virtio_mmio.ko.xz: kernel/drivers/virtio/virtio_ring.ko kernel/drivers/virtio/virtio.ko\n\
        kernel/drivers/net/virtio_net.ko: kernel/drivers/virtio/virtio_ring.ko kernel/drivers/virtio/virtio.ko\n\
        kernel/drivers/char/virtio-console.ko: kernel/drivers/virtio/virtio_ring.ko kernel/drivers/virtio/virtio.ko\n\
        kernel/net/9p/9pnet_virtio.ko: kernel/net/9p/9pnet.ko\nkernel/net/9p/9pnet.ko:\n";

    #[test]
    fn modules_come_after_what_they_need() {
        let order = resolve(DEP, "kernel/fs/9p/9p.ko\n").unwrap();
        let names: Vec<String> = order.iter().map(|file| module_name(file)).collect();
        assert_eq!(
            names,
            ["virtio", "virtio_ring", "virtio_mmio", "virtio_net", "virtio_console", "9pnet", "9pnet_virtio"]
        );
    }

    #[test]
    fn a_module_that_is_nowhere_is_named() {
        assert_eq!(resolve(DEP, ""), Err("9p".into()));
    }

    #[test]
    fn newer_releases_come_first() {
        assert!(order("/boot/vmlinuz-6.12.1-1-amd64") > order("/boot/vmlinuz-6.9.0-10-amd64"));
    }

    #[test]
    fn f37_a_missing_kernel_is_named_with_what_to_do() {
        let error = find(Some(Path::new("/nonexistent/vmlinuz-1"))).unwrap_err().to_string();
        assert!(error.contains("/nonexistent/vmlinuz-1") && error.contains("apt-get install"), "{error}");
    }
}
