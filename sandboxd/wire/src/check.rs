//! The limits that client and daemon share. Both sides refuse the same requests, with the reason in words.

use std::collections::HashSet;

use crate::limits::{
    MAX_ARTIFACTS, MAX_CODE_BYTES, MAX_FILE_BYTES, MAX_FILES, MAX_GRANT_NAME_BYTES, MAX_GRANT_PROFILE_BYTES,
    MAX_GRANTS, MAX_IDENTITIES, MAX_IDENTITY_BYTES, MAX_PATH_BYTES, MAX_ROW_VALUES, MAX_ROWS, MAX_STEP_BYTES,
    MAX_STEPS, MAX_TRACE_ID_BYTES,
};
use crate::message::{
    CellRun, JavaScriptRun, ModuleRun, ProjectFile, ProjectRun, RunRequest, SessionRunRequest, SoftwareRule,
};
use crate::word::TIERS;

/// What is wrong with a request. The text is for the caller and names the field, never its content.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    #[error("`minimumIsolation` is not one of process, container, kernel, vm")]
    Floor,
    #[error("the software rule is malformed: {0}")]
    Rule(&'static str),
    #[error("the request has no payload")]
    NoPayload,
    #[error("the request has more than one payload")]
    SeveralPayloads,
    #[error("a cell runs in a session only")]
    CellOutsideSession,
    #[error("`{field}` is empty")]
    Empty { field: &'static str },
    #[error("`{field}` has a NUL character")]
    Nul { field: &'static str },
    #[error("`{field}` has more than {limit} bytes")]
    TooLong { field: &'static str, limit: usize },
    #[error("`{field}` is less than {least}")]
    TooLittle { field: &'static str, least: u32 },
    #[error("`program.javascript` has no `stdin`: its code comes that way")]
    StdinOfSnippet,
    #[error("`{field}` has more than {limit} entries")]
    TooMany { field: &'static str, limit: usize },
    #[error("a path in `{field}` is not allowed: {why}")]
    Path { field: &'static str, why: &'static str },
    #[error("a path is in `{field}` twice")]
    Repeated { field: &'static str },
    #[error("`language` is not one of javascript, python")]
    Language,
    #[error("`owner` is not 1 to 64 of letters, digits, `.`, `_`, `:`, `-`")]
    Owner,
    #[error("`grantProfile` is not a list of grant names separated by commas")]
    GrantProfile,
    #[error("the module is malformed: {0}")]
    Module(&'static str),
    #[error("`Idempotency-Key` is not visible ASCII")]
    Key,
    #[error("a name in `environment` is not letters, digits and `_`, a digit not first")]
    Variable,
    #[error("a name is in `environment` twice")]
    RepeatedVariable,
    #[error("`grants` has a name that is empty, repeated or not printable")]
    Grants,
}

impl Invalid {
    /// Sizes are `resource_exhausted`, everything else `invalid_argument`.
    pub fn is_size(&self) -> bool {
        matches!(self, Self::TooLong { .. } | Self::TooMany { .. })
    }
}

/// The floor as asked: `None` for the empty word.
pub fn floor(word: &str) -> Result<Option<&'static str>, Invalid> {
    if word.is_empty() {
        return Ok(None);
    }
    TIERS.into_iter().find(|tier| *tier == word).map(Some).ok_or(Invalid::Floor)
}

/// Checks the form of a rule. An absent rule and one with both fields empty are no rule.
pub fn rule(rule: Option<&SoftwareRule>) -> Result<Option<&SoftwareRule>, Invalid> {
    let Some(rule) = rule.filter(|rule| !rule.mode.is_empty() || !rule.identities.is_empty()) else {
        return Ok(None);
    };
    let most = match rule.mode.as_str() {
        "exact" => 1,
        "approved" => MAX_IDENTITIES,
        _ => return Err(Invalid::Rule("the mode is neither `exact` nor `approved`")),
    };
    if rule.identities.is_empty() || rule.identities.len() > most {
        return Err(Invalid::Rule("it has too few or too many identities for its mode"));
    }
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b"._:/@+-".contains(&byte);
    let mut seen = HashSet::new();
    for identity in &rule.identities {
        if identity.is_empty() || identity.len() > MAX_IDENTITY_BYTES || !identity.bytes().all(good) {
            return Err(Invalid::Rule("an identity is not 1 to 256 of letters, digits, `._:/@+-`"));
        }
        if !seen.insert(identity) {
            return Err(Invalid::Rule("an identity is named twice"));
        }
    }
    Ok(Some(rule))
}

/// Whether a session call may state this rule: a rule of the open's stays, or is narrowed.
///
/// # Errors
/// The call leaves the open's rule out, or accepts what the open did not.
pub fn narrows(open: Option<&SoftwareRule>, call: Option<&SoftwareRule>) -> Result<(), Invalid> {
    let Some(open) = open else { return Ok(()) };
    let within = call.is_some_and(|call| call.identities.iter().all(|one| open.identities.contains(one)));
    if within { Ok(()) } else { Err(Invalid::Rule("it leaves out or widens the rule of the session")) }
}

/// A trace id, or `None` for one that is empty or malformed: it is for the audit log only and refuses nothing.
pub fn trace_id(text: &str) -> Option<&str> {
    is_name(text, MAX_TRACE_ID_BYTES).then_some(text)
}

/// The owner of a session.
pub fn owner(text: &str) -> Result<Option<&str>, Invalid> {
    if text.is_empty() {
        return Ok(None);
    }
    if is_name(text, MAX_TRACE_ID_BYTES) { Ok(Some(text)) } else { Err(Invalid::Owner) }
}

fn is_name(text: &str, most: usize) -> bool {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b"._:-".contains(&byte);
    !text.is_empty() && text.len() <= most && text.bytes().all(good)
}

/// One payload of a run.
#[derive(Debug, Clone, Copy)]
pub enum Payload<'a> {
    JavaScript(&'a JavaScriptRun),
    Project(&'a ProjectRun),
    Module(&'a ModuleRun),
}

/// One payload of a session call.
#[derive(Debug, Clone, Copy)]
pub enum SessionPayload<'a> {
    JavaScript(&'a JavaScriptRun),
    Project(&'a ProjectRun),
    Cell(&'a CellRun),
}

/// Exactly one payload, within its limits.
pub fn payload(request: &RunRequest) -> Result<Payload<'_>, Invalid> {
    if request.cell.is_some() {
        return Err(Invalid::CellOutsideSession);
    }
    match (&request.javascript, &request.project, &request.module) {
        (None, None, None) => Err(Invalid::NoPayload),
        (Some(run), None, None) => code("javascript.code", &run.code).map(|()| Payload::JavaScript(run)),
        (None, Some(run), None) => project(run).map(|()| Payload::Project(run)),
        (None, None, Some(run)) => module(run).map(|()| Payload::Module(run)),
        _ => Err(Invalid::SeveralPayloads),
    }
}

/// Exactly one payload of a session call, within its limits.
pub fn session_payload(request: &SessionRunRequest) -> Result<SessionPayload<'_>, Invalid> {
    match (&request.javascript, &request.project, &request.cell) {
        (None, None, None) => Err(Invalid::NoPayload),
        (Some(run), None, None) => {
            code("javascript.code", &run.code).map(|()| SessionPayload::JavaScript(run))
        }
        (None, Some(run), None) => project(run).map(|()| SessionPayload::Project(run)),
        (None, None, Some(run)) => cell(run).map(|()| SessionPayload::Cell(run)),
        _ => Err(Invalid::SeveralPayloads),
    }
}

/// The names in `grantProfile`, in the order given; empty = no grant.
pub fn grants(profile: &str) -> Result<Vec<String>, Invalid> {
    const FIELD: &str = "grantProfile";
    if profile.is_empty() {
        return Ok(Vec::new());
    }
    if profile.len() > MAX_GRANT_PROFILE_BYTES {
        return Err(Invalid::TooLong { field: FIELD, limit: MAX_GRANT_PROFILE_BYTES });
    }
    let names: Vec<&str> = profile.split(',').map(|name| name.trim_matches(' ')).collect();
    if names.len() > MAX_GRANTS {
        return Err(Invalid::TooMany { field: FIELD, limit: MAX_GRANTS });
    }
    let mut seen = HashSet::new();
    for name in &names {
        if name.len() > MAX_GRANT_NAME_BYTES {
            return Err(Invalid::TooLong { field: FIELD, limit: MAX_GRANT_NAME_BYTES });
        }
        if name.is_empty() || name.chars().any(char::is_control) || !seen.insert(*name) {
            return Err(Invalid::GrantProfile);
        }
    }
    Ok(names.into_iter().map(str::to_owned).collect())
}

/// Source text of a snippet or cell.
pub fn code(field: &'static str, text: &str) -> Result<(), Invalid> {
    if text.is_empty() {
        return Err(Invalid::Empty { field });
    }
    bounded(field, text, MAX_CODE_BYTES)
}

pub(crate) fn bounded(field: &'static str, text: &str, limit: usize) -> Result<(), Invalid> {
    if text.len() > limit {
        return Err(Invalid::TooLong { field, limit });
    }
    if text.contains('\0') { Err(Invalid::Nul { field }) } else { Ok(()) }
}

fn project(run: &ProjectRun) -> Result<(), Invalid> {
    steps(&run.steps)?;
    files("project.files", &run.files)?;
    artifacts(&run.artifacts)
}

/// The steps of a project.
pub fn steps(steps: &[String]) -> Result<(), Invalid> {
    const FIELD: &str = "project.steps";
    if steps.is_empty() {
        return Err(Invalid::Empty { field: FIELD });
    }
    if steps.len() > MAX_STEPS {
        return Err(Invalid::TooMany { field: FIELD, limit: MAX_STEPS });
    }
    steps.iter().try_for_each(|step| bounded(FIELD, step, MAX_STEP_BYTES))
}

fn files(field: &'static str, files: &[ProjectFile]) -> Result<(), Invalid> {
    if files.len() > MAX_FILES {
        return Err(Invalid::TooMany { field, limit: MAX_FILES });
    }
    let total: usize = files.iter().map(|file| file.content.len()).sum();
    if total > MAX_FILE_BYTES {
        return Err(Invalid::TooLong { field, limit: MAX_FILE_BYTES });
    }
    paths(field, files.iter().map(|file| file.path.as_str()))
}

fn artifacts(artifacts: &[String]) -> Result<(), Invalid> {
    const FIELD: &str = "project.artifacts";
    if artifacts.len() > MAX_ARTIFACTS {
        return Err(Invalid::TooMany { field: FIELD, limit: MAX_ARTIFACTS });
    }
    paths(FIELD, artifacts.iter().map(String::as_str))
}

pub(crate) fn paths<'a>(field: &'static str, paths: impl Iterator<Item = &'a str>) -> Result<(), Invalid> {
    let mut seen = HashSet::new();
    for candidate in paths {
        path(candidate).map_err(|why| Invalid::Path { field, why })?;
        if !seen.insert(candidate) {
            return Err(Invalid::Repeated { field });
        }
    }
    Ok(())
}

/// A relative path below the work directory.
pub fn path(path: &str) -> Result<(), &'static str> {
    if path.is_empty() {
        return Err("it is empty");
    }
    if path.len() > MAX_PATH_BYTES {
        return Err("it is longer than 1024 bytes");
    }
    // Covers the leading `/`, too: its first segment is empty.
    if path.split('/').any(|segment| matches!(segment, "" | "." | "..")) {
        return Err("it is absolute or has an empty, `.` or `..` segment");
    }
    if path.contains('\\') {
        return Err("it has a backslash");
    }
    if path.chars().any(char::is_control) {
        return Err("it has a control character");
    }
    Ok(())
}

fn cell(run: &CellRun) -> Result<(), Invalid> {
    language(&run.language)?;
    code("cell.code", &run.code)?;
    files("cell.files", &run.files)
}

/// A language of cells.
pub fn language(word: &str) -> Result<(), Invalid> {
    if matches!(word, "javascript" | "python") { Ok(()) } else { Err(Invalid::Language) }
}

fn module(run: &ModuleRun) -> Result<(), Invalid> {
    let mut model = run.model.bytes();
    let head = model.next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    let tail = model.all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
    if !head || !tail || run.model.len() > 64 {
        return Err(Invalid::Module("the model's name is not 1 to 64 of letters, digits, `._-`"));
    }
    let Some(first) = run.rows.first() else { return Err(Invalid::Module("it has no rows")) };
    if run.rows.len() > MAX_ROWS {
        return Err(Invalid::TooMany { field: "module.rows", limit: MAX_ROWS });
    }
    let width = first.values.len();
    if !(1..=MAX_ROW_VALUES).contains(&width) || run.rows.iter().any(|row| row.values.len() != width) {
        return Err(Invalid::Module("the rows do not all have the same 1 to 64 values"));
    }
    if !run.rows.iter().flat_map(|row| &row.values).all(|value| value.is_finite()) {
        return Err(Invalid::Module("a value is not finite"));
    }
    let positive = |value: f64| value.is_finite() && value > 0.0;
    if !positive(run.end_time) || !positive(run.step) || run.end_time / run.step > 1_000_000.0 {
        return Err(Invalid::Module("end time or step is not positive, or there are over 1,000,000 steps"));
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and 1,000,000")]
    let rows_bytes = 4 + 8 * ((run.end_time / run.step).floor() as usize + 2);
    if 20 + run.rows.len() * rows_bytes > 8 << 20 {
        return Err(Invalid::Module("its results would be over 8 MiB"));
    }
    Ok(())
}
