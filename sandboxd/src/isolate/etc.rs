//! The generated part of /etc: who the user is, how names are resolved, which CAs are trusted. The same for every run
//! but for the CA; nothing of the host's own users, hosts or resolvers.

use std::io::{self, Write};
use std::path::Path;

/// The name server that every run is told: any address ends at the gate's own port 53, this one is synthetic.
const RESOLV_CONF: &str = "nameserver 198.18.0.1\noptions timeout:2 attempts:2\n";
const HOSTS: &str = "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n127.0.1.1 sandbox\n";
const NSSWITCH: &str = "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nnetworks: files\n\
                        protocols: files\nservices: files\n";
/// The services that programs look up by name.
const SERVICES: &str = "ftp 21/tcp\nssh 22/tcp\nsmtp 25/tcp\ndomain 53/tcp\ndomain 53/udp\nhttp 80/tcp\n\
                        ntp 123/udp\nhttps 443/tcp\nhttps 443/udp\ngit 9418/tcp\n";
const PROTOCOLS: &str = "ip 0 IP\nicmp 1 ICMP\ntcp 6 TCP\nudp 17 UDP\nipv6 41 IPv6\nipv6-icmp 58 IPv6-ICMP\n";
const OPENSSL_CNF: &str = "[req]\ndistinguished_name = req_distinguished_name\n[req_distinguished_name]\n";

/// Where the bundle is. The other places that tools look at are links to it.
pub const CA_BUNDLE: &str = "/etc/ssl/certs/ca-certificates.crt";
/// The interception CA alone, for tools that add to their own roots.
pub const CA_ALONE: &str = "/etc/ssl/freeboard-ca.pem";

/// Links to the bundle: Red Hat's, SUSE's and Alpine's places.
const BUNDLE_LINKS: [(&str, &str); 4] = [
    ("etc/ssl/cert.pem", "certs/ca-certificates.crt"),
    ("etc/ssl/ca-bundle.pem", "certs/ca-certificates.crt"),
    ("etc/pki/tls/certs/ca-bundle.crt", "../../../ssl/certs/ca-certificates.crt"),
    ("etc/pki/tls/cert.pem", "../../ssl/certs/ca-certificates.crt"),
];

/// Where the host's bundle of roots may be, in the order of distributions' habits.
const HOST_BUNDLES: [&str; 5] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
];

const GENERATED: [&str; 12] = [
    "passwd",
    "group",
    "hosts",
    "hostname",
    "resolv.conf",
    "nsswitch.conf",
    "services",
    "protocols",
    "ssl",
    "pki",
    "mtab",
    "shadow",
];

/// Whether a name directly below /etc is generated (or withheld) rather than shown from a given root.
pub fn is_generated(name: &str) -> bool {
    GENERATED.contains(&name)
}

/// The small files, relative to the guest's root.
fn files((uid, gid): (u32, u32)) -> Vec<(&'static str, String)> {
    let root = "root:x:0:0:root:/work:/bin/sh\n";
    let nobody = "nobody:x:65534:65534:nobody:/:/bin/false\n";
    let user = if uid == 0 { String::new() } else { format!("user:x:{uid}:{gid}:user:/work:/bin/sh\n") };
    let group = if gid == 0 { String::new() } else { format!("user:x:{gid}:\n") };
    vec![
        ("etc/passwd", format!("{root}{user}{nobody}")),
        ("etc/group", format!("root:x:0:\n{group}nogroup:x:65534:\n")),
        ("etc/hostname", "sandbox\n".into()),
        ("etc/hosts", HOSTS.into()),
        ("etc/resolv.conf", RESOLV_CONF.into()),
        ("etc/nsswitch.conf", NSSWITCH.into()),
        ("etc/services", SERVICES.into()),
        ("etc/protocols", PROTOCOLS.into()),
        ("etc/ssl/openssl.cnf", OPENSSL_CNF.into()),
    ]
}

/// Writes everything below the current directory, which is the new root. The host's files are still reachable by
/// absolute paths.
pub fn generate(guest: (u32, u32), ca_pem: &str) -> io::Result<()> {
    for folder in ["etc/ssl/certs", "etc/ssl/private", "etc/pki/tls/certs"] {
        std::fs::create_dir_all(folder)?;
    }
    for (path, content) in files(guest) {
        std::fs::write(path, content)?;
    }
    std::os::unix::fs::symlink("/proc/self/mounts", "etc/mtab")?;
    write_bundle(ca_pem)?;
    for (path, target) in BUNDLE_LINKS {
        std::os::unix::fs::symlink(target, path)?;
    }
    Ok(())
}

/// The host's bundle of roots, where it has one.
pub(crate) fn host_bundle() -> Option<Vec<u8>> {
    HOST_BUNDLES.iter().find_map(|path| std::fs::read(path).ok())
}

/// The system's roots and ours. A host without a bundle gives one with ours alone.
fn write_bundle(ca_pem: &str) -> io::Result<()> {
    let mut bundle = std::fs::File::create(relative(CA_BUNDLE))?;
    if let Some(mut roots) = HOST_BUNDLES.iter().find_map(|path| std::fs::File::open(path).ok()) {
        io::copy(&mut roots, &mut bundle)?;
    }
    if !ca_pem.is_empty() {
        bundle.write_all(b"\n")?;
        bundle.write_all(ca_pem.as_bytes())?;
        std::fs::write(relative(CA_ALONE), ca_pem)?;
        write_java_store(ca_pem)?;
    }
    Ok(())
}

/// Java's trust store where the JDKs of distributions, and the packages of Adoptium, link to. It holds our CA alone: whatever a
/// run reaches speaks with a
/// certificate of that CA.
fn write_java_store(ca_pem: &str) -> io::Result<()> {
    let Some(store) = super::java_store::trust_store(ca_pem) else { return Ok(()) };
    for folder in ["etc/ssl/certs/java", "etc/ssl/certs/adoptium", "etc/pki/java"] {
        std::fs::create_dir_all(folder)?;
        std::fs::write(Path::new(folder).join("cacerts"), &store)?;
    }
    Ok(())
}

fn relative(path: &str) -> &Path {
    Path::new(path.trim_start_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_user_and_nobody_of_the_host() {
        let files = files((1000, 1000));
        let passwd = &files.iter().find(|(path, _)| *path == "etc/passwd").unwrap().1;
        assert_eq!(passwd.lines().count(), 3);
        assert!(passwd.contains("user:x:1000:1000:"));
        assert!(!files.iter().any(|(_, content)| content.contains("61000")));
    }

    #[test]
    fn every_generated_file_is_withheld_from_a_given_root() {
        for (path, _) in files((0, 0)) {
            let name = path.trim_start_matches("etc/").split('/').next().unwrap();
            assert!(is_generated(name), "{name}");
        }
    }
}
