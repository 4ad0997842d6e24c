//! The environment of a step: made from nothing, so that no variable of the daemon is in it.

use super::etc::{CA_ALONE, CA_BUNDLE};

/// Variables by which tools find the bundle of trusted CAs.
const BUNDLE_VARIABLES: [&str; 8] = [
    "SSL_CERT_FILE",
    "CURL_CA_BUNDLE",
    "REQUESTS_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "CARGO_HTTP_CAINFO",
    "PIP_CERT",
    "AWS_CA_BUNDLE",
    "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
];

/// Ours first, then the job's own, which may replace ours: they concern nobody but the run.
pub fn environment(user: &str, with_ca: bool, extra: &[(String, String)]) -> Vec<(String, String)> {
    let fixed = [
        ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
        ("HOME", "/work"),
        ("PWD", "/work"),
        ("TMPDIR", "/tmp"),
        ("USER", user),
        ("LOGNAME", user),
        ("SHELL", "/bin/sh"),
        ("LANG", "C.UTF-8"),
        ("TERM", "dumb"),
    ];
    let mut variables: Vec<(String, String)> =
        fixed.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
    variables.extend(BUNDLE_VARIABLES.iter().map(|&name| (name.to_owned(), CA_BUNDLE.to_owned())));
    if with_ca {
        // Node adds these to the roots that it brings along.
        variables.push(("NODE_EXTRA_CA_CERTS".to_owned(), CA_ALONE.to_owned()));
    }
    for (name, value) in extra {
        variables.retain(|(known, _)| known != name);
        variables.push((name.clone(), value.clone()));
    }
    variables
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_jobs_own_variables_replace_ours() {
        let extra = [("HOME".to_owned(), "/tmp".to_owned()), ("MODE".to_owned(), "fast".to_owned())];
        let variables = environment("user", true, &extra);
        let values = |name: &str| {
            variables.iter().filter(|(known, _)| known == name).map(|(_, v)| v.as_str()).collect::<Vec<_>>()
        };
        assert_eq!(values("HOME"), ["/tmp"]);
        assert_eq!(values("MODE"), ["fast"]);
        assert_eq!(values("SSL_CERT_FILE"), [CA_BUNDLE]);
        assert_eq!(values("NODE_EXTRA_CA_CERTS"), [CA_ALONE]);
    }
}
