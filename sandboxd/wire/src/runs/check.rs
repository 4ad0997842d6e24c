//! What a Start may ask for. Nothing runs of what is refused here.

use std::collections::HashSet;

use super::message::{Limits, Program, StartRequest, WriteRequest};
use crate::check::{self, Invalid};
use crate::limits::{
    MAX_ARTIFACTS, MAX_FILE_BYTES, MAX_FILES, MAX_GRANT_NAME_BYTES, MAX_GRANTS, MAX_STEP_BYTES,
};

/// Bytes of a key that names a Start for its caller.
pub const MAX_IDEMPOTENCY_KEY_BYTES: usize = 128;
/// Bytes of standard input in one message, and those that a daemon holds for a program which does not read them.
pub const MAX_STDIN_BYTES: usize = 1 << 20;
/// Least memory of a run in MiB: an interpreter starts in it.
const MIN_MEMORY_MIB: u32 = 16;
/// Least processes of a run: those that begin it, a shell and what it calls.
const MIN_PIDS: u32 = 8;
/// Words of a command.
const MAX_WORDS: usize = 256;
/// Variables of the environment.
const MAX_VARIABLES: usize = 64;
/// Bytes of all variables together, names and values: far below what a kernel takes with a command (execve(2)).
const MAX_VARIABLE_BYTES: usize = 32 << 10;

/// Checks everything of a Start that can be checked without knowing the daemon.
///
/// # Errors
/// The first field that is outside its limits.
pub fn start(request: &StartRequest) -> Result<(), Invalid> {
    check::floor(&request.minimum_isolation)?;
    program(&request.program)?;
    files(request)?;
    variables(request)?;
    limits(&request.limits)?;
    stdin(request)?;
    grants(&request.grants)
}

/// Checks a Write.
///
/// # Errors
/// It brings more than one message may.
pub fn write(request: &WriteRequest) -> Result<(), Invalid> {
    if request.data.len() > MAX_STDIN_BYTES {
        return Err(Invalid::TooLong { field: "data", limit: MAX_STDIN_BYTES });
    }
    Ok(())
}

/// A key: visible ASCII, since it travels in a header.
///
/// # Errors
/// It is empty, too long, or has another character.
pub fn idempotency_key(key: &str) -> Result<(), Invalid> {
    const FIELD: &str = "Idempotency-Key";
    if key.is_empty() {
        return Err(Invalid::Empty { field: FIELD });
    }
    if key.len() > MAX_IDEMPOTENCY_KEY_BYTES {
        return Err(Invalid::TooLong { field: FIELD, limit: MAX_IDEMPOTENCY_KEY_BYTES });
    }
    if key.bytes().all(|byte| byte.is_ascii_graphic()) { Ok(()) } else { Err(Invalid::Key) }
}

fn program(program: &Program) -> Result<(), Invalid> {
    match program {
        Program::Javascript(code) => check::code("program.javascript", code),
        Program::Python(code) => check::code("program.python", code),
        Program::Shell(code) => check::code("program.shell", code),
        Program::Steps(steps) => check::steps(steps),
        Program::Command(words) => command(words),
    }
}

fn command(words: &[String]) -> Result<(), Invalid> {
    const FIELD: &str = "program.command";
    if words.first().is_none_or(String::is_empty) {
        return Err(Invalid::Empty { field: FIELD });
    }
    if words.len() > MAX_WORDS {
        return Err(Invalid::TooMany { field: FIELD, limit: MAX_WORDS });
    }
    words.iter().try_for_each(|word| check::bounded(FIELD, word, MAX_STEP_BYTES))
}

fn files(request: &StartRequest) -> Result<(), Invalid> {
    if request.files.len() > MAX_FILES {
        return Err(Invalid::TooMany { field: "files", limit: MAX_FILES });
    }
    if request.files.iter().map(|file| file.content.len()).sum::<usize>() > MAX_FILE_BYTES {
        return Err(Invalid::TooLong { field: "files", limit: MAX_FILE_BYTES });
    }
    if request.artifacts.len() > MAX_ARTIFACTS {
        return Err(Invalid::TooMany { field: "artifacts", limit: MAX_ARTIFACTS });
    }
    check::paths("files", request.files.iter().map(|file| file.path.as_str()))?;
    check::paths("artifacts", request.artifacts.iter().map(String::as_str))
}

fn variables(request: &StartRequest) -> Result<(), Invalid> {
    const FIELD: &str = "environment";
    let variables = &request.environment;
    if variables.len() > MAX_VARIABLES {
        return Err(Invalid::TooMany { field: FIELD, limit: MAX_VARIABLES });
    }
    let bytes = variables.iter().map(|variable| variable.name.len() + variable.value.len()).sum::<usize>();
    if bytes > MAX_VARIABLE_BYTES {
        return Err(Invalid::TooLong { field: FIELD, limit: MAX_VARIABLE_BYTES });
    }
    let mut seen = HashSet::new();
    for variable in variables {
        // POSIX.1-2024, 3.217 Name.
        let good = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        let digit = variable.name.as_bytes().first().is_none_or(u8::is_ascii_digit);
        if digit || !variable.name.bytes().all(good) {
            return Err(Invalid::Variable);
        }
        if variable.value.contains('\0') {
            return Err(Invalid::Nul { field: FIELD });
        }
        if !seen.insert(&variable.name) {
            return Err(Invalid::RepeatedVariable);
        }
    }
    Ok(())
}

fn limits(limits: &Limits) -> Result<(), Invalid> {
    for (field, asked, least) in
        [("limits.memoryMib", limits.memory_mib, MIN_MEMORY_MIB), ("limits.pids", limits.pids, MIN_PIDS)]
    {
        if asked != 0 && asked < least {
            return Err(Invalid::TooLittle { field, least });
        }
    }
    Ok(())
}

/// A snippet comes by standard input itself.
fn stdin(request: &StartRequest) -> Result<(), Invalid> {
    let Some(stdin) = &request.stdin else { return Ok(()) };
    if matches!(request.program, Program::Javascript(_)) {
        return Err(Invalid::StdinOfSnippet);
    }
    if stdin.data.len() > MAX_STDIN_BYTES {
        return Err(Invalid::TooLong { field: "stdin.data", limit: MAX_STDIN_BYTES });
    }
    Ok(())
}

fn grants(names: &[String]) -> Result<(), Invalid> {
    const FIELD: &str = "grants";
    if names.len() > MAX_GRANTS {
        return Err(Invalid::TooMany { field: FIELD, limit: MAX_GRANTS });
    }
    let mut seen = HashSet::new();
    for name in names {
        if name.len() > MAX_GRANT_NAME_BYTES {
            return Err(Invalid::TooLong { field: FIELD, limit: MAX_GRANT_NAME_BYTES });
        }
        if name.is_empty() || name.chars().any(char::is_control) || !seen.insert(name) {
            return Err(Invalid::Grants);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(json: &str) -> StartRequest {
        serde_json::from_str(json).unwrap_or_else(|error| panic!("{error}: {json}"))
    }

    #[test]
    fn takes_what_a_run_may_be() {
        for json in [
            r#"{"program":{"javascript":"1"}}"#,
            r#"{"program":{"command":["python3","-c","print(1)",""]},"minimumIsolation":"kernel"}"#,
            r#"{"program":{"steps":["true"]},"files":[{"path":"a/b","content":"AP8="}],"artifacts":["o"]}"#,
            r#"{"program":{"python":"1"},"environment":[{"name":"_A1","value":""}],"grants":["a","b"]}"#,
            r#"{"program":{"shell":"cat"},"stdin":{"data":"AP8=","open":true},"limits":{"pids":8,"outputBytes":1}}"#,
        ] {
            assert_eq!(start(&parsed(json)), Ok(()), "{json}");
        }
    }

    #[test]
    fn refuses_what_it_may_not_be() {
        for (json, wrong) in [
            (r#"{"program":{"javascript":""}}"#, "program.javascript"),
            (r#"{"program":{"command":[]}}"#, "program.command"),
            (r#"{"program":{"command":[""]}}"#, "program.command"),
            (r#"{"program":{"command":["a\u0000"]}}"#, "program.command"),
            (r#"{"program":{"shell":"x"},"minimumIsolation":"Kernel"}"#, "minimumIsolation"),
            (r#"{"program":{"shell":"x"},"files":[{"path":"../a","content":""}]}"#, "files"),
            (r#"{"program":{"shell":"x"},"artifacts":["a","a"]}"#, "artifacts"),
            (r#"{"program":{"shell":"x"},"environment":[{"name":"1A","value":""}]}"#, "environment"),
            (
                r#"{"program":{"shell":"x"},"environment":[{"name":"A","value":""},{"name":"A","value":""}]}"#,
                "environment",
            ),
            (r#"{"program":{"shell":"x"},"grants":["a","a"]}"#, "grants"),
            (r#"{"program":{"shell":"x"},"limits":{"memoryMib":15}}"#, "limits.memoryMib"),
            (r#"{"program":{"shell":"x"},"limits":{"pids":1}}"#, "limits.pids"),
            (r#"{"program":{"javascript":"x"},"stdin":{}}"#, "stdin"),
        ] {
            let invalid = start(&parsed(json)).expect_err(json).to_string();
            assert!(invalid.contains(wrong), "{invalid}: {json}");
        }
    }

    #[test]
    fn refuses_fields_that_it_does_not_know_and_two_programs() {
        for json in [
            r#"{"program":{"javascript":"1"},"extra":1}"#,
            r#"{"program":{"javascript":"1","shell":"2"}}"#,
            r#"{"program":{"ruby":"1"}}"#,
            r#"{"program":{"javascript":"1"},"program":{"javascript":"2"}}"#,
            r#"{"program":{"javascript":"1"},"files":[{"path":"a","content":"="}]}"#,
            r#"{"program":{"javascript":"1"},"priority":"urgent"}"#,
            r#"{"program":{"javascript":"1"},"limits":{"memory":1}}"#,
            r#"{"program":{"shell":"1"},"stdin":{"data":"="}}"#,
            "{}",
        ] {
            assert!(serde_json::from_str::<StartRequest>(json).is_err(), "{json}");
        }
    }

    #[test]
    fn a_key_is_visible_and_short() {
        assert_eq!(idempotency_key("order-17/retry"), Ok(()));
        for key in ["", "a b", "a\n", "\u{e4}", &"x".repeat(129)] {
            assert!(idempotency_key(key).is_err(), "{key:?}");
        }
    }
}
