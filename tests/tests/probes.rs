//! P3, P4: several hundred requests that parsers read in different ways, byte for byte (`tests/probes`). What must become of each is
//! in the file; behind each comes another request, which shows where the broker sees its end, and the upstream's record shows where the
//! upstream does.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a failing test panics")]

use freeboard_tests::lab::{C1, Lab, Run, Way};
use freeboard_tests::probe::{Probe, read};
use freeboard_tests::upstream::Recorded;
use freeboard_tests::wait;
use freeboard_tests::wire::{Reply, Wire};

/// What one run sends: below what is written one by one of equal refusals.
const PROBES_PER_RUN: usize = 60;
const FOLLOW: &str = "/v1/items/follow";

/// What became of a probe, in the words of the file, and its request id where it was refused.
struct Seen {
    outcome: String,
    recorded: Option<Recorded>,
    id: Option<String>,
}

fn open(run: &Run<'_>, way: Way, probe: &Probe) -> (Wire, String) {
    if probe.to_proxy {
        return (run.proxy(), format!("GET https://api.test{FOLLOW} HTTP/1.1\r\nHost: api.test\r\n\r\n"));
    }
    (run.tls(way, "api.test"), format!("GET {FOLLOW} HTTP/1.1\r\nHost: api.test\r\n\r\n"))
}

fn send(run: &Run<'_>, way: Way, probe: &Probe) -> Seen {
    run.lab.upstream.take();
    let (mut wire, follow) = open(run, way, probe);
    let bytes = [&probe.bytes, follow.as_bytes()].concat();
    let first = wire.ask(&bytes);
    let second = match &first {
        Reply::Answer(_) => wire.read_answer("GET"),
        Reply::Closed(_) => wire.read_answer("GET"),
    };
    let mut recorded = run.lab.upstream.take();
    let followed = match &second {
        Reply::Answer(answer) => {
            assert_eq!(answer.status, 200, "{}: a second answer {answer:?} to {first:?}", probe.name);
            let last = recorded.pop().unwrap_or_else(|| panic!("{}: {answer:?}", probe.name));
            assert!(last.target == FOLLOW && answer.text().contains(FOLLOW), "{}: {last:?}", probe.name);
            assert!(last.body.is_empty(), "{}: {last:?}", probe.name);
            true
        }
        Reply::Closed(error) => {
            let waited =
                [std::io::ErrorKind::WouldBlock, std::io::ErrorKind::TimedOut].contains(&error.kind());
            assert!(!waited, "{}: neither closed nor answered behind {first:?}", probe.name);
            false
        }
    };
    let Reply::Answer(answer) = first else {
        assert!(recorded.is_empty(), "{}: {recorded:?}", probe.name);
        return Seen { outcome: "broken".to_owned(), recorded: None, id: None };
    };
    let Some(reason) = answer.reason() else {
        assert_eq!((answer.status, recorded.len()), (200, 1), "{}: {answer:?} {recorded:?}", probe.name);
        let word = if followed { "pass" } else { "pass-close" };
        let outcome = format!("{word} {}", recorded[0].target);
        return Seen { outcome, recorded: recorded.pop(), id: None };
    };
    assert!(recorded.is_empty(), "{}: refused as {reason}, and went on: {recorded:?}", probe.name);
    let id = answer.field("x-freeboard-request-id").map(str::to_owned);
    assert!(id.is_some(), "{}: {answer:?}", probe.name);
    run.lab.assert_no_secret("a refusal", &[answer.head.clone(), answer.body.clone()].concat());
    let word = if followed { "keep" } else { "close" };
    Seen { outcome: format!("{word} {} {reason}", answer.status), recorded: None, id }
}

/// The request that went on is written plainly, with one place, one length and our credential only.
fn is_plain(name: &str, request: &Recorded) {
    let head = String::from_utf8_lossy(&request.head).into_owned();
    assert!(!head.replace("\r\n", "").contains(['\r', '\n', '\0']), "{name}: {head:?}");
    assert_eq!(request.all("host"), ["api.test"], "{name}");
    assert_eq!(request.all("authorization"), [format!("Bearer {C1}")], "{name}");
    let framing = request.all("content-length").len() + request.all("transfer-encoding").len();
    assert!(framing <= 1, "{name}: {head}");
    assert!(
        request.all("content-length").iter().all(|length| length.parse::<u64>().is_ok()),
        "{name}: {head}"
    );
}

/// What differs from the file's words, if anything.
fn differs(probe: &Probe, seen: &Seen) -> Option<String> {
    let mut words = probe.outcome.split(' ');
    let kind = words.next().unwrap_or_default();
    let rest: Vec<&str> = words.collect();
    let (more, plain): (Vec<&str>, Vec<&str>) =
        rest.iter().partition(|word| ["body=", "has=", "lacks="].iter().any(|start| word.starts_with(start)));
    let expected = [&[kind], plain.as_slice()].concat().join(" ");
    let same = seen.outcome == expected || (kind == "broken" && seen.outcome.starts_with("close 400 "));
    if !same {
        return Some(format!("{}: `{}`, but the file says `{}`", probe.name, seen.outcome, probe.outcome));
    }
    let request = seen.recorded.as_ref()?;
    is_plain(&probe.name, request);
    let mut body: &[u8] = b"";
    for word in more {
        let (what, value) = word.split_once('=').unwrap();
        let holds = match what {
            "body" => {
                body = value.as_bytes();
                true
            }
            "has" => value.rsplit_once(':').is_some_and(|(name, value)| {
                let (name, value) = name
                    .strip_suffix(':')
                    .map_or((name, value.to_owned()), |name| (name, format!(":{value}")));
                request.all(name) == [value]
            }),
            _ => request.field(value).is_none(),
        };
        if !holds {
            return Some(format!("{}: not {word}: {request:?}", probe.name));
        }
    }
    (request.body != body).then(|| format!("{}: another body: {request:?}", probe.name))
}

fn all(way: Way, which: impl Fn(usize, &Probe) -> bool) {
    let Some(lab) = Lab::start() else { return };
    let probes = read(include_str!("../probes/http1"));
    assert!(probes.len() > 400, "{} probes", probes.len());
    let chosen: Vec<&Probe> =
        probes.iter().enumerate().filter(|(at, probe)| which(*at, probe)).map(|(_, probe)| probe).collect();
    let mut wrong = Vec::new();
    for some in chosen.chunks(PROBES_PER_RUN) {
        let run = lab.run(&["items"]);
        let mut refused = Vec::new();
        for probe in some {
            let seen = send(&run, way, probe);
            wrong.extend(differs(probe, &seen));
            refused.extend(seen.id);
        }
        wait::until_true("every refusal is in the log", || {
            let records = run.refusals(0);
            refused.iter().all(|id| records.iter().any(|record| record["request_id"] == id.as_str()))
        });
        run.close();
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), chosen.len(), wrong.join("\n"));
}

#[test]
fn b_every_probe_has_one_reading_on_the_transparent_door() {
    all(Way::Transparent, |_, probe| !probe.to_proxy);
}

#[test]
fn b_every_probe_has_one_reading_in_a_tunnel_of_the_proxy_and_on_the_proxy() {
    all(Way::Connect, |at, probe| probe.to_proxy || at % 2 == 0);
}

/// What is read is the same code: some of them show that it is this code.
#[test]
fn b_probes_have_one_reading_by_the_guard() {
    all(Way::Guard, |at, probe| !probe.to_proxy && at % 9 == 0);
}
