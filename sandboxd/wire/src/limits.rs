//! The numbers of the wire. What is larger is refused as the caller's mistake and nothing runs.

/// Largest request body in bytes, raw and decompressed: a project of 4 MiB grows under JSON escaping.
pub const MAX_REQUEST_BYTES: usize = 8 << 20;
/// Largest answer in bytes that a client reads.
pub const MAX_RESPONSE_BYTES: usize = 32 << 20;
/// Bytes of a snippet or cell.
pub const MAX_CODE_BYTES: usize = 262_144;
/// Steps of a project.
pub const MAX_STEPS: usize = 20;
/// Bytes of one step.
pub const MAX_STEP_BYTES: usize = 16_384;
/// Files of a project or cell.
pub const MAX_FILES: usize = 200;
/// Bytes of all files together.
pub const MAX_FILE_BYTES: usize = 4 << 20;
/// Artifacts asked for.
pub const MAX_ARTIFACTS: usize = 100;
/// Bytes of a file's or artifact's path.
pub const MAX_PATH_BYTES: usize = 1024;
/// Bytes of `grantProfile`, commas included: several names of up to 128 bytes each.
pub const MAX_GRANT_PROFILE_BYTES: usize = 1024;
/// Bytes of one grant name.
pub const MAX_GRANT_NAME_BYTES: usize = 128;
/// Grants that one run may name.
pub const MAX_GRANTS: usize = 16;
/// Identities of a software rule.
pub const MAX_IDENTITIES: usize = 32;
/// Bytes of one identity.
pub const MAX_IDENTITY_BYTES: usize = 256;
/// Bytes of a trace id; a longer one is dropped, the run goes on.
pub const MAX_TRACE_ID_BYTES: usize = 64;
/// Rows of a module run.
pub const MAX_ROWS: usize = 100_000;
/// Values of one row.
pub const MAX_ROW_VALUES: usize = 64;
/// Members of one JSON object: our largest message has 20. More is not a message, and each costs memory.
pub const MAX_OBJECT_MEMBERS: usize = 256;
/// Entries of one repeated message field while decoding: one more than the most that any limit above allows, so that
/// the limit's own message is what the caller reads.
pub const MAX_REPEATED_MESSAGES: usize = MAX_ROWS + 1;
