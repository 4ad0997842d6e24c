//! `freeboard policy explain`: one request, as the policy files decide it.

use std::io::Read as _;
use std::path::PathBuf;

use clap::Args;
use freeboard_policy::Tier;
use freeboard_policy::explain::{Request, Verdict};
use freeboard_policy::limits::INSPECT_BYTES_MAX;

use super::source::{Source, source};
use super::{Format, load, now_unix, unloaded};
use crate::cli::{Exit, exit, terminal};

#[derive(Debug, Args)]
#[command(override_usage = "freeboard policy explain [OPTIONS] --caller <NAME> [FOLDER] \"METHOD URL\"")]
pub(super) struct Explain {
    /// The request as `"METHOD https://HOST[:PORT]/PATH[?QUERY]"`, in one word or in two; before it may stand the folder of
    /// policy files, or one file
    #[arg(value_name = "REQUEST", num_args = 1..=3, required = true)]
    words: Vec<String>,
    /// Authenticated caller of the run
    #[arg(long, value_name = "NAME")]
    caller: String,
    /// The policy to decide by: a folder, a file, `-` for standard input, or git:REV[:PATH] [default: the working directory]
    #[arg(long, value_name = "POLICY", value_parser = source)]
    policy: Option<Source>,
    /// Grant that the run names; may be repeated [default: every grant of the caller]
    #[arg(long = "grant", value_name = "NAME")]
    grants: Vec<String>,
    /// Measured tier of the run [default: floors are not compared]
    #[arg(long, value_name = "TIER", value_parser = tier)]
    tier: Option<Tier>,
    /// Header field of the request; may be repeated
    #[arg(long = "header", value_name = "NAME: VALUE", value_parser = header)]
    headers: Vec<(String, String)>,
    /// Body of the request, decoded; `@FILE` reads it from a file
    #[arg(long, value_name = "TEXT")]
    body: Option<String>,
    /// The request is a websocket handshake
    #[arg(long)]
    websocket: bool,
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

/// What the words before the options say.
#[derive(Debug, PartialEq, Eq)]
struct Asked<'a> {
    folder: Option<&'a str>,
    method: &'a str,
    url: &'a str,
}

/// Why the words are no request.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum WordsError {
    #[error(
        "a request is `METHOD URL`, for example \"GET https://api.example.com/v1/notes\", and `{0}` is none"
    )]
    NoRequest(String),
    #[error("the policy is named twice: `{0}`, and by --policy")]
    TwoPolicies(String),
}

impl Explain {
    pub(super) fn run(self) -> Exit {
        let asked = match asked(&self.words, self.policy.is_some()) {
            Ok(asked) => asked,
            Err(error) => return exit::report(Exit::Usage, &error),
        };
        let here = PathBuf::from(asked.folder.unwrap_or("."));
        let policy = match load(&self.policy.unwrap_or(Source::Path(here))) {
            Ok((_, loaded)) => loaded.policy,
            Err(why) => return unloaded(&why),
        };
        let body = match self.body.as_deref().map(body).transpose() {
            Ok(body) => body,
            Err(error) => return exit::report(Exit::Usage, &error),
        };
        let explanation = policy.explain(&Request {
            caller: Some(&self.caller),
            grants: (!self.grants.is_empty()).then_some(self.grants.as_slice()),
            tier: self.tier,
            method: asked.method,
            url: asked.url,
            headers: &self.headers,
            body: body.as_deref(),
            websocket: self.websocket,
            now_unix: now_unix(),
        });
        let printed = match self.format {
            Format::Json => match serde_json::to_string(&explanation) {
                Ok(text) => terminal::print(&text),
                Err(error) => exit::report(Exit::System, &error),
            },
            Format::Text => terminal::print(&explanation.render()),
        };
        match (printed, explanation.verdict) {
            (Exit::Success, Verdict::Refuse) => Exit::Problems,
            (printed, _) => printed,
        }
    }
}

/// A method and a URL hold no space, so that one word is told from two.
fn asked(words: &[String], policy_is_named: bool) -> Result<Asked<'_>, WordsError> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (folder, request) = match words.as_slice() {
        [folder, request] if is_one_word(request) => (Some(*folder), request.split_whitespace().collect()),
        [request] => (None, request.split_whitespace().collect()),
        [method, url] => (None, vec![*method, *url]),
        [folder, request @ ..] => (Some(*folder), request.to_vec()),
        [] => (None, Vec::new()),
    };
    let &[method, url] = request.as_slice() else { return Err(WordsError::NoRequest(request.join(" "))) };
    match folder {
        Some(folder) if policy_is_named => Err(WordsError::TwoPolicies(folder.to_owned())),
        folder => Ok(Asked { folder, method, url }),
    }
}

fn is_one_word(request: &str) -> bool {
    request.trim().contains(char::is_whitespace)
}

fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("a header is `NAME: VALUE`")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

/// The bytes of `--body`.
fn body(text: &str) -> std::io::Result<Vec<u8>> {
    let Some(path) = text.strip_prefix('@') else { return Ok(text.as_bytes().to_vec()) };
    let mut bytes = Vec::new();
    // One byte more than is ever looked at, so that a larger body is seen as too large.
    std::fs::File::open(path)?.take(INSPECT_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn tier(word: &str) -> Result<Tier, String> {
    Tier::from_word(word).ok_or_else(|| format!("tiers are {}", Tier::ALL.map(Tier::word).join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_a_request_and_perhaps_a_folder_before_it() {
        let read = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
            asked(&words, false)
                .map(|asked| (asked.folder.map(str::to_owned), asked.method.to_owned(), asked.url.to_owned()))
        };
        let request =
            |folder: Option<&str>| Ok((folder.map(str::to_owned), "GET".into(), "https://a.test/".into()));
        assert_eq!(read(&["GET https://a.test/"]), request(None));
        assert_eq!(read(&["GET", "https://a.test/"]), request(None));
        assert_eq!(read(&["policy", "GET  https://a.test/ "]), request(Some("policy")));
        assert_eq!(read(&["my policy", "GET https://a.test/"]), request(Some("my policy")));
        assert_eq!(read(&["policy", "GET", "https://a.test/"]), request(Some("policy")));
        assert_eq!(read(&["https://a.test/"]), Err(WordsError::NoRequest("https://a.test/".into())));
        assert_eq!(read(&["p", "GET x y"]), Err(WordsError::NoRequest("GET x y".into())));
        assert_eq!(read(&[""]), Err(WordsError::NoRequest(String::new())));
    }

    #[test]
    fn a_policy_is_named_once() {
        let words = ["p".to_owned(), "GET https://a.test/".to_owned()];
        assert_eq!(asked(&words, true), Err(WordsError::TwoPolicies("p".into())));
    }
}
