//! The lab itself: what it records and finds is what the other tests rely on.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failing test panics")]

use std::sync::Arc;

use freeboard_tests::answer::Answer;
use freeboard_tests::ca::{Flaw, TestCa};
use freeboard_tests::expect::{get, with_body};
use freeboard_tests::network::Network;
use freeboard_tests::upstream::{HOSTS, Upstream, address_of};
use freeboard_tests::wire::Wire;

fn lab() -> Option<(Network, Arc<TestCa>, Upstream)> {
    let world = Network::with_addresses(&HOSTS.map(address_of))?;
    let ca = Arc::new(TestCa::new());
    let upstream = Upstream::start(&world, &ca, &[]);
    Some((world, ca, upstream))
}

fn dial(world: &Network, ca: &TestCa, host: &str) -> std::io::Result<Wire> {
    let stream = world.connect((address_of(host), 443).into())?;
    Wire::clear(stream).start_tls(host, ca.pem(), &[])
}

#[test]
fn the_recorder_keeps_every_byte() {
    let Some((world, ca, upstream)) = lab() else { return };
    let mut wire = dial(&world, &ca, "pub.test").unwrap();
    let request = "POST /a?b HTTP/1.1\r\nHost: pub.test\r\nx-ODD:  v \r\nTransfer-Encoding: chunked\r\n\r\n3;e\r\nabc\r\n0\r\n\r\n";
    assert_eq!(wire.ask(request).answer().status, 200);
    wire.ask(with_body("PUT", "pub.test", "/c", &[], "hello")).answer();
    let recorded = upstream.take();
    assert_eq!([recorded[0].head.clone(), recorded[0].raw_body.clone()].concat(), request.as_bytes());
    assert_eq!(recorded[0].body, b"abc");
    assert_eq!((recorded[1].method.as_str(), recorded[1].body.as_slice()), ("PUT", &b"hello"[..]));
    assert_eq!(recorded[0].server_name, "pub.test");
    assert_eq!(recorded[0].connection, recorded[1].connection);
    assert!(upstream.take().is_empty());
    assert!(upstream.bytes() > request.len());
}

#[test]
fn scripts_and_resets_work() {
    let Some((world, ca, upstream)) = lab() else { return };
    upstream.on("api.test", "/gone", |_| {
        Answer::raw("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhal").resetting()
    });
    upstream.on("api.test", "/moved", |_| Answer::new(302, &["Location: https://evil.test/"], ""));
    let moved = dial(&world, &ca, "api.test").unwrap().ask(get("api.test", "/moved")).answer();
    assert_eq!((moved.status, moved.field("location")), (302, Some("https://evil.test/")));
    assert_eq!(dial(&world, &ca, "api.test").unwrap().ask(get("api.test", "/gone")).status(), None);
}

#[test]
fn flawed_certificates_are_flawed() {
    let Some((world, ca, upstream)) = lab() else { return };
    for flaw in [Flaw::Expired, Flaw::NotYetValid, Flaw::WrongName, Flaw::SelfSigned, Flaw::UnknownAuthority]
    {
        upstream.flaw("api.test", flaw);
        assert!(dial(&world, &ca, "api.test").is_err(), "{flaw:?}");
    }
    upstream.flaw("api.test", Flaw::None);
    dial(&world, &ca, "api.test").unwrap();
}

#[test]
fn the_labs_policy_loads_and_is_warned_about_the_api_that_reflects() {
    use freeboard_policy::{Policy, SourceFile, render_all};
    let files = [SourceFile::new("lab.toml", freeboard_tests::lab::POLICY.replace("FOLDER", "/nowhere"))];
    let loaded = Policy::load(&files).unwrap_or_else(|problems| panic!("{}", render_all(&problems)));
    // `echo` is wide on purpose: it stands for the hostile upstream.
    let warnings = render_all(&loaded.warnings);
    assert!(loaded.warnings.len() <= 1 && (warnings.is_empty() || warnings.contains("`echo`")), "{warnings}");
}
