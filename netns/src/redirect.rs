//! The nf_tables batch that leads other TCP ports to the catch-all (linux/netfilter/nf_tables.h).
//!
//! Written as bytes rather than through the `nft` program: starting that costs more than all other steps together.
//!
//! ```text
//! table inet freeboard {
//!   chain untracked { type filter hook output priority raw;   # `prerouting` and `output` in the joined form
//!     tcp dport PORT notrack … tcp sport PORT notrack … meta l4proto != tcp notrack }
//!   chain others { type nat hook output priority dstnat;      # `prerouting` in the joined form
//!     ip daddr 127.0.0.0/8 accept; ip6 daddr ::1 accept
//!     tcp dport PORT accept …
//!     meta l4proto tcp redirect to :CATCH_ALL }
//! }
//! ```
//!
//! The first chain keeps connection tracking away from the doors: a full table or a tracker's opinion must not decide
//! whether a granted request gets through.

use crate::message::{ACKNOWLEDGE, APPEND, Attributes, CREATE, Messages};
use crate::plan::{Redirect, Traffic};

const TABLE: &str = "freeboard";

const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;
const SUBSYSTEM: u16 = 10;
const NEW_TABLE: u16 = SUBSYSTEM << 8;
const DELETE_TABLE: u16 = (SUBSYSTEM << 8) | 2;
const NEW_CHAIN: u16 = (SUBSYSTEM << 8) | 3;
const NEW_RULE: u16 = (SUBSYSTEM << 8) | 6;
const FAMILY_INET: u8 = 1;

const PREROUTING: u32 = 0;
const OUTPUT: u32 = 3;
const PRIORITY_RAW: i32 = -300;
const PRIORITY_DSTNAT: i32 = -100;
const ACCEPT: u32 = 1;

const REGISTER_VERDICT: u32 = 0;
const REGISTER_1: u32 = 1;
const META_FAMILY: u32 = 15;
const META_PROTOCOL: u32 = 16;
const FAMILY_V4: u8 = 2;
const FAMILY_V6: u8 = 10;
const PROTOCOL_TCP: u8 = 6;
const NETWORK_HEADER: u32 = 1;
const TRANSPORT_HEADER: u32 = 2;

/// Creates table, chains and rules in one transaction.
pub(crate) fn create(redirect: &Redirect) -> Messages {
    transaction(|messages| {
        messages.push(NEW_TABLE, CREATE, &generic_header(0), |table| {
            table.put_name(1, TABLE);
        });
        let hooks: &[u32] = match redirect.traffic {
            Traffic::Local => &[OUTPUT],
            Traffic::Incoming => &[PREROUTING, OUTPUT],
        };
        for hook in hooks {
            let name = format!("untracked_{hook}");
            chain(messages, &name, "filter", *hook, PRIORITY_RAW);
            untracked_rules(messages, &name, redirect);
        }
        let hook = hooks.first().copied().unwrap_or(OUTPUT);
        chain(messages, "others", "nat", hook, PRIORITY_DSTNAT);
        other_rules(messages, redirect);
    })
}

pub(crate) fn remove() -> Messages {
    transaction(|messages| {
        messages.push(DELETE_TABLE, 0, &generic_header(0), |table| {
            table.put_name(1, TABLE);
        });
    })
}

fn transaction(fill: impl FnOnce(&mut Messages)) -> Messages {
    let mut messages = Messages::default();
    messages.push(BATCH_BEGIN, 0, &generic_header(SUBSYSTEM), |_| {});
    fill(&mut messages);
    messages.push(BATCH_END, ACKNOWLEDGE, &generic_header(SUBSYSTEM), |_| {});
    messages
}

/// `struct nfgenmsg`: family, version 0, resource id in network byte order.
fn generic_header(resource: u16) -> [u8; 4] {
    let [high, low] = resource.to_be_bytes();
    [FAMILY_INET, 0, high, low]
}

fn chain(messages: &mut Messages, name: &str, kind: &str, hook: u32, priority: i32) {
    messages.push(NEW_CHAIN, CREATE, &generic_header(0), |chain| {
        chain.put_name(1, TABLE).put_name(3, name);
        chain.nest(4, |place| {
            place.put_be32(1, hook).put(2, &priority.to_be_bytes());
        });
        chain.put_be32(5, ACCEPT).put_name(7, kind);
    });
}

fn untracked_rules(messages: &mut Messages, chain: &str, redirect: &Redirect) {
    for port in &redirect.except {
        for offset in [SOURCE_PORT, DESTINATION_PORT] {
            rule(messages, chain, |rule| {
                rule.tcp().port(offset, *port).expression("notrack", |_| {});
            });
        }
    }
    rule(messages, chain, |rule| {
        rule.meta(META_PROTOCOL).compare(NOT_EQUAL, &[PROTOCOL_TCP]).expression("notrack", |_| {});
    });
}

fn other_rules(messages: &mut Messages, redirect: &Redirect) {
    const CHAIN: &str = "others";
    rule(messages, CHAIN, |rule| {
        rule.meta(META_FAMILY)
            .compare(EQUAL, &[FAMILY_V4])
            .payload(NETWORK_HEADER, 16, 1)
            .compare(EQUAL, &[127]);
        rule.accept();
    });
    rule(messages, CHAIN, |rule| {
        let loopback = std::net::Ipv6Addr::LOCALHOST.octets();
        rule.meta(META_FAMILY).compare(EQUAL, &[FAMILY_V6]).payload(NETWORK_HEADER, 24, 16);
        rule.compare(EQUAL, &loopback).accept();
    });
    for port in &redirect.except {
        rule(messages, CHAIN, |rule| {
            rule.tcp().port(DESTINATION_PORT, *port).accept();
        });
    }
    rule(messages, CHAIN, |rule| {
        rule.tcp().immediate(REGISTER_1, |data| {
            data.put(1, &redirect.to.to_be_bytes());
        });
        rule.expression("redir", |redir| {
            redir.put_be32(1, REGISTER_1);
        });
    });
}

const SOURCE_PORT: u32 = 0;
const DESTINATION_PORT: u32 = 2;
const EQUAL: u32 = 0;
const NOT_EQUAL: u32 = 1;

fn rule(messages: &mut Messages, chain: &str, fill: impl FnOnce(&mut Rule<'_, '_>)) {
    messages.push(NEW_RULE, CREATE | APPEND, &generic_header(0), |attributes| {
        attributes.put_name(1, TABLE).put_name(2, chain);
        attributes.nest(4, |list| fill(&mut Rule { list }));
    });
}

/// Writes the expressions of one rule.
struct Rule<'a, 'b> {
    list: &'a mut Attributes<'b>,
}

impl Rule<'_, '_> {
    fn expression(&mut self, name: &str, fill: impl FnOnce(&mut Attributes<'_>)) -> &mut Self {
        self.list.nest(1, |element| {
            element.put_name(1, name).nest(2, fill);
        });
        self
    }

    fn meta(&mut self, key: u32) -> &mut Self {
        self.expression("meta", |meta| {
            meta.put_be32(1, REGISTER_1).put_be32(2, key);
        })
    }

    fn payload(&mut self, base: u32, offset: u32, length: u32) -> &mut Self {
        self.expression("payload", |payload| {
            payload.put_be32(1, REGISTER_1).put_be32(2, base).put_be32(3, offset).put_be32(4, length);
        })
    }

    fn compare(&mut self, operation: u32, value: &[u8]) -> &mut Self {
        self.expression("cmp", |compare| {
            compare.put_be32(1, REGISTER_1).put_be32(2, operation);
            compare.nest(3, |data| {
                data.put(1, value);
            });
        })
    }

    fn immediate(&mut self, register: u32, fill: impl FnOnce(&mut Attributes<'_>)) -> &mut Self {
        self.expression("immediate", |immediate| {
            immediate.put_be32(1, register).nest(2, fill);
        })
    }

    fn tcp(&mut self) -> &mut Self {
        self.meta(META_PROTOCOL).compare(EQUAL, &[PROTOCOL_TCP])
    }

    fn port(&mut self, offset: u32, port: u16) -> &mut Self {
        self.payload(TRANSPORT_HEADER, offset, 2).compare(EQUAL, &port.to_be_bytes())
    }

    fn accept(&mut self) -> &mut Self {
        self.immediate(REGISTER_VERDICT, |data| {
            data.nest(2, |verdict| {
                verdict.put_be32(1, ACCEPT);
            });
        })
    }
}
