//! Every bound of this crate: value, unit, why, and what happens at the limit.

/// Bytes of a request target as received. RFC 9112 3 asks for at least 8000; nginx takes 8 KiB. Longer targets are
/// refused as not canonical.
pub const TARGET_MAX_BYTES: usize = 8192;

/// Bytes of one policy file. 20,000 route lines of 100 bytes fit. A larger file is a diagnostic.
pub const FILE_MAX_BYTES: usize = 4 * 1024 * 1024;

/// Files of one policy folder. More are a diagnostic: somebody pointed at the wrong folder.
pub const FILES_MAX: usize = 1000;

/// Route lines of one policy. Keeps a reload within seconds. More are a diagnostic.
pub const ROUTES_MAX: usize = 100_000;

/// Bytes of one route line; longer ones are a diagnostic. A line is read in review.
pub const ROUTE_LINE_MAX_BYTES: usize = 1024;

/// Path segments of one route line. Bounds the depth of the decision's recursion. More are a diagnostic.
pub const ROUTE_SEGMENTS_MAX: usize = 64;

/// Query parameters of one route line: one bit each in the decision's set of seen parameters. More are a diagnostic.
pub const QUERY_PARAMETERS_MAX: usize = 64;

/// Bytes of the text inside `{re:…}`. Longer ones are a diagnostic.
pub const REGEX_MAX_BYTES: usize = 256;

/// Bytes of one compiled regular expression (and of the memory used to compile it). Larger ones are a diagnostic.
pub const REGEX_COMPILED_MAX_BYTES: usize = 256 * 1024;

/// Grants that one run may name. More are refused like a grant that does not exist.
pub const GRANTS_PER_RUN_MAX: usize = 32;

/// Bytes of a name of an API, credential, grant or caller. Names go into every audit record. Longer ones are a diagnostic.
pub const NAME_MAX_BYTES: usize = 64;

/// Problems reported for one policy; the rest is counted only. A generated file can be wrong on every line.
pub const DIAGNOSTICS_MAX: usize = 500;

/// States that one question about rules may look at (`automata`), and outcomes that queries may have in it. A question takes
/// a few hundred; at the limit it is undecided, which every asker takes as the worse answer.
pub const AUTOMATA_STATES_MAX: usize = 200_000;

/// Requests that are tried for one difference in conditions. A rule has some ten conditions with some ten values each; beyond
/// that a difference is shown without the fields and the body that make it.
pub const SAMPLES_MAX: usize = 1_000;

/// Characters or elements of a value that is made to be too long. A limit above that is not shown by a request.
pub const SAMPLE_ITEMS_MAX: usize = 4_096;

/// Bytes of a request body that are held for a rule that looks at it, where the rule says nothing (`inspect_bytes`). API
/// calls are rarely above some 100 KiB; a larger body is refused with `inspection_too_large`.
pub const INSPECT_BYTES_DEFAULT: u64 = 1024 * 1024;

/// The largest `inspect_bytes` of a rule: what one request may hold of the broker's memory. More is a diagnostic.
pub const INSPECT_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Depth of JSON that a rule looks at (serde_json itself stops at 128). Deeper is refused with `inspection_too_complex`.
pub const JSON_DEPTH_MAX: usize = 64;

/// Values in JSON that a rule looks at: bounds the memory of one body to some 64 times its values. More are refused with
/// `inspection_too_complex`.
pub const JSON_VALUES_MAX: usize = 65_536;

/// Entries of one list of conditions (headers, pointers, values). More are a diagnostic: a rule is read in review.
pub const CONDITIONS_MAX: usize = 256;

/// Requests or messages of one batch (GraphQL, JSON-RPC). More are refused with `inspection_too_complex`.
pub const BATCH_MAX: usize = 64;

/// Tokens of one GraphQL document; GitHub's own client sends some 2,000. More are refused with `inspection_too_complex`.
pub const GRAPHQL_TOKENS_MAX: usize = 16_384;

/// Depth of selections, values and types of one GraphQL document. Deeper is refused with `inspection_too_complex`.
pub const GRAPHQL_DEPTH_MAX: usize = 48;

/// Operations and fragments of one GraphQL document. More are refused with `inspection_too_complex`.
pub const GRAPHQL_DEFINITIONS_MAX: usize = 256;

/// Refs that one push may name. GitHub takes some thousands; a program that pushes more is mirroring. More are refused with
/// `inspection_malformed`.
pub const GIT_COMMANDS_MAX: usize = 1024;

/// pkt-lines of one fetch: wants and haves. More are refused with `inspection_too_complex`.
pub const GIT_LINES_MAX: usize = 262_144;

/// Bytes of a description to import. The largest published OpenAPI descriptions have 40 MiB. Larger ones are an error.
pub const IMPORT_MAX_BYTES: usize = 64 * 1024 * 1024;

/// Values in an imported YAML document, aliases counted as what they stand for. More are an error.
pub const IMPORT_NODES_MAX: usize = 4_000_000;

/// Nesting of an imported document, the same as of JSON in this program. Deeper ones are an error.
pub const IMPORT_DEPTH_MAX: usize = 128;

/// References (`$ref`) that follow each other in a description, and schemas inside each other that are looked at. What lies
/// deeper counts as any value.
pub const IMPORT_REFERENCES_MAX: usize = 32;

/// Operations of one description. More are an error: choose some with the filters of a smaller description.
pub const IMPORT_OPERATIONS_MAX: usize = 20_000;

/// Bytes of a HAR file to import: a day of a browser with the bodies of its answers. Larger ones are an error.
pub const IMPORT_HAR_MAX_BYTES: usize = 256 * 1024 * 1024;

/// Seconds that a request waits for a person where the rule says nothing. Long enough to be noticed, short enough for a
/// program that waits. Then `approval_timeout`.
pub const APPROVAL_TIMEOUT_DEFAULT_SECONDS: u64 = 600;

/// The longest that a rule can let a request wait. More is a diagnostic.
pub const APPROVAL_TIMEOUT_MAX_SECONDS: u64 = 86_400;

/// Different values of one segment or parameter that `learn` keeps. From a few on they are a type; the rest is only counted as
/// "at least" this many.
pub const LEARN_VALUES_MAX: usize = 64;
