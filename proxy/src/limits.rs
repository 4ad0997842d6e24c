//! Every number of the broker: value, unit, reason, and what happens at the limit.
//! `docs/reference/limits.md` is generated from this file.

use std::time::Duration;

/// Bytes of a request or response head. nginx takes 32 KiB, Node 16 KiB; long cookies and presigned links need
/// more than 16. At the limit: 431 and close, or `upstream_malformed`.
pub const MAX_HEAD_BYTES: usize = 64 << 10;
/// Header fields of one head. Real programs stay below 60. At the limit: 431 and close.
pub const MAX_HEADER_FIELDS: usize = 100;
/// Bytes of a method token. The longest registered one has 17. At the limit: 400.
pub const MAX_METHOD_BYTES: usize = 32;
/// Bytes of one chunk-size line with its extensions (ATTACKS B16, B17). At the limit: 400 and close.
pub const MAX_CHUNK_LINE_BYTES: usize = 128;
/// Bytes of one chunk as its size line says: 1 TiB, above every body budget; a size near 2^64 overflows in careless
/// readers (ATTACKS B16). At the limit: 400 and close.
pub const MAX_CHUNK_BYTES: u64 = 1 << 40;
/// Bytes of chunk extensions in one body (ATTACKS B17). At the limit: 400 and close.
pub const MAX_CHUNK_EXTENSION_BYTES: usize = 4 << 10;
/// Bytes of a trailer section. At the limit: 400 and close.
pub const MAX_TRAILER_BYTES: usize = 8 << 10;
/// Bytes of one pooled input buffer: a whole TLS record (RFC 8446 5.1: 2^14) and a little.
pub const BUFFER_BYTES: usize = 16 << 10;
/// Buffers that one worker thread keeps for reuse: 64 × 16 KiB = 1 MiB. More are freed.
pub const POOLED_BUFFERS: usize = 64;
/// Bytes that are taken from a socket at once: four TLS records and a little, one system call instead of twenty.
pub const WIRE_BUFFER_BYTES: usize = 66 << 10;
/// Such buffers that one worker thread keeps for reuse: 16 × 66 KiB = 1 MiB. More are freed.
pub const POOLED_WIRE_BUFFERS: usize = 16;
/// Largest piece of a body that is read, searched and written in one go: four TLS records, as much as rustls takes at
/// once. It fits a buffer of `WIRE_BUFFER_BYTES`.
pub const PIECE_BYTES: usize = 64 << 10;
/// Interim (1xx) responses before a final one. At the limit: `upstream_malformed`.
pub const MAX_INTERIM_RESPONSES: usize = 16;

/// Bytes of request bodies that one run has in memory for rules that look at them, as they came and decoded: four of the
/// largest at once. At the limit: `run_limit`.
pub const HELD_BYTES_PER_RUN: u64 = 64 << 20;

/// Requests of one run that wait for a person at once. At the limit: `run_limit`.
pub const APPROVALS_PER_RUN: usize = 16;
/// Requests of all runs that wait for a person at once: a list that somebody can still read. At the limit: `run_limit`.
pub const APPROVALS: usize = 512;
/// Windows of rates that are remembered before those that are over are dropped.
pub const RATE_WINDOWS: usize = 4096;

/// A whole request head must arrive within this time of its first byte (ATTACKS E01). At the limit: 408 and close.
pub const HEAD_TIMEOUT: Duration = Duration::from_secs(15);
/// From accepted connection to the end of the TLS handshake (ATTACKS E03). At the limit: closed, recorded.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(15);
/// A kept guest connection without a request. nginx keeps 75 s. At the limit: closed, not recorded.
pub const CLIENT_IDLE_TIMEOUT: Duration = Duration::from_secs(75);
/// No part of a request body for this long. At the limit: 408 and close.
pub const BODY_TIMEOUT: Duration = Duration::from_secs(60);
/// Bytes per second that a request body of known length brings at least, after `BODY_TIMEOUT` (ATTACKS E01); Apache's
/// `RequestReadTimeout` has 500 too. Only time that the broker waits for the guest counts. At the limit: 408 and close.
pub const BODY_BYTES_PER_SECOND: u64 = 500;
/// How long the broker waits in all for the parts of a request body of unknown length, until its answer begins; then the time
/// limits of the answer hold, as in a gRPC call that both sides keep open. At the limit: 408 and close.
pub const BODY_OF_UNKNOWN_LENGTH: Duration = Duration::from_secs(3600);
/// A guest that does not take its answer for this long. At the limit: `client_timeout`, closed.
pub const CLIENT_WRITE_TIMEOUT: Duration = Duration::from_secs(60);
/// From the end of the request to the response head. Slow language models take minutes. At the limit: 504.
pub const RESPONSE_HEAD_TIMEOUT: Duration = Duration::from_secs(300);
/// No byte of a response body for this long; event streams are expected to send a comment now and then.
/// At the limit: the connection is cut, `upstream_timeout`.
pub const RESPONSE_IDLE_TIMEOUT: Duration = Duration::from_secs(300);
/// A websocket on which nothing moves in either direction. Pings usually come every 20-60 s. At the limit: closed.
pub const WEBSOCKET_IDLE_TIMEOUT: Duration = Duration::from_secs(600);
/// A connection that is passed on unread and on which nothing moves in either direction: between two steps of a program that
/// holds a database connection. At the limit: cut, `upstream_timeout`.
pub const CONNECTION_IDLE_TIMEOUT: Duration = Duration::from_secs(900);
/// How long an unwanted request body is read and thrown away so that the guest can read the answer. Then closed.
pub const LINGER_TIMEOUT: Duration = Duration::from_secs(2);
/// Bytes of an unwanted request body that are read and thrown away. Then closed.
pub const LINGER_BYTES: u64 = 256 << 10;
/// Resolving a name. At the limit: `upstream_unresolved`.
pub const RESOLVE_TIMEOUT: Duration = Duration::from_secs(5);
/// One TCP connection and its TLS handshake. At the limit: the next address, then `upstream_unreachable`.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of the head of an answer of the proxy that upstreams are reached through; real ones have a few hundred. At the limit:
/// `upstream_proxy_refused`.
pub const UPSTREAM_PROXY_HEAD_BYTES: usize = 8 << 10;
/// A pooled upstream connection without use. Most servers close after 60-75 s; younger ones are safe to reuse.
pub const UPSTREAM_IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// How often a run whose grants end at some time looks whether that time has come: the wall clock may be set meanwhile. What is
/// in flight is cut within this time of the end.
pub const PERMISSION_LOOK: Duration = Duration::from_millis(500);

/// Longest life of a gate whatever its expiry says. At the limit: the run is ended.
pub const LONGEST_RUN: Duration = Duration::from_secs(7 * 24 * 3600);

/// Idle upstream connections that one run keeps per origin and credential. More are closed.
pub const IDLE_UPSTREAM_PER_KEY: usize = 32;
/// Connections to the explicit proxy on a shared address, of all runs together, and to the guard. At the limit: closed at once
/// and counted (`freeboard_connections_over_limit_total`).
pub const EXPLICIT_CONNECTIONS: usize = 4096;
/// Those of them that come from one address and have not named a run yet: who knows no credential takes a quarter of the door at most
/// (ATTACKS E14). At the limit: closed at once and counted.
pub const EXPLICIT_STRANGERS_PER_ADDRESS: usize = 1024;
/// Guest connections that one run may have open (ATTACKS E14). At the limit: closed and recorded `run_limit`.
pub const CONNECTIONS_PER_RUN: usize = 2048;
/// And at most one in so many of the files that the broker may have open, so that one run cannot take them from the others
/// (ATTACKS E15): each connection may need another one upstream.
pub const OPEN_FILES_PER_CONNECTION_OF_A_RUN: u64 = 8;
/// Leaf certificates that one run may cause for names that are not granted to it (ATTACKS E12), so that refusals can
/// be read. At the limit: the TLS handshake is refused with an alert.
pub const REFUSAL_LEAVES_PER_RUN: u32 = 64;
/// TLS handshakes of one run that go on at once: at 0.2 ms each they keep a processor from another run's request for a few
/// milliseconds at most (ATTACKS E03, E14). At the limit: the next one waits, within `HANDSHAKE_TIMEOUT`.
pub const HANDSHAKES_PER_RUN: usize = 32;

/// Sessions whose budgets are remembered between their calls, until their time is over. At the limit: `run_limit`.
pub const SESSIONS_REMEMBERED: usize = 4096;

/// Calls of one run under one grant where the grant says nothing. At the limit: 429 `budget_exhausted`.
pub const DEFAULT_CALLS: u64 = 256;
/// Calls per minute of one run under one grant where the grant says nothing: no rate of its own.
pub const DEFAULT_PER_MINUTE: u64 = u64::MAX;
/// Requests in flight of one run under one grant where the grant says nothing. At the limit: 429.
pub const DEFAULT_CONCURRENT: u64 = 64;
/// Bytes of one request body where the grant says nothing. At the limit: 413.
pub const DEFAULT_REQUEST_BYTES: u64 = 64 << 20;
/// Bytes of one connection that is passed on unread, each way, where the grant says nothing. At the limit: cut,
/// `connection_too_large`.
pub const DEFAULT_CONNECTION_BYTES: u64 = 1 << 30;
/// Bytes of one response body where the grant says nothing. At the limit: the response is cut.
pub const DEFAULT_RESPONSE_BYTES: u64 = 1 << 30;

/// Calls that a run's trace lists; later ones are only counted.
pub const TRACE_CALLS: usize = 256;
/// Bytes of a path in a trace entry; the rest is cut.
pub const TRACE_PATH_BYTES: usize = 1024;
/// Spans that wait for the collector of traces. At the limit: dropped and counted (`freeboard_spans_total`).
pub const TRACES_QUEUE: usize = 8192;
/// Spans of one request to the collector.
pub const TRACES_BATCH: usize = 512;
/// How long spans are gathered for one request.
pub const TRACES_PAUSE: Duration = Duration::from_secs(1);
/// One request to the collector. At the limit: its spans are dropped and counted.
pub const TRACES_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the end of the broker waits for the last of them.
pub const TRACES_END: Duration = Duration::from_secs(1);
/// Records that wait for the audit writer. At the limit: 503 `audit_unavailable`, nothing is forwarded.
pub const AUDIT_QUEUE: usize = 8192;
/// Room of that queue which refusals leave to requests that are to be forwarded: a run that is refused faster than the log is
/// written cannot keep the others from being recorded, and so from being served (ATTACKS E23). At the limit refusals are counted,
/// and the count is recorded.
pub const AUDIT_QUEUE_FOR_REQUESTS: usize = AUDIT_QUEUE / 4;
/// Flush and stop messages that fit the audit queue besides records. At the limit: a flush is not waited for.
pub const AUDIT_CONTROL_MESSAGES: usize = 64;
/// Bytes of lines that are written to the audit log in one go. At the limit: written, then the next batch.
pub const AUDIT_BATCH_BYTES: usize = 256 << 10;
/// Rest of the audit writer between batches: bounds its wake-ups and system calls to 500 a second each. It is also how
/// much of the log a crash of the broker can lose.
pub const AUDIT_BATCH_PAUSE: Duration = Duration::from_millis(2);
/// Records between two moments in which the audit writer gives up its processor, so that a request which shares it waits for
/// these and not for a batch: 25 records took a tenth of a millisecond, 2 take ten microseconds.
pub const AUDIT_SHARED_RECORDS: usize = 2;
/// Records up to which it does. With more, it is behind, and gives up nothing: each time could cost a whole time slice.
pub const AUDIT_SHARED_BELOW: usize = 64;
/// Records that wait before a worker gives up its processor with each further one: it is so far ahead because the writer
/// does not get to run. It bounds what a crash can lose and the memory of what waits where both share a processor.
pub const AUDIT_FAR_AHEAD: usize = 256;
/// The audit writer looks at windows and flushes at least this often.
pub const AUDIT_WAKE: Duration = Duration::from_millis(250);
/// How often a write that failed is tried again. Requests are refused as `audit_unavailable` meanwhile.
pub const AUDIT_RETRY: Duration = Duration::from_millis(100);
/// Bytes at the end of the audit log whose chain is checked before it is continued. `freeboard audit verify` checks all.
pub const AUDIT_TAIL_CHECK_BYTES: u64 = 2 << 20;
/// Equal refusals (run, kind, reason, host) that are recorded one by one in a window (ATTACKS E23). After that they are
/// counted; the last one and the count are written when the window ends.
pub const REFUSALS_WRITTEN_EACH: u64 = 100;
/// Length of such a window.
pub const FLOOD_WINDOW: Duration = Duration::from_secs(10);
/// Different refusals that are told apart in a window. At the limit: further hosts of one run are counted together.
pub const FLOOD_KEYS: usize = 4096;

/// Addresses of one name that are looked at. Large sets are for load balancing; the first few serve. More are ignored.
pub const ADDRESSES_PER_NAME: usize = 16;
/// Lookups of one name at once (ATTACKS E26). More wait for their turn within the resolve timeout.
pub const LOOKUPS_PER_NAME: usize = 4;
/// An address that has not answered for this long is joined by the next one (RFC 8305 5 recommends 250 ms).
pub const CONNECT_ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// Lifetime of a new interception CA: five years. A guest's clock or a client's rule rarely objects to less than ten;
/// at the end the broker refuses to start with it and says so.
pub const CA_LIFETIME: Duration = Duration::from_secs(5 * 365 * 86_400);
/// How far a new CA is dated back: a day, for guests whose clock is behind.
pub const CA_BACKDATE: Duration = Duration::from_secs(86_400);
/// Largest CA or key file in bytes: one MiB holds the system's whole bundle. A larger file is refused.
pub const CA_FILE_MAX_BYTES: u64 = 1 << 20;
/// Lifetime of a leaf: seven days, far below any client's limit (398 days), far above any run's length.
pub const LEAF_LIFETIME: Duration = Duration::from_secs(7 * 86_400);
/// How far a leaf is dated back: an hour, for guests whose clock is behind (not before the CA itself).
pub const LEAF_BACKDATE: Duration = Duration::from_secs(3_600);
/// A cached leaf with less than this left is minted anew: a day, so that no run outlives its leaf.
pub const LEAF_RENEW_BEFORE: Duration = Duration::from_secs(86_400);
/// Cached configurations of granted names, in entries of about 3 KiB. The least recently used is minted again (20 µs).
pub const GRANTED_LEAF_CACHE: usize = 4_096;
/// Cached configurations of refused names, in entries. Small: refusals are rare in honest runs.
pub const REFUSED_LEAF_CACHE: usize = 256;
/// Upstream TLS sessions remembered per client configuration, in entries. At the limit the oldest is forgotten and
/// its next connection makes a full handshake.
pub const TLS_SESSIONS_REMEMBERED: usize = 1_024;
/// Client configurations kept (one per set of roots, pins and protocols). At the limit all are dropped and rebuilt.
pub const TRUST_CONFIGS_KEPT: usize = 1_024;

/// Bytes of one secret or key file. RSA-4096 keys in PEM have 3.2 KiB. At the limit: `credential_unavailable`.
pub const SECRET_MAX_BYTES: usize = 64 << 10;
/// 429 or 503 answers in a row, without a time, after which nothing more is sent to an API: one may be chance.
pub const BREAKER_ANSWERS: u32 = 5;
/// How long an API is left alone when it does not say; it doubles with each further 503.
pub const BREAKER_PAUSE: Duration = Duration::from_secs(1);
/// The longest such pause, also where the API asks for a longer one: an API may not stop its runs for a day.
pub const BREAKER_PAUSE_MAX: Duration = Duration::from_secs(300);
/// A health route must answer within this time. At the limit: the API does not work yet.
pub const BREAKER_PROBE_TIMEOUT: Duration = Duration::from_secs(10);
/// Callers, and grants, that are revoked until the broker starts anew. More are refused: whoever revokes so many changes the
/// policy.
pub const REVOKED_NAMES: usize = 4096;
/// How often a secret's source is looked at for a replacement: a rotated file is in use a second later.
pub const SECRET_RECHECK: Duration = Duration::from_secs(1);
/// A helper that prints a secret must end within this time. At the limit: killed, `credential_unavailable`.
pub const SECRET_EXEC_TIMEOUT: Duration = Duration::from_secs(10);
/// Helpers that run at the same time. More are refused at once, as `credential_unavailable`.
pub const HELPERS_AT_ONCE: usize = 32;
/// Age at which a helper is asked again.
pub const SECRET_EXEC_MAX_AGE: Duration = Duration::from_secs(300);
/// After a failure the next attempt waits this long; requests until then get the same refusal (ATTACKS E27).
pub const SECRET_FAILURE_PAUSE: Duration = Duration::from_secs(1);
/// A minted token is renewed this long before it expires (at most half its life), so that none expires on its way.
pub const TOKEN_RENEW_BEFORE: Duration = Duration::from_secs(60);
/// Minted tokens kept per credential, one per caller. The least recently used is minted again.
pub const MINTED_TOKENS_PER_CREDENTIAL: usize = 1_024;
/// One token from its first question to its last answer. At the limit: `issuer_unavailable`.
pub const MINT_TIMEOUT: Duration = Duration::from_secs(20);
/// After a failure the issuer is not asked again for this long; it doubles with each further failure. Requests until then
/// get the same refusal (ATTACKS E27).
pub const MINT_FAILURE_PAUSE: Duration = Duration::from_secs(1);
/// The longest such pause, also where the issuer asks for a longer one: an operator's repair is seen within a minute.
pub const MINT_FAILURE_PAUSE_MAX: Duration = Duration::from_secs(60);
/// A token is not used any more this long before it expires (at most a tenth of its life): it has to arrive in time, and
/// clocks differ.
pub const MINT_EXPIRY_MARGIN: Duration = Duration::from_secs(10);
/// Life of a token whose issuer does not say how long it lives (RFC 6749 5.1 only recommends it).
pub const TOKEN_LIFETIME_UNSAID: Duration = Duration::from_secs(300);
/// Longest life that is believed; a token with a longer one is renewed after this: a day.
pub const TOKEN_LIFETIME_MAX: Duration = Duration::from_secs(86_400);
/// Life of an assertion that the broker signs for an issuer: it is used at once. Many issuers refuse more than ten minutes.
pub const ASSERTION_LIFETIME: Duration = Duration::from_secs(300);
/// How far an assertion is dated back, for issuers whose clock is behind: GitHub recommends a minute.
pub const ASSERTION_BACKDATE: Duration = Duration::from_secs(60);
/// A difference between the issuer's clock and ours that is told with a refusal: it is often its cause.
pub const ISSUER_CLOCK_DIFFERENCE: Duration = Duration::from_secs(60);
/// Bytes of an issuer's answer. Tokens have a few KiB; Vault's secrets up to 1 MiB are rare. At the limit: refused.
pub const ISSUER_ANSWER_BYTES: usize = 256 << 10;
/// Giving a token back when its run ends is tried once, for this long. Then it lives on until it expires.
pub const GIVE_BACK_TIMEOUT: Duration = Duration::from_secs(5);
/// Tokens of one run that are given back at its end. More are given back at once and not used by later requests.
pub const LEASES_PER_RUN: usize = 256;
/// Bytes of a request body that is held in order to hash it for its signature, where the guest's SDK did not. Lambda takes
/// 6 MB, Bedrock 20. At the limit: 413.
pub const SIGNED_BODY_BYTES: usize = 24 << 20;
/// Bytes of one signed chunk of an upload, which is held until it is whole. SDKs send 64 KiB to 1 MiB. At the limit: 400.
pub const SIGNED_CHUNK_BYTES: usize = 4 << 20;
/// Bytes of a line between such chunks, and of the fields after the last one. At the limit: 400.
pub const SIGNED_CHUNK_LINE_BYTES: usize = 1024;
/// Shortest secret in bytes whose encoded pieces are scrubbed: shorter pieces would be found in ordinary text.
pub const SCRUB_MIN_BYTES: usize = 8;
/// Shortest form in bytes with which bodies are sifted before they are searched. With shorter ones every byte is searched.
pub const SIEVE_MIN_FORM_BYTES: usize = 12;
/// Shortest text in bytes that is sifted first.
pub const SIEVE_MIN_TEXT_BYTES: usize = 256;

/// Bytes of `freeboard.toml` that are read. What stands after that is not seen, and so a syntax error or missing.
pub const CONFIG_FILE_MAX_BYTES: u64 = 1 << 20;

/// Synthetic addresses per run and family. A policy with more names than that resolves the first ones only.
pub const NAMES_PER_RUN: usize = 65_536;
/// Seconds that a guest may remember a synthetic address. It is the same for the whole run; a short time shows a name
/// that a reload took away soon.
pub const DNS_TTL: u32 = 60;
/// Bytes of a DNS datagram taken and announced (DNS flag day 2020). Larger ones are dropped.
pub const DNS_UDP_PAYLOAD: u16 = 1_232;
/// Bytes of a DNS message on TCP. A larger one closes the connection.
pub const DNS_MESSAGE_BYTES: usize = 4_096;
/// DNS connections of one gate. More are closed at once.
pub const DNS_TCP_CONNECTIONS: usize = 16;
/// A DNS connection without progress for this long is closed.
pub const DNS_TCP_IDLE: Duration = Duration::from_secs(10);
/// Questions per second and socket. Faster ones wait in the socket's buffer and are lost when that is full.
pub const DNS_QUERIES_PER_SECOND: u32 = 1_000;
/// Refused names of one run that are recorded by name. Further ones are counted together (ATTACKS D04, E23).
pub const REFUSED_NAMES_TOLD_APART: usize = 1_024;

/// Streams of one HTTP/2 connection at once (RFC 9113 6.5.2 recommends at least 100). More are refused by the protocol.
pub const STREAMS_PER_CONNECTION: u32 = 100;
/// Bytes of a request body that a guest may send ahead on one stream.
pub const STREAM_WINDOW_BYTES: u32 = 256 << 10;
/// The same for all streams of a connection together.
pub const CONNECTION_WINDOW_BYTES: u32 = 1 << 20;
/// Bytes of a response that wait on one stream for a guest that reads slowly, however wide its window (ATTACKS E32).
/// At the limit the upstream is not read any further.
pub const STREAM_SEND_BUFFER_BYTES: usize = 64 << 10;
/// Streams that were reset before we looked at them (ATTACKS E04). At the limit: GOAWAY, ENHANCE_YOUR_CALM.
pub const PENDING_RESETS: usize = 20;
/// Stream errors that one connection may cause. At the limit: GOAWAY, ENHANCE_YOUR_CALM.
pub const STREAM_ERRORS_PER_CONNECTION: usize = 256;
/// Requests that one connection may cancel (ATTACKS E04). At the limit: GOAWAY, ENHANCE_YOUR_CALM.
pub const RESETS_PER_CONNECTION: u32 = 256;
/// Bytes that an HTTP/2 connection may send before they have to bring something about: its window and a MiB of control
/// frames (ATTACKS E08). At the limit: closed.
pub const CONTROL_BYTES_AHEAD: u64 = 2 << 20;
/// What a request adds to that: a head of the largest size and its frames.
pub const CONTROL_BYTES_PER_STREAM: u64 = 80 << 10;
/// What each piece of a response adds: the guest's window updates for it.
pub const CONTROL_BYTES_PER_PIECE: u64 = 64;
/// And one for so many bytes of a response.
pub const CONTROL_BYTES_SHARE: u64 = 64;
/// Empty DATA frames in a row (ATTACKS E08). At the limit: the request is malformed.
pub const EMPTY_FRAMES_PER_READ: u32 = 64;
/// Bytes of one policy file that are read: one more than the policy takes, so that a larger one is seen as too large.
pub const POLICY_FILE_READ_BYTES: u64 = (4 << 20) + 1;
/// Files of a policy folder. At the limit: the policy is refused.
pub const POLICY_FILES_MAX: usize = 4096;
/// Folders below the policy folder. At the limit: the policy is refused.
pub const POLICY_FOLDER_DEPTH: usize = 8;
/// Bytes of one of git's files that are read for the commit. At the limit: no commit in the records.
pub const GIT_FILE_MAX_BYTES: u64 = 16 << 20;
/// Control connections at once; sandboxd uses one. At the limit: closed.
pub const CONTROL_CONNECTIONS: usize = 64;
/// Answers of one control connection that wait to be sent. At the limit: no further request is read.
pub const CONTROL_ANSWERS: usize = 64;
/// Rest after a connection could not be accepted, so that a lack of descriptors does not become a busy loop.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How long the answer to Close waits for connections of the run that are being cut. Then the trace is given as it is.
pub const GATE_SETTLE: Duration = Duration::from_millis(500);
/// How often it looks.
pub const GATE_SETTLE_STEP: Duration = Duration::from_millis(1);
/// Open files that the broker wants at least: 1024 gates of about ten doors, and their connections. It raises its soft limit
/// to the hard one, and warns below this.
pub const OPEN_FILES_WANTED: u64 = 16_384;
/// How long the end of the process waits for the audit writer. Then it ends all the same and says so.
pub const AUDIT_STOP: Duration = Duration::from_secs(5);
/// How often the end of the process looks whether connections are gone.
pub const DRAIN_STEP: Duration = Duration::from_millis(20);
/// Connections to `/metrics` and its kin at once. More are closed.
pub const METRICS_CONNECTIONS: usize = 16;
/// How long `/livez` and `/readyz` wait for each worker thread to take a piece of work. At the limit: 503.
pub const LIVE_PATIENCE: Duration = Duration::from_secs(2);
/// How long the two requests of `/readyz` may take: they go no further than loopback. At the limit: 503.
pub const PROBE_PATIENCE: Duration = Duration::from_secs(3);
/// How long an answer of `/readyz` is given again: each probe is two records in the audit log.
pub const PROBE_KEPT: Duration = Duration::from_secs(5);
/// How long `freeboard doctor` waits for the broker's word.
pub const DOCTOR_PATIENCE: Duration = Duration::from_secs(3);
/// How often `freeboard audit tail --follow` looks for new lines.
pub const FOLLOW_PAUSE: Duration = Duration::from_millis(200);
