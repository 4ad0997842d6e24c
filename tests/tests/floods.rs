//! P9: one run cannot take the broker from the others. Attack class E: each flood against the real broker, while another run asks
//! on and must get its answers about as soon as in quiet.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a failing test panics")]

use std::io::Write as _;
use std::process::Command;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use freeboard_tests::answer::Answer;
use freeboard_tests::broker::program;
use freeboard_tests::expect::get;
use freeboard_tests::h2::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, H2, HEADERS, PING, PRIORITY, RST_STREAM, SETTINGS,
    WINDOW_UPDATE, block, frame,
};
use freeboard_tests::lab::{Lab, POLICY, Run, Way};
use freeboard_tests::pressure::{Attack, metric, processor_time, while_another_run_is_served};
use freeboard_tests::wait;
use freeboard_tests::wire::Wire;

/// Waits until a refusal of the run with this reason is in the log.
fn refused_as(run: &Run<'_>, reason: &str) {
    wait::until_true(&format!("a refusal as {reason} is in the log"), || has(run, reason));
}

fn has(run: &Run<'_>, reason: &str) -> bool {
    run.lab.audit.decisions(&run.id).iter().any(|record| record["reason"] == reason)
}

fn h2(run: &Run<'_>, host: &str) -> std::io::Result<H2> {
    H2::start(run.tls_with(Way::Transparent, host, 443, host, &[b"h2"])?)
}

fn head<'a>(method: &'a str, host: &'a str, path: &'a str) -> Vec<u8> {
    block(&[(":method", method), (":scheme", "https"), (":authority", host), (":path", path)])
}

/// Opens one connection after the other and floods each until it ends.
fn flood(run: &Run<'_>, attack: &Attack, burst: impl Fn(&mut H2) -> std::io::Result<()>) {
    let mut ended = 0;
    while attack.goes_on() || ended == 0 {
        let Ok(mut connection) = h2(run, "pub.test") else { continue };
        attack.is_in_full_swing();
        while burst(&mut connection).is_ok() && connection.discard() {}
        ended += 1;
    }
    eprintln!("{ended} connections were ended");
}

#[test]
fn e01_slow_heads_and_bodies_hold_up_nobody_else() {
    let Some(lab) = Lab::start() else { return };
    let run = lab.run(&["pub"]);
    while_another_run_is_served(&lab, 64, |attack| {
        let mut slow: Vec<Wire> = Vec::new();
        for number in 0..240 {
            let mut wire = match number % 3 {
                0 => run.proxy(),
                _ => run.tls(Way::Transparent, "pub.test"),
            };
            let begin = match number % 3 {
                0 => "CONNECT pub.test:443 HTTP/1.1\r\nHost: pub",
                1 => "GET /slow HTTP/1.1\r\nHost: pub.test\r\nX-",
                _ => "POST /slow HTTP/1.1\r\nHost: pub.test\r\nContent-Length: 100000\r\n\r\n",
            };
            wire.send(begin).unwrap();
            slow.push(wire);
        }
        attack.is_in_full_swing();
        while attack.goes_on() {
            for wire in &mut slow {
                // Those that are refused may be closed.
                let _ = wire.send("x");
            }
        }
    });
    // More slow bodies than the grant allows at once.
    refused_as(&run, "budget_exhausted");
}

#[test]
fn e04_rapid_resets_cost_nobody_else_and_are_recorded() {
    let Some(lab) = Lab::start() else { return };
    let run = lab.run(&["pub"]);
    while_another_run_is_served(&lab, 64, |attack| {
        flood(&run, attack, |connection| {
            let mut bytes = Vec::new();
            for _ in 0..500 {
                let stream = connection.new_stream();
                bytes.extend(frame(
                    HEADERS,
                    END_HEADERS | END_STREAM,
                    stream,
                    &head("GET", "pub.test", "/reset"),
                ));
                bytes.extend(frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes()));
            }
            connection.raw(&bytes)
        });
    });
    refused_as(&run, "malformed");
}

/// The same, one by one: each request is there before it is cancelled.
#[test]
fn e04_slow_resets_end_their_connection_and_are_recorded() {
    let Some(lab) = Lab::start() else { return };
    lab.upstream.take_over("pub.test", "/never", |_, stream| drop(std::io::Read::read(stream, &mut [0; 1])));
    let run = lab.run(&["pub"]);
    while_another_run_is_served(&lab, 64, |attack| {
        flood(&run, attack, |connection| {
            for _ in 0..8 {
                let stream = connection.new_stream();
                connection.frame(
                    HEADERS,
                    END_HEADERS | END_STREAM,
                    stream,
                    &head("GET", "pub.test", "/never"),
                )?;
                // What is answered in between shows that the request before it has begun.
                connection.frame(PING, 0, 0, &[7; 8])?;
                std::thread::sleep(Duration::from_millis(1));
                connection.frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes())?;
            }
            Ok(())
        });
    });
    refused_as(&run, "run_limit");
}

#[test]
fn e05_endless_heads_end_their_connection_and_are_recorded() {
    let Some(lab) = Lab::start() else { return };
    let run = lab.run(&["pub"]);
    let more = frame(CONTINUATION, 0, 1, &block(&[("x-fill", &"x".repeat(8000))]));
    let empty = frame(CONTINUATION, 0, 1, &[]).repeat(1000);
    while_another_run_is_served(&lab, 64, |attack| {
        for piece in [&more, &empty] {
            flood(&run, attack, |connection| {
                if connection.new_stream() == 1 {
                    connection.frame(HEADERS, 0, 1, &head("GET", "pub.test", "/"))?;
                }
                connection.raw(piece)
            });
        }
    });
    assert!(run.refusals(1).iter().any(|record| {
        record["reason"] == "malformed"
            || record["reason"] == "head_too_large"
            || record["reason"] == "run_limit"
    }));
}

#[test]
fn e09_heads_that_grow_when_they_are_decompressed_are_refused_and_recorded() {
    let Some(lab) = Lab::start() else { return };
    let run = lab.run(&["pub"]);
    // One large field in the dynamic table, then references to it: 16 KiB become 50 MiB.
    let mut bomb = head("GET", "pub.test", "/");
    bomb.extend_from_slice(&[0x40, 1, b'x', 127, 0xa1, 0x1e]);
    bomb.extend_from_slice(&[b'y'; 4000]);
    bomb.extend(std::iter::repeat_n(0xbe, 12_000));
    while_another_run_is_served(&lab, 64, |attack| {
        flood(&run, attack, |connection| {
            let stream = connection.new_stream();
            connection.frame(HEADERS, END_HEADERS | END_STREAM, stream, &bomb[..16_000])
        });
    });
    refused_as(&run, "malformed");
    assert!(lab.upstream.requests().iter().all(|request| request.head.len() < 10_000));
}

fn control_flood(burst: &[u8], begin: impl Fn(&mut H2) -> std::io::Result<()> + Sync, reason: &str) {
    let Some(lab) = Lab::start() else { return };
    let run = lab.run(&["pub"]);
    while_another_run_is_served(&lab, 64, |attack| {
        flood(&run, attack, |connection| {
            if connection.new_stream() == 1 {
                begin(connection)?;
            }
            connection.raw(burst)
        });
    });
    refused_as(&run, reason);
}

#[test]
fn e08_pings_that_bring_nothing_about_end_their_connection() {
    control_flood(&frame(PING, 0, 0, &[7; 8]).repeat(1000), |_| Ok(()), "run_limit");
}

#[test]
fn e08_settings_that_bring_nothing_about_end_their_connection() {
    let table_sizes =
        [frame(SETTINGS, 0, 0, &[0, 1, 0, 0, 0, 0]), frame(SETTINGS, 0, 0, &[0, 1, 0, 0, 16, 0])];
    control_flood(&table_sizes.concat().repeat(500), |_| Ok(()), "run_limit");
}

#[test]
fn e08_priorities_and_window_updates_that_bring_nothing_about_end_their_connection() {
    let both = [frame(PRIORITY, 0, 3, &[0, 0, 0, 0, 1]), frame(WINDOW_UPDATE, 0, 0, &1_u32.to_be_bytes())];
    control_flood(&both.concat().repeat(500), |_| Ok(()), "run_limit");
}

#[test]
fn e08_empty_data_ends_its_request() {
    let begin =
        |connection: &mut H2| connection.frame(HEADERS, END_HEADERS, 1, &head("POST", "pub.test", "/empty"));
    control_flood(&frame(DATA, 0, 1, &[]).repeat(1000), begin, "malformed");
}

/// A request that waits for a person holds what comes of its body in memory: as much as a window, however small its pieces are.
#[test]
fn e08_bodies_in_tiny_pieces_take_about_as_much_memory_as_their_window() {
    let rules = "\n[grant.held]\ncallers = [\"lab\"]\n[[grant.held.allow]]\napi = \"git\"\n\
                 routes = [\"POST /held\"]\napprove = \"human\"\n";
    let Some(lab) = Lab::start_with(&format!("{POLICY}{rules}"), &[]) else { return };
    let run = lab.run(&["held"]);
    let tiny = frame(DATA, 0, 1, b"x").repeat(2000);
    while_another_run_is_served(&lab, 128, |attack| {
        let mut held = Vec::new();
        for _ in 0..16 {
            let mut connection = h2(&run, "git.test").unwrap();
            let stream = connection.new_stream();
            connection.frame(HEADERS, END_HEADERS, stream, &head("POST", "git.test", "/held")).unwrap();
            let all = (0..200).all(|_| connection.raw(&tiny).is_ok() && connection.discard());
            assert!(!all, "the connection is ended");
            held.push(connection);
        }
        attack.is_in_full_swing();
        attack.wait();
    });
    refused_as(&run, "malformed");
    assert!(lab.upstream.requests().iter().all(|request| request.target != "/held"));
}

fn packed(size: usize) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    let zeros = vec![0; 1 << 20];
    for _ in 0..size >> 20 {
        encoder.write_all(&zeros).unwrap();
    }
    encoder.finish().unwrap()
}

#[test]
fn e11_what_is_small_only_until_it_is_unpacked_takes_no_memory() {
    let rules = "\n[grant.inspected]\ncallers = [\"lab\"]\n[[grant.inspected.allow]]\napi = \"api\"\n\
                 routes = [\"POST /v1/inspected\"]\njson = { \"/title\" = { type = \"string\" } }\n";
    let Some(lab) = Lab::start_with(&format!("{POLICY}{rules}"), &[]) else { return };
    let bomb = packed(96 << 20);
    let answer = Answer::new(200, &["Content-Encoding: gzip"], &bomb);
    for (host, path) in [("api.test", "/v1/items/bomb"), ("pub.test", "/bomb")] {
        let answer = answer.clone();
        lab.upstream.on(host, path, move |_| answer.clone());
    }
    let run = lab.run(&["inspected", "items", "pub"]);
    let head = format!(
        "POST /v1/inspected HTTP/1.1\r\nHost: api.test\r\nContent-Type: application/json\r\n\
         Content-Encoding: gzip\r\nContent-Length: {}\r\n\r\n",
        bomb.len()
    );
    let request = [head.as_bytes(), &bomb].concat();
    while_another_run_is_served(&lab, 96, |attack| {
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    loop {
                        let reply = run.tls(Way::Transparent, "api.test").ask(&request).answer();
                        assert_eq!(reply.reason().as_deref(), Some("inspection_too_large"), "{reply:?}");
                        let mut wire = run.tls(Way::Transparent, "api.test");
                        let reply = wire.ask(get("api.test", "/v1/items/bomb")).answer();
                        assert_eq!(reply.reason().as_deref(), Some("response_uninspectable"), "{reply:?}");
                        // Where nothing is searched nothing is unpacked.
                        let mut wire = run.tls(Way::Transparent, "pub.test");
                        assert_eq!(wire.ask(get("pub.test", "/bomb")).answer().body, bomb);
                        attack.is_in_full_swing();
                        if !attack.goes_on() {
                            break;
                        }
                    }
                });
            }
        });
    });
    assert!(lab.upstream.requests().iter().all(|request| request.target != "/v1/inspected"));
    refused_as(&run, "inspection_too_large");
    refused_as(&run, "response_uninspectable");
}

/// The first flight of a client that then says nothing.
fn client_hello(run: &Run<'_>, host: &'static str) -> Vec<u8> {
    let config = freeboard_tests::wire::client_config(&run.ca_pem, &[b"http/1.1"]);
    let mut connection = rustls::ClientConnection::new(config, host.try_into().unwrap()).unwrap();
    let mut bytes = Vec::new();
    connection.write_tls(&mut bytes).unwrap();
    bytes
}

#[test]
fn e03_handshakes_that_stop_midway_hold_up_their_own_run_only() {
    let Some(lab) = Lab::start() else { return };
    let run = lab.run(&["pub"]);
    let stop_midway = |_| {
        let mut wire = run.dial("pub.test", 443).unwrap();
        wire.send(client_hello(&run, "pub.test")).unwrap();
        wire
    };
    // As many as the broker makes at once for one run, and some that wait behind them.
    let mut midway: Vec<Wire> = (0..48).map(stop_midway).collect();
    while_another_run_is_served(&lab, 64, |attack| {
        attack.is_in_full_swing();
        attack.wait();
    });
    std::thread::scope(|scope| {
        let own = scope.spawn(|| run.tls(Way::Transparent, "pub.test").ask(get("pub.test", "/own")).status());
        std::thread::sleep(Duration::from_millis(500));
        assert!(!own.is_finished(), "the run's own next handshake waits for its turn");
        midway.clear();
        assert_eq!(own.join().unwrap(), Some(200));
    });
}

#[test]
fn e12_a_run_that_asks_for_many_names_gets_few_certificates() {
    let Some(lab) = Lab::start() else { return };
    let run = lab.run(&["items"]);
    let before = metric(&lab, "freeboard_leaf_mints_total{outcome=\"made\"}");
    let told = std::sync::atomic::AtomicUsize::new(0);
    while_another_run_is_served(&lab, 64, |attack| {
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (run, told) = (&run, &told);
                scope.spawn(move || {
                    for number in 0.. {
                        let name = format!("n{number}-{thread}.elsewhere.test");
                        let tls = run.tls_with(Way::Transparent, "api.test", 443, &name, &[b"http/1.1"]);
                        if tls.is_ok() {
                            told.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                        }
                        if number == 20 {
                            attack.is_in_full_swing();
                        }
                        if number >= 40 && !attack.goes_on() {
                            break;
                        }
                    }
                });
            }
        });
    });
    assert_eq!(told.into_inner(), 64, "certificates for names that were refused");
    let made = metric(&lab, "freeboard_leaf_mints_total{outcome=\"made\"}") - before;
    assert!(made <= 64 + 2, "{made} certificates");
    refused_as(&run, "name_mismatch");
    // What is granted is served all the same.
    assert_eq!(run.tls(Way::Transparent, "api.test").ask(get("api.test", "/v1/items/1")).status(), Some(200));
}

#[test]
fn e14_idle_connections_are_bounded_and_recorded() {
    let Some(lab) = Lab::start() else { return };
    let run = lab.run(&["pub"]);
    let mut held = Vec::new();
    while_another_run_is_served(&lab, 96, |attack| {
        for _ in 0..2200 {
            match run.gate.connect("10.1.1.1:3128".parse().unwrap()) {
                Ok(stream) => held.push(stream),
                Err(_) => break,
            }
        }
        attack.is_in_full_swing();
        attack.wait();
    });
    refused_as(&run, "run_limit");
    assert!(metric(&lab, "freeboard_guest_connections_open") <= 2048 + 2);
    drop(held);
    wait::until_true("the run is served again", || {
        let tls = run.tls_with(Way::Transparent, "pub.test", 443, "pub.test", &[b"http/1.1"]);
        tls.is_ok_and(|mut wire| wire.ask(get("pub.test", "/again")).status() == Some(200))
    });
}

/// A connection to the guard from this address of the world.
fn to_guard_from(lab: &Lab, address: &str) -> std::io::Result<std::net::TcpStream> {
    use std::net::SocketAddr;

    use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrStorage, bind, connect, socket};
    let at = |text: &str| SockaddrStorage::from(text.parse::<SocketAddr>().unwrap());
    lab.world().enter(|| {
        let made = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
        let descriptor = std::os::fd::AsRawFd::as_raw_fd(&made);
        bind(descriptor, &at(&format!("{address}:0")))?;
        connect(descriptor, &at(freeboard_tests::broker::GUARD))?;
        Ok(std::net::TcpStream::from(made))
    })
}

#[test]
fn e14_an_address_that_names_no_run_takes_a_part_of_the_guard_only() {
    let Some(lab) = Lab::start() else { return };
    let over = "freeboard_connections_over_limit_total";
    // Nothing is said on these: they end at the deadline of the handshake.
    let held: Vec<_> = (0..1100).map(|_| to_guard_from(&lab, "10.77.0.2").unwrap()).collect();
    wait::until_true("those above the limit are counted", || metric(&lab, over) > 50);
    let run = lab.run(&["pub"]);
    let mut wire = run.tls(Way::Guard, "pub.test");
    assert_eq!(wire.ask(get("pub.test", "/x")).status(), Some(200), "another address is served");
    drop(held);
    let before = metric(&lab, over);
    wait::until_true("the address is let in again", || {
        let again = to_guard_from(&lab, "10.77.0.2").unwrap();
        let mut wire = Wire::clear(again);
        wire.set_patience(Duration::from_millis(200));
        !wire.is_closed()
    });
    assert!(metric(&lab, over) >= before);
}

#[test]
fn e23_a_flood_of_refusals_does_not_take_the_room_of_other_records() {
    let Some(lab) = Lab::start() else { return };
    let run = lab.run(&["items"]);
    let burst = get("api.test", "/v1/admin").repeat(100);
    while_another_run_is_served(&lab, 64, |attack| {
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut wire = run.tls(Way::Transparent, "api.test");
                    while attack.goes_on() {
                        wire.send(&burst).unwrap();
                        for _ in 0..100 {
                            assert_eq!(wire.read_answer("GET").status(), Some(403));
                        }
                        attack.is_in_full_swing();
                    }
                });
            }
        });
    });
    assert_eq!(metric(&lab, "freeboard_audit_lost_records_total"), 0);
    let refused = metric(&lab, "freeboard_verdicts_total{verdict=\"denied\"}");
    assert!(refused > 400, "{refused} refusals");
    let written = lab.audit.decisions_that(false, &run.id).len();
    assert!(written <= 300, "{written} of {refused} were written one by one");
}

/// Sets how many files the broker may have open.
fn allow_files(lab: &Lab, limit: &str) {
    let pid = lab.broker.pid().to_string();
    let root = nix::unistd::geteuid().is_root();
    let as_broker: &[&str] =
        if root { &["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] } else { &["env"] };
    let limit = format!("--nofile={limit}:");
    let words = [as_broker, &["prlimit", "--pid", &pid, &limit]].concat();
    assert!(Command::new(words[0]).args(&words[1..]).status().unwrap().success());
}

/// E15: without descriptors nothing new is accepted, nothing spins, nothing crashes, and what was open goes on. A log that has to
/// begin a new file then refuses requests, and goes on by itself as well.
#[test]
fn e15_without_descriptors_the_broker_waits_and_goes_on() {
    let Some(lab) = Lab::start_with_small_files() else { return };
    let (run, other) = (lab.run(&["pub"]), lab.run(&["pub"]));
    let mut kept = other.tls(Way::Transparent, "pub.test");
    assert_eq!(kept.ask(get("pub.test", "/before")).status(), Some(200));
    let open = std::fs::read_dir(format!("/proc/{}/fd", lab.broker.pid())).unwrap().count();
    let failures = metric(&lab, "freeboard_accept_failures_total");
    allow_files(&lab, &(open + 16).to_string());
    let mut held = Vec::new();
    for _ in 0..200 {
        held.push(run.gate.connect("10.1.1.1:3128".parse().unwrap()).unwrap());
    }
    let (time, begun) = (processor_time(&lab), std::time::Instant::now());
    let (mut answered, mut unrecorded) = (0, 0);
    while begun.elapsed() < Duration::from_secs(1) {
        // It asks little: what it costs the broker is not what is looked for.
        std::thread::sleep(Duration::from_millis(5));
        match kept.ask(get("pub.test", "/meanwhile")).answer() {
            answer if answer.status == 200 => answered += 1,
            answer => {
                assert_eq!(answer.reason().as_deref(), Some("audit_unavailable"), "{answer:?}");
                unrecorded += 1;
            }
        }
    }
    let used = processor_time(&lab).saturating_sub(time);
    eprintln!("{used:?} in {:?}; {answered} answered, {unrecorded} not", begun.elapsed());
    assert!(answered > 0, "a kept connection goes on");
    assert!(used < begun.elapsed() * 3 / 4, "{used:?} in {:?}", begun.elapsed());
    allow_files(&lab, "4096");
    drop(held);
    wait::until_true("the run is served again", || {
        let tls = run.tls_with(Way::Transparent, "pub.test", 443, "pub.test", &[b"http/1.1"]);
        tls.is_ok_and(|mut wire| wire.ask(get("pub.test", "/again")).status() == Some(200))
    });
    assert!(metric(&lab, "freeboard_accept_failures_total") > failures, "it is counted");
    verifies(lab);
}

/// Ends the broker and verifies its log.
fn verifies(mut lab: Lab) {
    lab.broker.signal(nix::sys::signal::Signal::SIGTERM);
    assert!(lab.broker.wait_end().success());
    let mut verify = Command::new(program("freeboard"));
    let output = verify.args(["audit", "verify", "--config"]).arg(lab.broker.config_file()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// A tmpfs of so many KiB in place of the broker's audit folder, seen by this thread and what it starts.
fn small_disk(lab: &mut Lab, kib: u64) -> Option<std::path::PathBuf> {
    use nix::mount::{MsFlags, mount};
    if !nix::unistd::geteuid().is_root() {
        eprintln!("SKIPPED: only root mounts a small file system");
        return None;
    }
    nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS).unwrap();
    mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>).unwrap();
    lab.broker.kill();
    let folder = lab.broker.audit_folder();
    std::fs::create_dir_all(&folder).unwrap();
    let options = format!("size={kib}k,mode=700,uid=65534,gid=65534");
    mount(Some("tmpfs"), &folder, Some("tmpfs"), MsFlags::empty(), Some(options.as_str())).unwrap();
    lab.restart();
    Some(folder)
}

/// Takes all room of a file system but about so many bytes.
fn fill(folder: &std::path::Path, leave: u64) {
    let stat = rustix::fs::statvfs(folder).unwrap();
    let free = stat.f_bavail * stat.f_frsize;
    std::fs::write(folder.join("filler"), vec![b'x'; usize::try_from(free.saturating_sub(leave)).unwrap()])
        .unwrap();
}

/// E19: with no room for the log, and with next to none, a request is refused as `audit_unavailable` or answered and recorded;
/// nothing else happens, and everything goes on once there is room.
#[test]
fn e19_a_full_disk_refuses_requests_and_loses_no_record() {
    let Some(mut lab) = Lab::start_with_small_files() else { return };
    let Some(folder) = small_disk(&mut lab, 1024) else { return };
    let run = lab.run(&["items", "pub"]);
    let mut answered = Vec::new();
    let mut ask = |wire: &mut Wire| {
        let target = format!("/v1/items/{}", answered.len());
        let before = lab.upstream.requests().len();
        let answer = wire.ask(get("api.test", &target)).answer();
        let reached = lab.upstream.requests().len() > before;
        match answer.status {
            200 => answered.push(answer.field("x-freeboard-request-id").map(str::to_owned)),
            _ => assert_eq!(answer.reason().as_deref(), Some("audit_unavailable"), "{answer:?}"),
        }
        assert_eq!(reached, answer.status == 200, "{answer:?}");
        answer.status == 200
    };
    let mut wire = run.tls(Way::Transparent, "api.test");
    assert!(ask(&mut wire));
    let mut refused = 0;
    // Nearly full: a page, a few, and as much as turns the log to a new file.
    for leave in [0, 4 << 10, 12 << 10, 100 << 10] {
        fill(&folder, leave);
        let before = refused;
        for turn in 0.. {
            if !ask(&mut wire) {
                refused += 1;
            }
            if refused > before + 3 {
                break;
            }
            assert!(turn < 2000, "the disk never was full");
        }
        let failures = metric(&lab, "freeboard_audit_failures_total");
        assert!(failures > 0 && metric(&lab, "freeboard_audit_writable") == 0, "{failures}");
        std::fs::remove_file(folder.join("filler")).unwrap();
        wait::until_true("requests are answered again", || ask(&mut wire));
        // The log itself must not fill the disk of the next round.
        wait::until_true("everything is written", || metric(&lab, "freeboard_audit_unwritten_records") == 0);
    }
    let count = answered.len();
    let recorded = run.decisions(0);
    wait::until_true("every answer is in the log", || lab.audit.decisions_that(true, &run.id).len() == count);
    assert!(
        recorded
            .iter()
            .all(|record| record["verdict"] == "allowed" || record["reason"] == "audit_unavailable")
    );
    verifies(lab);
}
