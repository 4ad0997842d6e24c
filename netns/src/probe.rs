//! What this kernel offers, asked once and reported plainly.
//!
//! Each question is put by trying, in a child process that ends at once: files under `/proc/sys` say what is configured,
//! not what a security module or a container lets us do.

use std::sync::OnceLock;

use nix::sched::{CloneFlags, unshare};

use crate::netlink::Netlink;
use crate::plan::{CatchAll, Families, Redirect, Traffic};
use crate::redirect;
use crate::sys::ask_in_child;

/// One thing that was tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offer {
    pub available: bool,
    /// For people: what was seen, and what to do where it is missing.
    pub detail: &'static str,
}

/// What gates can be made of here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offers {
    /// A network namespace, with our own rights or those that a user namespace gives.
    pub network_namespace: Offer,
    /// A user namespace: what an ordinary user needs.
    pub user_namespace: Offer,
    /// IPv6 in the kernel. Without it guests have no IPv6 sockets either.
    pub ipv6: Offer,
    /// nf_tables with redirects: attempts on other ports are recorded.
    pub nftables: Offer,
}

impl Offers {
    /// The families to plan a gate for.
    pub fn families(&self) -> Families {
        if self.ipv6.available { Families::Both } else { Families::V4 }
    }

    pub fn catch_all(&self) -> CatchAll {
        if self.nftables.available { CatchAll::WhereOffered } else { CatchAll::Off }
    }
}

/// Asks the kernel the first time and remembers the answer.
pub fn offers() -> &'static Offers {
    static OFFERS: OnceLock<Offers> = OnceLock::new();
    OFFERS.get_or_init(ask)
}

fn ask() -> Offers {
    let user = tried(|| unshare(CloneFlags::CLONE_NEWUSER).is_ok());
    let network = tried(enter_fresh_network);
    let batch = redirect::create(&Redirect { to: 65535, except: vec![443], traffic: Traffic::Local });
    let nftables = tried(|| {
        enter_fresh_network() && Netlink::open_netfilter().and_then(|netlink| netlink.request(&batch)).is_ok()
    });
    let ipv6 = std::path::Path::new("/proc/net/if_inet6").exists();
    Offers {
        network_namespace: offer(
            network,
            "a network namespace was made",
            "no network namespace can be made: run as root, or allow user namespaces",
        ),
        user_namespace: offer(
            user,
            "a user namespace was made",
            "no user namespace can be made: see user.max_user_namespaces, kernel.unprivileged_userns_clone and \
             kernel.apparmor_restrict_unprivileged_userns",
        ),
        ipv6: offer(ipv6, "the kernel has IPv6", "the kernel has no IPv6: gates have only IPv4"),
        nftables: offer(
            nftables,
            "a redirect was made with nf_tables",
            "no nf_tables redirect can be made: attempts on other ports are refused but not recorded; load nft_redir \
             and nft_chain_nat",
        ),
    }
}

fn tried(question: impl FnOnce() -> bool) -> bool {
    ask_in_child(|| u8::from(question())).is_ok_and(|answer| answer == 1)
}

fn enter_fresh_network() -> bool {
    unshare(CloneFlags::CLONE_NEWNET).is_ok()
        || unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET).is_ok()
}

fn offer(available: bool, yes: &'static str, no: &'static str) -> Offer {
    Offer { available, detail: if available { yes } else { no } }
}
