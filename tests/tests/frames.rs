//! P3, P4 on HTTP/2: frames that break RFC 9113 and header blocks that break RFC 7541 end their connection or their stream with the
//! error that the RFC names, and reach no upstream. What the RFC has ignored is ignored. The h2 crate says PROTOCOL_ERROR of whatever its
//! decoder cannot read, where the RFC names FRAME_SIZE_ERROR, COMPRESSION_ERROR or FLOW_CONTROL_ERROR: both are taken.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a failing test panics")]

use freeboard_tests::h2::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, Ended, GOAWAY, H2, HEADERS, PING, PRIORITY, RST_STREAM,
    SETTINGS, WINDOW_UPDATE, block, frame,
};
use freeboard_tests::lab::{Lab, POLICY, Run, Way};

const PROTOCOL_ERROR: u32 = 1;
const FLOW_CONTROL_ERROR: u32 = 3;
const STREAM_CLOSED: u32 = 5;
const FRAME_SIZE_ERROR: u32 = 6;
const COMPRESSION_ERROR: u32 = 9;

const PUSH_PROMISE: u8 = 5;
const PADDED: u8 = 8;
const WITH_PRIORITY: u8 = 0x20;

/// A rule that holds a request until somebody approves it: nothing of its body is read meanwhile.
const HELD: &str = "\n[grant.held]\ncallers = [\"lab\"]\n[[grant.held.allow]]\napi = \"git\"\n\
                    routes = [\"POST /held\"]\napprove = \"human\"\n";

fn head(method: &str, host: &str, path: &str) -> Vec<u8> {
    block(&[(":method", method), (":scheme", "https"), (":authority", host), (":path", path)])
}

fn get() -> Vec<u8> {
    head("GET", "api.test", "/v1/items/1")
}

/// A request that is fine, on this stream.
fn request(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_HEADERS | END_STREAM, stream, &get())
}

/// A request whose body is still to come.
fn begun(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_HEADERS, stream, &head("POST", "api.test", "/v1/items"))
}

fn with_block(more: &[u8]) -> Vec<u8> {
    frame(HEADERS, END_HEADERS | END_STREAM, 1, &[get(), more.to_vec()].concat())
}

/// What becomes of a connection after these bytes.
fn ends(connection: &mut H2, bytes: &[u8]) -> Ended {
    const MARK: [u8; 8] = *b"the end.";
    let _ = connection.raw(&[bytes, &frame(PING, 0, 0, &MARK)].concat());
    loop {
        match connection.read_frame() {
            Ok((GOAWAY, _, _, payload)) => {
                let code = u32::from_be_bytes(payload[4..8].try_into().unwrap());
                if code != 0 {
                    return Ended::GoAway(code);
                }
            }
            Ok((PING, 1, _, payload)) if payload == MARK => {
                return Ended::Answer { status: 0, body: Vec::new() };
            }
            Ok(_) => {}
            Err(_) => return Ended::Closed,
        }
    }
}

fn open(run: &Run<'_>, way: Way, host: &str) -> H2 {
    H2::start(run.tls_with(way, host, 443, host, &[b"h2"]).unwrap()).unwrap()
}

fn with_lab(test: impl Fn(&Run<'_>, Way)) {
    let Some(lab) = Lab::start_with(&format!("{POLICY}{HELD}"), &[]) else { return };
    let run = lab.run(&["items", "held"]);
    for way in [Way::Transparent, Way::Connect] {
        test(&run, way);
    }
    run.close();
}

/// Each of these ends its connection with one of the codes.
fn end_the_connection(cases: &[(&str, Vec<u8>, &[u32])]) {
    with_lab(|run, way| {
        let mut wrong = Vec::new();
        for (name, bytes, codes) in cases {
            let before = run.lab.upstream.requests().len();
            let ended = ends(&mut open(run, way, "api.test"), bytes);
            if !matches!(ended, Ended::GoAway(code) if code == PROTOCOL_ERROR || codes.contains(&code)) {
                wrong.push(format!("{name}: {ended:?}, not {codes:?}"));
            }
            if run.lab.upstream.requests().len() != before {
                wrong.push(format!("{name}: something reached an upstream"));
            }
        }
        assert!(wrong.is_empty(), "{way:?}:\n{}", wrong.join("\n"));
    });
}

#[test]
fn b_frames_of_a_wrong_size_end_the_connection() {
    let size: &[u32] = &[FRAME_SIZE_ERROR];
    end_the_connection(&[
        ("4.2 SETTINGS above the largest size", frame(SETTINGS, 0, 0, &vec![0; 16_386]), size),
        ("4.2 HEADERS above the largest size", frame(HEADERS, END_HEADERS, 1, &vec![0x82; 16_385]), size),
        ("4.2 an unknown frame above the largest size", frame(0x42, 0, 0, &vec![0; 16_385]), size),
        (
            "4.2 a length of 2^24 - 1",
            [&[0xff, 0xff, 0xff, DATA, 0, 0, 0, 0, 1][..], &[0; 100]].concat(),
            size,
        ),
        ("6.5 SETTINGS of five bytes", frame(SETTINGS, 0, 0, &[0; 5]), size),
        ("6.5 SETTINGS that acknowledge and say something", frame(SETTINGS, 1, 0, &[0; 6]), size),
        ("6.7 PING of seven bytes", frame(PING, 0, 0, &[0; 7]), size),
        ("6.7 PING of nine bytes", frame(PING, 0, 0, &[0; 9]), size),
        ("6.9 WINDOW_UPDATE of three bytes", frame(WINDOW_UPDATE, 0, 0, &[0; 3]), size),
        ("6.4 RST_STREAM of three bytes", [begun(1), frame(RST_STREAM, 0, 1, &[0; 3])].concat(), size),
        ("6.8 GOAWAY of four bytes", frame(GOAWAY, 0, 0, &[0; 4]), size),
    ]);
}

#[test]
fn b_frames_on_a_wrong_stream_end_the_connection() {
    let protocol: &[u32] = &[PROTOCOL_ERROR];
    let closed: &[u32] = &[PROTOCOL_ERROR, STREAM_CLOSED];
    end_the_connection(&[
        ("6.1 DATA on stream 0", frame(DATA, 0, 0, b"x"), protocol),
        ("6.1 DATA on a stream that is idle", frame(DATA, 0, 1, b"x"), protocol),
        ("6.2 HEADERS on stream 0", frame(HEADERS, END_HEADERS | END_STREAM, 0, &get()), protocol),
        ("5.1.1 HEADERS on an even stream", request(2), protocol),
        ("5.1.1 a stream below an earlier one", [begun(5), request(3)].concat(), closed),
        ("6.3 PRIORITY on stream 0", frame(PRIORITY, 0, 0, &[0; 5]), protocol),
        ("6.4 RST_STREAM on stream 0", frame(RST_STREAM, 0, 0, &[0; 4]), protocol),
        ("6.4 RST_STREAM on a stream that is idle", frame(RST_STREAM, 0, 1, &[0, 0, 0, 8]), protocol),
        ("6.5 SETTINGS on stream 1", frame(SETTINGS, 0, 1, &[]), protocol),
        ("6.6 PUSH_PROMISE of a client", frame(PUSH_PROMISE, END_HEADERS, 1, &[0, 0, 0, 2, 0x82]), protocol),
        ("6.7 PING on stream 1", frame(PING, 0, 1, &[0; 8]), protocol),
        ("6.8 GOAWAY on stream 1", frame(GOAWAY, 0, 1, &[0; 8]), protocol),
        ("6.9 WINDOW_UPDATE on a stream that is idle", frame(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1]), protocol),
        ("6.10 CONTINUATION on stream 0", frame(CONTINUATION, END_HEADERS, 0, &get()), protocol),
        ("6.10 CONTINUATION of nothing", frame(CONTINUATION, END_HEADERS, 1, &get()), protocol),
        (
            "6.10 CONTINUATION of a block that has ended",
            [begun(1), frame(CONTINUATION, END_HEADERS, 1, &block(&[("x", "y")]))].concat(),
            protocol,
        ),
        (
            "6.10 CONTINUATION of another stream",
            [frame(HEADERS, END_STREAM, 1, &get()), frame(CONTINUATION, END_HEADERS, 3, &[])].concat(),
            protocol,
        ),
        (
            "6.10 DATA inside of a block",
            [frame(HEADERS, 0, 1, &get()), frame(DATA, END_STREAM, 1, b"x")].concat(),
            protocol,
        ),
        (
            "6.10 PING inside of a block",
            [frame(HEADERS, END_STREAM, 1, &get()), frame(PING, 0, 0, &[0; 8])].concat(),
            protocol,
        ),
        (
            "6.10 HEADERS inside of a block",
            [frame(HEADERS, END_STREAM, 1, &get()), request(3)].concat(),
            protocol,
        ),
        (
            "6.10 an unknown frame inside of a block",
            [frame(HEADERS, END_STREAM, 1, &get()), frame(0x42, 0, 0, &[])].concat(),
            protocol,
        ),
    ]);
}

#[test]
fn b_frames_that_say_something_impossible_end_the_connection() {
    let protocol: &[u32] = &[PROTOCOL_ERROR];
    let setting = |id: u8, value: u32| {
        let [a, b, c, d] = value.to_be_bytes();
        frame(SETTINGS, 0, 0, &[0, id, a, b, c, d])
    };
    end_the_connection(&[
        ("6.5.2 a push that is neither on nor off", setting(2, 2), protocol),
        ("6.5.2 a window of 2^31", setting(4, 1 << 31), &[FLOW_CONTROL_ERROR]),
        ("6.5.2 a frame size below the least", setting(5, 16_383), protocol),
        ("6.5.2 a frame size above all", setting(5, 1 << 24), protocol),
        (
            "6.1 padding as long as the frame",
            [begun(1), frame(DATA, PADDED, 1, &[3, b'a', b'b'])].concat(),
            protocol,
        ),
        (
            "6.1 padding of no frame",
            [begun(1), frame(DATA, PADDED, 1, &[])].concat(),
            &[PROTOCOL_ERROR, FRAME_SIZE_ERROR],
        ),
        (
            "6.2 padding longer than the block",
            frame(HEADERS, END_HEADERS | END_STREAM | PADDED, 1, &[&[255], get().as_slice()].concat()),
            protocol,
        ),
        ("6.9 a window that grows by nothing", frame(WINDOW_UPDATE, 0, 0, &[0; 4]), protocol),
        (
            "6.9.1 a window above 2^31 - 1",
            frame(WINDOW_UPDATE, 0, 0, &[0x7f, 0xff, 0xff, 0xff]),
            &[FLOW_CONTROL_ERROR],
        ),
    ]);
}

#[test]
fn b_header_blocks_that_cannot_be_decoded_end_the_connection() {
    let compression: &[u32] = &[COMPRESSION_ERROR];
    end_the_connection(&[
        ("RFC 7541 6.1 index 0", with_block(&[0x80]), compression),
        ("RFC 7541 2.3.3 an index of an empty table", with_block(&[0xbe]), compression),
        ("RFC 7541 2.3.3 an index above all", with_block(&[0xff, 0xff, 0xff, 0x7f]), compression),
        ("RFC 7541 5.1 a number that does not end", with_block(&[0xff, 0x80]), compression),
        ("RFC 7541 5.1 a number above all", with_block(&[&[0xff][..], &[0xff; 12]].concat()), compression),
        ("RFC 7541 5.2 a name that is cut", with_block(&[0, 5, b'x', b'y']), compression),
        ("RFC 7541 5.2 a value that is missing", with_block(&[0, 1, b'x']), compression),
        (
            "RFC 7541 5.2 the end mark of Huffman's code",
            with_block(&[0, 1, b'x', 0x84, 0xff, 0xff, 0xff, 0xff]),
            compression,
        ),
        ("RFC 7541 5.2 padding of zeros", with_block(&[0, 1, b'x', 0x81, 0b0001_1000]), compression),
        (
            "RFC 7541 6.3 a table above its size",
            frame(
                HEADERS,
                END_HEADERS | END_STREAM,
                1,
                &[&[0x3f, 0xe2, 0xff, 0x03], get().as_slice()].concat(),
            ),
            compression,
        ),
        ("RFC 7541 4.2 another size of the table in the middle", with_block(&[0x20]), compression),
        (
            "RFC 7541 6.2.1 a literal with an index for a name that is none",
            with_block(&[0x7f, 0xff, 0x01, 1, b'x']),
            compression,
        ),
    ]);
}

/// Stream errors: this stream ends with one of the codes or statuses, nothing goes on, and the connection serves the next one. Where the
/// RFC leaves the choice, the connection may end as well.
#[test]
fn b_requests_that_break_the_protocol_end_their_stream_only() {
    let post = |fields: &[(&str, &str)]| {
        let mut all = vec![
            (":method", "POST"),
            (":scheme", "https"),
            (":authority", "api.test"),
            (":path", "/v1/items"),
        ];
        all.extend_from_slice(fields);
        block(&all)
    };
    let open_ended = frame(HEADERS, END_HEADERS, 1, &post(&[]));
    let cases: Vec<(&str, Vec<u8>, &[u32])> = vec![
        (
            "8.1.1 a length and no body",
            frame(HEADERS, END_HEADERS | END_STREAM, 1, &post(&[("content-length", "5")])),
            &[PROTOCOL_ERROR],
        ),
        (
            "8.1.1 a body below its length",
            [
                frame(HEADERS, END_HEADERS, 1, &post(&[("content-length", "5")])),
                frame(DATA, END_STREAM, 1, b"abc"),
            ]
            .concat(),
            &[PROTOCOL_ERROR],
        ),
        (
            "8.1.1 a body above its length",
            [
                frame(HEADERS, END_HEADERS, 1, &post(&[("content-length", "2")])),
                frame(DATA, END_STREAM, 1, b"abc"),
            ]
            .concat(),
            &[PROTOCOL_ERROR],
        ),
        (
            "8.1.1 padding does not count as body",
            [
                frame(HEADERS, END_HEADERS, 1, &post(&[("content-length", "5")])),
                frame(DATA, END_STREAM | PADDED, 1, b"\x02abc\0\0"),
            ]
            .concat(),
            &[PROTOCOL_ERROR],
        ),
        (
            "8.3 a pseudo-field of answers",
            frame(HEADERS, END_HEADERS | END_STREAM, 1, &post(&[(":status", "200")])),
            &[PROTOCOL_ERROR],
        ),
        (
            "8.3 a pseudo-field behind a field",
            frame(
                HEADERS,
                END_HEADERS | END_STREAM,
                1,
                &block(&[
                    (":method", "GET"),
                    (":scheme", "https"),
                    (":authority", "api.test"),
                    ("x-a", "b"),
                    (":path", "/v1/items/1"),
                ]),
            ),
            &[PROTOCOL_ERROR],
        ),
        (
            "8.1 trailers that do not end the stream",
            [
                open_ended.clone(),
                frame(DATA, 0, 1, b"x"),
                frame(HEADERS, END_HEADERS, 1, &block(&[("x-t", "1")])),
            ]
            .concat(),
            &[PROTOCOL_ERROR],
        ),
        (
            "6.3 PRIORITY of four bytes",
            [open_ended.clone(), frame(PRIORITY, 0, 1, &[0; 4])].concat(),
            &[FRAME_SIZE_ERROR],
        ),
        (
            "6.9 a window of the stream that grows by nothing",
            [open_ended.clone(), frame(WINDOW_UPDATE, 0, 1, &[0; 4])].concat(),
            &[PROTOCOL_ERROR],
        ),
        (
            "6.9.1 a window of the stream above 2^31 - 1",
            [open_ended, frame(WINDOW_UPDATE, 0, 1, &[0x7f, 0xff, 0xff, 0xff])].concat(),
            &[FLOW_CONTROL_ERROR],
        ),
    ];
    with_lab(|run, way| {
        let mut wrong = Vec::new();
        for (name, bytes, codes) in &cases {
            let before = run.lab.upstream.requests().len();
            let mut connection = open(run, way, "api.test");
            connection.raw(bytes).unwrap();
            let ended = connection.outcome(1);
            let served = match &ended {
                Ended::Reset(code) => codes.contains(code),
                // Refused by the request model, which answers.
                Ended::Answer { status, .. } => *status == 400,
                Ended::GoAway(code) => *code == PROTOCOL_ERROR || codes.contains(code),
                Ended::Closed => false,
            };
            if !served {
                wrong.push(format!("{name}: {ended:?}, not {codes:?}"));
            }
            if run.lab.upstream.requests().len() != before {
                wrong.push(format!("{name}: something reached an upstream"));
            }
            if !matches!(ended, Ended::GoAway(_)) {
                connection.raw(&request(3)).unwrap();
                let next = connection.outcome(3);
                if next.status() != Some(200) {
                    wrong.push(format!("{name}: and then {next:?}"));
                }
            }
        }
        assert!(wrong.is_empty(), "{way:?}:\n{}", wrong.join("\n"));
    });
}

#[test]
fn b_frames_on_a_stream_that_has_ended_reach_nobody() {
    with_lab(|run, way| {
        for (name, more) in [
            ("5.1 DATA", frame(DATA, END_STREAM, 1, b"GET /v1/items/x")),
            (
                "5.1 HEADERS",
                frame(HEADERS, END_HEADERS | END_STREAM, 1, &head("GET", "api.test", "/v1/items/2")),
            ),
            ("5.1 trailers", frame(HEADERS, END_HEADERS | END_STREAM, 1, &block(&[("x-t", "1")]))),
        ] {
            run.lab.upstream.take();
            let mut connection = open(run, way, "api.test");
            connection.raw(&[request(1), more].concat()).unwrap();
            let ended = connection.outcome(1);
            assert!(
                matches!(ended, Ended::GoAway(STREAM_CLOSED | PROTOCOL_ERROR) | Ended::Reset(STREAM_CLOSED))
                    || ended.status() == Some(200),
                "{way:?} {name}: {ended:?}"
            );
            let targets: Vec<String> =
                run.lab.upstream.take().into_iter().map(|request| request.target).collect();
            assert!(targets.is_empty() || targets == ["/v1/items/1"], "{way:?} {name}: {targets:?}");
        }
    });
}

/// Takes the broker's settings once it has opened the connection's window, which it does when it has read what came. Until then both
/// windows are those that every connection begins with (RFC 9113 6.9.2), and which of them a body outgrows first is chance.
fn with_wide_windows(connection: &mut H2) {
    let (mut settings, mut window) = (false, false);
    while !(settings && window) {
        let (kind, flags, stream, _) = connection.read_frame().unwrap();
        settings |= kind == SETTINGS && flags & 1 == 0;
        window |= kind == WINDOW_UPDATE && stream == 0;
    }
    connection.frame(SETTINGS, 1, 0, &[]).unwrap();
}

/// A request that nobody reads, with as much of its body as the window of a stream takes: 256 KiB.
fn fills_its_window(stream: u32) -> Vec<u8> {
    let begin = frame(HEADERS, END_HEADERS, stream, &head("POST", "git.test", "/held"));
    [begin, frame(DATA, 0, stream, &[b'x'; 16_384]).repeat(16)].concat()
}

#[test]
fn b_a_body_above_its_window_ends_its_stream() {
    with_lab(|run, way| {
        let mut connection = open(run, way, "git.test");
        with_wide_windows(&mut connection);
        let ended = ends(&mut connection, &fills_its_window(1));
        assert_eq!(ended.status(), Some(0), "{way:?}: the connection lives: {ended:?}");
        connection.raw(&frame(DATA, 0, 1, b"x")).unwrap();
        assert_eq!(connection.outcome(1), Ended::Reset(FLOW_CONTROL_ERROR), "{way:?}");
        assert!(run.lab.upstream.requests().iter().all(|request| request.host != "git.test"));
    });
}

#[test]
fn b_bodies_above_the_window_of_their_connection_end_it() {
    with_lab(|run, way| {
        let mut connection = open(run, way, "git.test");
        with_wide_windows(&mut connection);
        // The window of a connection is 1 MiB: that of four streams.
        for stream in [1, 3, 5, 7] {
            let ended = ends(&mut connection, &fills_its_window(stream));
            assert_eq!(ended.status(), Some(0), "{way:?}: the connection lives: {ended:?}");
        }
        let begin = frame(HEADERS, END_HEADERS, 9, &head("POST", "git.test", "/held"));
        let ended = ends(&mut connection, &[begin, frame(DATA, 0, 9, b"x")].concat());
        assert_eq!(ended, Ended::GoAway(FLOW_CONTROL_ERROR), "{way:?}");
        assert!(run.lab.upstream.requests().iter().all(|request| request.host != "git.test"));
    });
}

#[test]
fn b_what_the_rfc_has_ignored_is_ignored() {
    with_lab(|run, way| {
        let padded = frame(
            HEADERS,
            END_HEADERS | END_STREAM | PADDED | WITH_PRIORITY,
            1,
            &[&[3, 0, 0, 0, 0, 7], get().as_slice(), &[0, 0, 0]].concat(),
        );
        let mut reserved = request(1);
        reserved[5] |= 0x80;
        let in_pieces: Vec<u8> =
            get().chunks(40).fold(frame(HEADERS, END_STREAM, 1, &[]), |mut bytes, piece| {
                bytes.extend(frame(CONTINUATION, 0, 1, piece));
                bytes
            });
        for (name, bytes) in [
            (
                "5.5 an unknown frame",
                [frame(0x42, 0xff, 0, b"x"), frame(0xfe, 0, 1, b"y"), request(1)].concat(),
            ),
            (
                "6.5.2 an unknown setting",
                [frame(SETTINGS, 0, 0, &[0x42, 0x42, 0, 0, 0, 1]), request(1)].concat(),
            ),
            ("4.1 unknown flags", frame(HEADERS, END_HEADERS | END_STREAM | 0xd2 & !PADDED, 1, &get())),
            ("4.1 the reserved bit", reserved),
            ("6.2 padding and priority", padded),
            (
                "6.3 PRIORITY of a stream that is idle",
                [frame(PRIORITY, 0, 9, &[0, 0, 0, 0, 1]), request(1)].concat(),
            ),
            ("6.10 a block in pieces", [in_pieces, frame(CONTINUATION, END_HEADERS, 1, &[])].concat()),
            (
                "RFC 7541 4.2 a smaller table in front",
                frame(HEADERS, END_HEADERS | END_STREAM, 1, &[&[0x20], get().as_slice()].concat()),
            ),
        ] {
            run.lab.upstream.take();
            let mut connection = open(run, way, "api.test");
            connection.raw(&bytes).unwrap();
            let ended = connection.outcome(1);
            assert_eq!(ended.status(), Some(200), "{way:?} {name}: {ended:?}");
            assert_eq!(run.lab.upstream.take().len(), 1, "{name}");
        }
        // Not HTTP/2 at all.
        let mut wire = run.tls_with(way, "api.test", 443, "api.test", &[b"h2"]).unwrap();
        wire.send("GET /v1/items/1 HTTP/1.1\r\nHost: api.test\r\n\r\n").unwrap();
        let said = wire.rest();
        assert!(!said.windows(5).any(|five| five == b"HTTP/"), "{said:?}");
        assert!(run.lab.upstream.take().is_empty());
    });
}
