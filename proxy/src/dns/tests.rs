use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::Command;
use std::sync::Arc;

use freeboard_control::{Evidence, OpenGate};
use freeboard_policy::{Host, Policy, Tier};
use hickory_proto::op::{Edns, Message, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::opt::{EdnsCode, EdnsOption};
use hickory_proto::rr::{DNSClass, Name, RData, RecordType};
use proptest::prelude::*;

use super::answer::{Verdict, answer};
use super::refusals::{Refusals, Worth};
use super::{FIRST_V4, FIRST_V6, Issued, NAME_SERVER, NameTable, serve_tcp, serve_udp};
use crate::broker::{Broker, Snapshot};
use crate::credential::Store;
use crate::limits::REFUSED_NAMES_TOLD_APART;
use crate::record::Recorder;
use crate::run::RunContext;
use crate::tls::{Authority, CertificateAuthority, NewCa};
use crate::upstream::dial::Dialler;

fn host(text: &str) -> Host {
    Host::parse(text).unwrap()
}

fn question(name: &str, kind: RecordType) -> Message {
    let mut message = Message::query();
    message.metadata.id = 4242;
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(Name::from_ascii(name).unwrap(), kind));
    message
}

fn with_edns(mut message: Message) -> Message {
    message.edns = Some(Edns::new());
    message
}

/// `api.test` is granted.
fn ask(message: &Message) -> (Verdict, Option<Message>) {
    let table = NameTable::default();
    let verdict =
        answer(
            &message.to_vec().unwrap(),
            |name| {
                if *name == host("api.test") { table.issue(name) } else { None }
            },
        );
    let reply = match &verdict {
        Verdict::Answer(reply) | Verdict::Refuse { reply, .. } => Some(Message::from_vec(reply).unwrap()),
        Verdict::Drop => None,
    };
    (verdict, reply)
}

#[test]
fn answers_granted_names_with_synthetic_addresses() {
    let (_, reply) = ask(&question("API.Test.", RecordType::A));
    let reply = reply.unwrap();
    assert_eq!((reply.metadata.id, reply.metadata.response_code), (4242, ResponseCode::NoError));
    assert_eq!(reply.queries[0].name.to_ascii(), "API.Test.", "the question is repeated as it was spelt");
    assert!(matches!(reply.answers[0].data, RData::A(address) if address.0 == FIRST_V4));
    let (_, reply) = ask(&question("api.test.", RecordType::AAAA));
    assert!(matches!(reply.unwrap().answers[0].data, RData::AAAA(address) if address.0 == FIRST_V6));
}

/// D03, D17: HTTPS and SVCB of a granted name exist and are empty, so that no h3 and no ECH is tried.
#[test]
fn d03_answers_https_and_svcb_empty() {
    for kind in [RecordType::HTTPS, RecordType::SVCB] {
        let (verdict, reply) = ask(&question("api.test.", kind));
        assert!(matches!(verdict, Verdict::Answer(_)));
        let reply = reply.unwrap();
        assert_eq!(reply.metadata.response_code, ResponseCode::NoError);
        assert!(reply.answers.is_empty() && reply.authorities.is_empty() && reply.additionals.is_empty());
    }
}

/// D04: every other name and type is refused, with the extended error where the question has EDNS.
#[test]
fn d04_refuses_everything_else() {
    for (name, kind) in [
        ("evil.test.", RecordType::A),
        ("evil.test.", RecordType::HTTPS),
        ("c2VjcmV0.evil.test.", RecordType::TXT),
        ("x.api.test.", RecordType::A),
        ("test.", RecordType::A),
        (".", RecordType::NS),
        ("127.0.0.1.", RecordType::A),
        ("api.test.", RecordType::TXT),
        ("api.test.", RecordType::ANY),
        ("api.test.", RecordType::AXFR),
        ("1.0.18.198.in-addr.arpa.", RecordType::PTR),
    ] {
        let (verdict, reply) = ask(&with_edns(question(name, kind)));
        let Verdict::Refuse { question: refused, .. } = verdict else { panic!("{name} {kind}: {verdict:?}") };
        assert_eq!(refused.kind, kind.to_string());
        let reply = reply.unwrap();
        assert_eq!(reply.metadata.response_code, ResponseCode::Refused, "{name} {kind}");
        assert!(reply.answers.is_empty());
        let options = reply.edns.unwrap();
        let filtered = EdnsOption::Unknown(15, vec![0, 17]);
        assert_eq!(options.option(EdnsCode::Unknown(15)), Some(&filtered));
        let (_, plain) = ask(&question(name, kind));
        assert!(plain.unwrap().edns.is_none(), "RFC 6891 7: no EDNS where none was asked with");
    }
}

#[test]
fn refuses_other_classes_and_operations() {
    let mut chaos = question("api.test.", RecordType::A);
    chaos.queries[0].query_class = DNSClass::CH;
    let mut update = question("api.test.", RecordType::A);
    update.metadata.op_code = OpCode::Update;
    for message in [chaos, update] {
        assert!(matches!(ask(&message).0, Verdict::Refuse { .. }));
    }
}

#[test]
fn drops_what_is_no_question() {
    let mut none = question("api.test.", RecordType::A);
    none.queries.clear();
    let mut two = question("api.test.", RecordType::A);
    two.add_query(Query::query(Name::from_ascii("evil.test.").unwrap(), RecordType::A));
    let response = Message::response(7, OpCode::Query);
    for message in [none, two, response] {
        assert_eq!(ask(&message).0, Verdict::Drop);
    }
    let nothing = |_: &Host| -> Option<Issued> { panic!("nothing to look up") };
    for bytes in [&b""[..], b"\x00", &[0xff; 11], &[0xff; 12], b"GET / HTTP/1.1\r\n\r\n"] {
        assert_eq!(answer(bytes, nothing), Verdict::Drop);
    }
    // A compression pointer to itself ends nowhere.
    let looped = [&[0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0][..], &[0xc0, 0x0c, 0, 1, 0, 1]].concat();
    assert_eq!(answer(&looped, nothing), Verdict::Drop);
}

#[test]
fn one_name_keeps_its_addresses_and_the_reverse_table_knows_it() {
    let table = NameTable::default();
    let (one, two) = (table.issue(&host("one.test")).unwrap(), table.issue(&host("two.test")).unwrap());
    assert_eq!(one, table.issue(&host("one.test")).unwrap());
    assert_ne!(one, two);
    assert_eq!(table.lookup(one.v4.into()), Some(host("one.test")));
    assert_eq!(table.lookup(two.v6.into()), Some(host("two.test")));
    // A dual-stack listener sees IPv4 destinations in mapped form.
    assert_eq!(table.lookup(IpAddr::V6(two.v4.to_ipv6_mapped())), Some(host("two.test")));
    for never_issued in [
        IpAddr::V4(NAME_SERVER),
        IpAddr::V4(Ipv4Addr::from(u32::from(FIRST_V4) + 2)),
        IpAddr::V4(Ipv4Addr::new(1, 1, 1, 1)),
        IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(Ipv6Addr::from(u128::from(FIRST_V6) - 1)),
        IpAddr::V6(Ipv6Addr::from(u128::from(FIRST_V6) + (1 << 40))),
    ] {
        assert_eq!(table.lookup(never_issued), None, "{never_issued}");
    }
    // No synthetic address is one that the broker would dial.
    for address in [IpAddr::V4(one.v4), IpAddr::V6(one.v6), IpAddr::V4(NAME_SERVER)] {
        assert!(freeboard_policy::address::allowed(address, &[]).is_err());
    }
}

/// E23: a name is recorded once and then at powers of sixteen; a flood of names costs bounded memory and records.
#[test]
fn e23_aggregates_floods() {
    let refusals = Refusals::default();
    let repeats: Vec<Worth> = (0..300).map(|_| refusals.count("evil.test")).collect();
    assert_eq!(repeats[0], Worth::First);
    let later: Vec<_> = repeats[1..].iter().filter(|worth| **worth != Worth::Nothing).collect();
    assert_eq!(later, [&Worth::Repeated(16), &Worth::Repeated(256)]);
    let recorded =
        (0..100_000).filter(|index| refusals.count(&format!("n{index}.evil.test")) != Worth::Nothing);
    let recorded = recorded.count();
    assert!((REFUSED_NAMES_TOLD_APART..REFUSED_NAMES_TOLD_APART + 8).contains(&recorded), "{recorded}");
}

proptest! {
    /// Whatever bytes come, there is no panic, and a reply is never longer than a datagram may be.
    #[test]
    fn any_bytes_are_answered_or_dropped(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        match answer(&bytes, |_| None) {
            Verdict::Answer(reply) | Verdict::Refuse { reply, .. } => prop_assert!(reply.len() <= 1232),
            Verdict::Drop => {}
        }
    }

    /// The same with bytes that begin as a question does.
    #[test]
    fn any_question_is_answered_or_dropped(tail in prop::collection::vec(any::<u8>(), 0..600), flags in any::<u16>()) {
        let [high, low] = flags.to_be_bytes();
        let bytes = [&[0, 1, high & 0x7f, low, 0, 1, 0, 0, 0, 0, 0, 1][..], &tail].concat();
        match answer(&bytes, |_| None) {
            Verdict::Answer(reply) | Verdict::Refuse { reply, .. } => prop_assert!(reply.len() <= 1232),
            Verdict::Drop => {}
        }
    }
}

fn broker() -> Arc<Broker> {
    let ca = Arc::new(CertificateAuthority::in_memory(&NewCa::default(), 1_800_000_000).unwrap());
    let snapshot = Snapshot::new(Policy::deny_all(), None, Store::default());
    Arc::new(Broker::new(snapshot, Authority::new(ca).unwrap(), Dialler::default(), Recorder::default()))
}

fn run(broker: &Broker) -> Arc<RunContext> {
    let gate = OpenGate {
        run: "0".repeat(32),
        caller: None,
        grants: Vec::new(),
        evidence: Evidence { provider: "native".into(), tier: Tier::Container, facts: Vec::new() },
        expires_unix_ms: u64::MAX,
        trace_id: None,
        session: None,
        doors: Vec::new(),
    };
    RunContext::open(&gate, None, broker).unwrap()
}

/// A resolver throws away what does not come from the address that it asked: every address of a gate answers as itself.
#[tokio::test(flavor = "multi_thread")]
async fn replies_come_from_the_address_that_was_asked() {
    let broker = broker();
    let run = run(&broker);
    let socket = socket2::Socket::new(socket2::Domain::IPV6, socket2::Type::DGRAM, None).unwrap();
    socket.set_only_v6(false).unwrap();
    socket.bind(&SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)).into()).unwrap();
    let port = socket.local_addr().unwrap().as_socket().unwrap().port();
    let listener = socket2::Socket::new(socket2::Domain::IPV6, socket2::Type::STREAM, None).unwrap();
    listener.set_only_v6(false).unwrap();
    listener.bind(&SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)).into()).unwrap();
    listener.listen(16).unwrap();
    let udp = tokio::spawn(serve_udp(socket.into(), Arc::clone(&run), Arc::clone(&broker)));
    let tcp = tokio::spawn(serve_tcp(listener.into(), Arc::clone(&run), Arc::clone(&broker)));
    tokio::task::spawn_blocking(move || {
        for server in ["127.0.0.9", "127.200.3.4", "::1"] {
            for transport in ["+notcp", "+tcp"] {
                let output = Command::new("dig")
                    .args([&format!("@{server}"), "-p", &port.to_string(), transport, "+tries=1", "+time=5"])
                    .args(["evil.test", "A"])
                    .output();
                let Ok(output) = output else { return println!("SKIPPED: `dig` is not installed here") };
                let text = String::from_utf8_lossy(&output.stdout).into_owned();
                assert!(text.contains("status: REFUSED"), "{server} {transport}: {text}");
                assert!(text.contains("EDE: 17"), "{server} {transport}: {text}");
            }
        }
    })
    .await
    .unwrap();
    assert!(run.trace().denied >= 1);
    udp.abort();
    tcp.abort();
}
