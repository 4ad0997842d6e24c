//! The runtime's program: where it is.

use std::path::Path;

use crate::provider::CreateError;
use crate::provider::program::Program;

/// Where distributions and gVisor's own installer put it.
const FOLDERS: [&str; 5] = ["/usr/local/bin", "/usr/bin", "/usr/local/sbin", "/usr/sbin", "/bin"];

/// Finds `runsc`, or says that it is missing.
pub(super) fn find_runsc(named: Option<&Path>) -> Result<Program, CreateError> {
    let help = "install gVisor's `runsc` (`apt-get install runsc`), or name it with `gvisor_runsc`";
    let path = match named {
        Some(path) => Some(path.to_owned()),
        None => FOLDERS.iter().map(|folder| Path::new(folder).join("runsc")).find(|path| path.is_file()),
    };
    let Some(path) = path else {
        return Err(CreateError::Host { what: "`runsc` is not installed".into(), help: help.into() });
    };
    let shown = path.display().to_string();
    Program::at(path).map_err(|error| CreateError::Host {
        what: format!("cannot use `{shown}`: {error}"),
        help: help.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f37_a_missing_runtime_is_named_with_what_to_do() {
        let error = find_runsc(Some(Path::new("/nonexistent/runsc"))).unwrap_err().to_string();
        assert!(error.contains("/nonexistent/runsc") && error.contains("apt-get install runsc"), "{error}");
    }
}
