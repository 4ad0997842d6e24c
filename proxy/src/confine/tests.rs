//! The fences on a thread of their own: what holds for it holds for a broker.

use std::io::{Read as _, Write as _};
use std::path::Path;

use nix::sys::resource::Resource;
use nix::sys::socket::{AddressFamily, SockFlag, SockType};

use super::files::{May, Place, is_available, restrict};
use super::*;

/// Runs on a thread that ends with what it restricted.
fn apart<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    std::thread::spawn(move || {
        rustix::thread::set_no_new_privs(true).unwrap();
        work()
    })
    .join()
    .unwrap()
}

fn place(path: &Path, may: May) -> Place {
    Place { path: path.to_owned(), may }
}

#[test]
fn only_listed_places_can_be_opened_and_only_as_listed() {
    if !is_available() {
        return eprintln!("skipped: this kernel has no Landlock");
    }
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for name in ["read", "keep", "other"] {
        std::fs::create_dir(at(name)).unwrap();
        std::fs::write(at(name).join("file"), "content").unwrap();
    }
    let (read, keep, other) = (at("read"), at("keep"), at("other"));
    apart(move || {
        assert!(restrict(&[place(&read, May::Read), place(&keep, May::Keep)]).unwrap());
        assert_eq!(std::fs::read_to_string(read.join("file")).unwrap(), "content");
        assert!(std::fs::write(read.join("file"), "changed").is_err());
        assert!(std::fs::remove_file(read.join("file")).is_err());
        std::fs::write(keep.join("new"), "new").unwrap();
        std::fs::hard_link(keep.join("new"), keep.join("full")).unwrap();
        std::fs::remove_file(keep.join("new")).unwrap();
        assert!(std::fs::read(other.join("file")).is_err());
        assert!(std::fs::read_dir(&other).is_err());
        assert!(
            std::fs::hard_link(read.join("file"), keep.join("stolen")).is_err(),
            "nothing moves between places"
        );
        assert!(std::fs::read("/bin/sh").is_err() && std::fs::read_dir("/").is_err());
    });
}

#[test]
fn no_program_starts_and_no_call_beside_the_list_exists() {
    let file = std::env::current_exe().unwrap();
    apart(move || {
        calls::restrict().unwrap();
        let started = std::process::Command::new("/bin/true").status();
        assert!(started.is_err(), "{started:?}");
        let refused = [
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWUSER).err().map(|error| error.to_string()),
            nix::sys::socket::socket(AddressFamily::Packet, SockType::Raw, SockFlag::empty(), None)
                .err()
                .map(|error| error.to_string()),
            nix::sys::resource::setrlimit(Resource::RLIMIT_CORE, 0, 0).err().map(|error| error.to_string()),
        ];
        assert!(refused.iter().all(Option::is_some), "{refused:?}");
        // What a broker does all the time.
        let mut byte = [0];
        std::fs::File::open(&file).unwrap().read_exact(&mut byte).unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut sent = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        sent.set_nodelay(true).unwrap();
        sent.write_all(b"x").unwrap();
        listener.accept().unwrap().0.read_exact(&mut byte).unwrap();
        assert_eq!(byte, *b"x");
        std::thread::spawn(|| {}).join().unwrap();
    });
}
