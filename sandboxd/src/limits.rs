//! Every number of the daemon: value, unit, reason, and what happens at the limit. The wire's own are in
//! `freeboard_wire::limits`.

use std::time::Duration;

/// Bytes kept per stream and step; the rest is cut and flagged, the run goes on.
pub const OUTPUT_BYTES: usize = 64 << 10;
/// Bytes kept per stream by `sandboxd run`, which prints output while it appears as well.
pub const CLI_OUTPUT_BYTES: usize = 16 << 20;
/// Bytes of artifacts kept in all; an artifact that does not fit is left out and the answer says so. With 20 steps of
/// output and base64 an answer stays below the 32 MiB that clients read.
pub const ARTIFACT_BYTES: usize = 8 << 20;
/// Longest run; a larger wish is clamped, never refused. Clients wait 360 s for an answer.
pub const MAX_TIMEOUT: Duration = Duration::from_mins(5);
/// Bytes of standard input that go to a sandbox at once.
pub const INPUT_PIECE_BYTES: usize = 32 << 10;
/// How long after the deadline of a run its gate closes by itself should sandboxd not close it.
pub const GATE_GRACE: Duration = Duration::from_secs(10);

/// Times that the group of a run is made again when another launcher, which ended at that moment, took the folder of all along;
/// after that the run is refused.
pub const GROUP_ATTEMPTS: usize = 8;

/// Runs at once by default; one more is refused with `capacity`.
pub const DEFAULT_CONCURRENT: u32 = 8;
/// Runs per minute and caller by default; above it runs are refused with `capacity`.
pub const DEFAULT_RATE_PER_MINUTE: u32 = 120;

/// Runs of one caller that wait for a place; one more is refused with `capacity`.
pub const MAX_WAITING_PER_CALLER: usize = 64;
/// Longest wait for a place; a longer wish is clamped.
pub const MAX_QUEUE_TIME: Duration = Duration::from_mins(10);
/// Longest time that an exchange waits for output or the end of a run; a longer wish is clamped. Below what proxies in
/// between commonly wait for an answer.
pub const MAX_EXCHANGE_WAIT: Duration = Duration::from_secs(50);
/// Started runs of one caller that have not ended, besides as many as it may have at once; one more is refused with `capacity`.
pub const MAX_STARTED_BEYOND_PLACES: usize = 128;
/// Ended runs of one caller that are remembered with their keys and answers; beyond, the oldest are forgotten early.
pub const ENDED_RUNS_PER_CALLER: usize = 256;
/// How long an ended run is remembered.
pub const ENDED_RUNS_KEPT: Duration = Duration::from_hours(24);
/// Bytes of remembered answers and output of all callers; beyond, the oldest are forgotten early.
pub const ENDED_RUNS_BYTES: u64 = 256 << 20;
/// Lines of the journal for each run that it is still needed for, before it is written anew.
pub const JOURNAL_LINES_PER_RUN: usize = 12;

/// Connections to the metrics at once; more wait.
pub const METRICS_CONNECTIONS: usize = 16;
/// Issuers of tokens in a callers file.
pub const MAX_ISSUERS: usize = 16;
/// Bytes of a token of an issuer. A longer one is unknown.
pub const MAX_JWT_BYTES: usize = 8 << 10;
/// How far the clock of an issuer may be from ours: a token counts so much before its time and after it.
pub const CLOCK_SKEW: Duration = Duration::from_secs(60);
/// How long fetched keys of an issuer are used before they are fetched again.
pub const JWKS_FRESH: Duration = Duration::from_mins(5);
/// How long keys count that cannot be had again; then tokens of that issuer are refused with `unavailable`.
pub const JWKS_KEPT: Duration = Duration::from_hours(1);
/// Between two fetches of an issuer's keys, however many tokens name a key that is not known.
pub const JWKS_PAUSE: Duration = Duration::from_secs(10);
/// Longest fetch of an issuer's keys.
pub const JWKS_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of an issuer's keys; more are none.
pub const MAX_JWKS_BYTES: usize = 256 << 10;
/// Bytes of a key file of `attest`: one key in PEM has some hundred.
pub const MAX_KEY_FILE_BYTES: u64 = 16 << 10;
/// Bytes of a statement about one run that is signed: a record and the evidence have some thousand. A larger one is not signed.
pub const MAX_STATEMENT_BYTES: usize = 256 << 10;
/// How long a signature may take, on either side; then the answer goes out without one, and the log says so.
pub const ATTEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Connections of the signing process at once; more wait.
pub const MAX_ATTEST_CONNECTIONS: usize = 32;

/// Sessions live for half an hour by default: long enough for one piece of an agent's work.
pub const DEFAULT_SESSION_LIFETIME: Duration = Duration::from_mins(30);
/// Sessions without a call for so long are suspended by default: their interpreters end, their place is free.
pub const DEFAULT_SESSION_IDLE: Duration = Duration::from_mins(5);
/// Shortest lifetime and idle time of a session; a shorter wish is lengthened to it.
pub const MIN_SESSION_TIME: Duration = Duration::from_secs(1);
/// Longest lifetime and idle time of a session that an operator may choose.
pub const MAX_SESSION_TIME: Duration = Duration::from_hours(12);
/// How long a session that is never suspended waits for its first request; then it ends as unclaimed.
pub const UNCLAIMED_AFTER: Duration = Duration::from_mins(5);
/// How long an ended session can still be asked how it ended; then it does not exist.
pub const ENDED_KEPT: Duration = Duration::from_mins(10);
/// Ended sessions that are remembered; beyond, the oldest are forgotten early.
pub const MAX_ENDED_SESSIONS: usize = 1000;

/// Request bodies being read and decoded at once, per run that may be active. A body takes up to 8 MiB.
pub const DECODE_SLOTS_PER_RUN: u32 = 2;
/// Open connections; further ones wait in the listener's queue.
pub const MAX_CONNECTIONS: usize = 512;
/// Time for the head of a request, idle time between requests included; then the connection is closed.
pub const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes of a request head; a larger one is answered 431.
pub const MAX_HEAD_BYTES: usize = 32 << 10;
/// Time for the body of a request; then it is answered `invalid_argument`.
pub const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// How long the unread body of a refused request is taken off the wire, so that the client reads the answer instead of
/// a reset.
pub const DRAIN_TIMEOUT: Duration = Duration::from_millis(500);
/// How long active runs may take to end after SIGTERM; what is left is killed and its callers get no answer.
pub const SHUTDOWN_GRACE: Duration = Duration::from_secs(20);
/// How long a call to the broker may take; then the run is refused, or its trace is missing.
pub const BROKER_TIMEOUT: Duration = Duration::from_secs(10);
/// Callers in a callers file; the token check touches each of them.
pub const MAX_CALLERS: usize = 1000;
/// Characters of a token that was made elsewhere: fewer could be guessed from a stolen hash.
pub const MIN_IMPORTED_TOKEN_BYTES: usize = 32;
/// Characters of any token.
pub const MAX_TOKEN_BYTES: usize = 4096;
/// How often it is looked whether the callers file has changed; a change counts within this time without a signal.
pub const CALLERS_LOOK_INTERVAL: Duration = Duration::from_secs(2);
/// Bytes of a callers file or configuration file.
pub const MAX_CONFIG_BYTES: u64 = 1 << 20;
/// Bytes of a program that `sandboxd run` reads; the same as a project's files together.
pub const MAX_PROGRAM_BYTES: u64 = 4 << 20;
