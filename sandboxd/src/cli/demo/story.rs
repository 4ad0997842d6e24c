//! What the demo shows, in order. Every claim is checked while it is shown; one that does not hold fails the demo.

use std::sync::atomic::Ordering;
use std::time::Duration;

use freeboard_wire::digest::sha256_hex;
use freeboard_wire::error::ReadError;
use freeboard_wire::{JavaScriptRun, ProjectFile, ProjectRun, RunRequest, RunResponse};

use super::client::{Answer, Client};
use super::world::{PREFIX, World, random_token};
use super::{Failure, tell};

/// The demo while it runs.
pub(super) struct Story<'a> {
    world: &'a World,
    client: Client<'a>,
    language: Language,
    /// A token that is put into every sandbox for the search to find.
    planted: String,
    failed: Vec<String>,
}

/// What runs at tier `container`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Language {
    Python,
    Shell,
}

/// Texts of the two programs of one scene.
struct Scene {
    javascript: &'static str,
    python: &'static str,
    shell: &'static str,
}

const CALL: Scene = Scene {
    javascript: include_str!("programs/call.js"),
    python: include_str!("programs/call.py"),
    shell: include_str!("programs/call.sh"),
};
const SEARCH: Scene = Scene {
    javascript: include_str!("programs/search.js"),
    python: include_str!("programs/search.py"),
    shell: include_str!("programs/search.sh"),
};
const ATTEMPTS: Scene = Scene {
    javascript: include_str!("programs/attempts.js"),
    python: include_str!("programs/attempts.py"),
    shell: include_str!("programs/attempts.sh"),
};
const SHA256: &str = include_str!("programs/sha256.js");
const HTTP_SHELL: &str = include_str!("programs/http.sh");

/// How often, and after what pause, the demo looks for a record that must come.
const LOG_LOOKS: u32 = 20;
const LOG_PAUSE: Duration = Duration::from_millis(50);

/// What each attempt is, and what its audit line names.
const TRIED: &[(&str, &str, &str)] = &[
    ("route", "an ungranted route of the granted API, GET /v1/secrets", "/v1/secrets"),
    ("host", "an ungranted host, https://ungranted.example/", "ungranted.example"),
    ("raw", "a raw address, https://93.184.216.34/", "93.184.216.34"),
    ("udp", "UDP to 93.184.216.34:4433", ":4433"),
    ("dns", "DNS at 8.8.8.8 for elsewhere.example", "elsewhere.example"),
    ("metadata", "the cloud's metadata address, http://169.254.169.254/", "169.254.169.254"),
];

impl<'a> Story<'a> {
    /// Asks the daemon what it is, so that the story fits this host.
    pub(super) async fn begin(world: &'a World) -> Result<Self, Failure> {
        let client = Client { address: &world.address, token: world.caller_token.reveal() };
        let info = client.describe().await?.map_err(|error| error.message)?;
        let languages = info.project_environment.map(|environment| environment.languages).unwrap_or_default();
        let python = languages.iter().any(|language| language == "python");
        let language = if python { Language::Python } else { Language::Shell };
        Ok(Self { world, client, language, planted: random_token()?, failed: Vec::new() })
    }

    /// Everything; gives what did not hold.
    pub(super) async fn tell(mut self) -> Result<Vec<String>, Failure> {
        self.calls().await?;
        self.search().await?;
        self.attempts().await?;
        self.floors().await?;
        Ok(self.failed)
    }

    fn check(&mut self, holds: bool, claim: &str) {
        tell(&format!("  {} {claim}", if holds { "[ok]" } else { "[FAILED]" }));
        if !holds {
            self.failed.push(claim.to_owned());
        }
    }

    fn name(&self) -> &'static str {
        match self.language {
            Language::Python => "Python",
            Language::Shell => "shell (there is no Python here)",
        }
    }

    async fn calls(&mut self) -> Result<(), Failure> {
        tell("\n1. JavaScript at tier `process` calls the API with fetch; the program has no token");
        show_program(CALL.javascript);
        let answer = self.javascript(&CALL, "demo", "").await?;
        let text = self.shown(&answer);
        let reached = |text: &str| text.contains("\"authenticated\":true") && text.contains("kept_bytes");
        self.check(reached(&text), "the API answered: the broker added the token on the way out");
        self.check(tier(&answer) == "process", "the run's tier, as measured, is `process`");
        self.audit_of(&answer, "/v1/");

        let ordinary = if self.language == Language::Python { "urllib" } else { "curl" };
        tell(&format!("\n2. {} at tier `container` calls the API with plain {ordinary}", self.name()));
        let answer = self.project(&CALL, "demo-container").await?;
        let text = self.shown(&answer);
        self.check(
            reached(&text),
            "the API answered: the same grant routes, another language, no change to the program",
        );
        self.check(tier(&answer) == "container", "the run's tier, as measured, is `container`");
        self.audit_of(&answer, "/v1/");
        let refused = self.world.upstream.counts.without_token.load(Ordering::Relaxed);
        self.check(refused == 0, "the API saw no request without its token");
        Ok(())
    }

    async fn search(&mut self) -> Result<(), Failure> {
        tell("\n3. The same programs look for the token from inside; they know its SHA-256 only");
        for javascript in [true, false] {
            let answer = if javascript {
                self.javascript(&SEARCH, "demo", SHA256).await?
            } else {
                self.project(&SEARCH, "demo-container").await?
            };
            let text = self.shown(&answer);
            let planted = text.contains("planted value found: true")
                || (text.contains("planted value found in: ")
                    && !text.contains("planted value found in: NOTHING"));
            self.check(planted, "the search works: it finds another token that was planted for it");
            let absent = text.contains("token found: false") || text.contains("token found in: nothing");
            self.check(
                absent && !text.contains(&self.world.token),
                "the token of the API is nowhere in there",
            );
        }
        Ok(())
    }

    async fn attempts(&mut self) -> Result<(), Failure> {
        tell("\n4. The same programs try what is not granted");
        for javascript in [true, false] {
            let (answer, name) = if javascript {
                (self.javascript(&ATTEMPTS, "demo", "").await?, "JavaScript")
            } else {
                (self.project(&ATTEMPTS, "demo-container").await?, self.name())
            };
            let seen = output(&answer);
            let lines = self.run_of(&answer).map(|run| self.lines(&run)).unwrap_or_default();
            tell(&format!("  {name}:"));
            for (key, what, needle) in TRIED {
                let saw = seen.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('\t'));
                let Some(saw) = saw else {
                    // JavaScript has no way to even try it.
                    if !javascript {
                        self.check(false, &format!("{what}: the program reported nothing"));
                    }
                    continue;
                };
                tell(&format!("  - {what}"));
                tell(&format!("      the program saw:  {saw}"));
                let mut recorded =
                    lines.iter().filter(|line| line.contains(needle) && !line.contains("allowed"));
                match recorded.next_back() {
                    Some(line) => tell(&format!("      the audit log has: {line}")),
                    None => {
                        tell(
                            "      the audit log has nothing: it never got as far as a socket of the broker",
                        );
                    }
                }
                let got_through = saw.contains("nobody should read this")
                    || saw.contains("an answer")
                    || saw.starts_with("200");
                self.check(!got_through, "refused");
            }
            if !answer.as_ref().is_ok_and(|answer| !seen.is_empty() && answer.record.is_some()) {
                self.shown(&answer);
                self.check(false, "the program ran");
            }
        }
        Ok(())
    }

    async fn floors(&mut self) -> Result<(), Failure> {
        tell("\n5. Floors: what a boundary on this host cannot give is refused, and nothing runs");
        let before = self.world.upstream.counts.with_token.load(Ordering::Relaxed);
        let request = |floor: &str, grant: &str| RunRequest {
            minimum_isolation: floor.to_owned(),
            ..self.request(self.payload(&CALL, grant))
        };
        let table = [
            ("a run that asks for tier `vm`", request("vm", "demo-container")),
            ("a run whose grant has the floor `vm`", request("", "demo-vm")),
        ];
        for (what, request) in table {
            let last = self.last_line("");
            let answer = self.client.run(&request).await?;
            let refusal = answer.as_ref().err().cloned();
            tell(&format!("  - {what}"));
            if let Some(ReadError { code, message, mark }) = &refusal {
                let mark = mark.map_or("not marked", freeboard_wire::NotDispatchedReason::word);
                tell(&format!("      the caller got:    {code} ({mark}): {message}"));
            }
            tell(&format!("      the audit log has: {}", self.last_line(&last)));
            let marked =
                refusal.and_then(|error| error.mark) == Some(freeboard_wire::NotDispatchedReason::Isolation);
            self.check(marked, "refused as too weak, marked: nothing ran");
        }
        let after = self.world.upstream.counts.with_token.load(Ordering::Relaxed);
        self.check(before == after, "the API was not called");
        Ok(())
    }

    fn request(&self, payload: Payload) -> RunRequest {
        let (javascript, project) = match payload {
            Payload::JavaScript(run) => (Some(run), None),
            Payload::Project(run) => (None, Some(run)),
        };
        RunRequest {
            protocol: freeboard_wire::PROTOCOL,
            timeout_ms: 20_000,
            javascript,
            project,
            ..RunRequest::default()
        }
    }

    async fn javascript(
        &self,
        scene: &Scene,
        grant: &str,
        library: &str,
    ) -> Result<Answer<RunResponse>, Failure> {
        let code = self.filled(scene.javascript).replace("@SHA256@", library);
        let run = JavaScriptRun { code, grant_profile: grant.to_owned() };
        self.client.run(&self.request(Payload::JavaScript(run))).await
    }

    async fn project(&self, scene: &Scene, grant: &str) -> Result<Answer<RunResponse>, Failure> {
        self.client.run(&self.request(self.payload(scene, grant))).await
    }

    /// A scene as a project: its program as a file, and one step that runs it.
    fn payload(&self, scene: &Scene, grant: &str) -> Payload {
        let file = |path: &str, text: &str| ProjectFile { path: path.to_owned(), content: self.filled(text) };
        let planted = file("planted.txt", "@PLANTED@");
        let (files, step) = match self.language {
            Language::Python => (
                vec![file("main.py", scene.python), planted],
                "PLANTED=\"$(cat planted.txt)\" python3 main.py",
            ),
            Language::Shell => (
                vec![file("main.sh", scene.shell), file("http.sh", HTTP_SHELL), planted],
                "PLANTED=\"$(cat planted.txt)\" sh main.sh",
            ),
        };
        Payload::Project(ProjectRun {
            files,
            steps: vec![step.to_owned()],
            artifacts: Vec::new(),
            grant_profile: grant.to_owned(),
        })
    }

    fn filled(&self, text: &str) -> String {
        text.replace("@API@", &self.world.api())
            .replace("@TOKEN_SHA256@", &sha256_hex(self.world.token.as_bytes()))
            .replace("@PLANTED_SHA256@", &sha256_hex(self.planted.as_bytes()))
            .replace("@PLANTED@", &self.planted)
            .replace("@PREFIX_A@", PREFIX.0)
            .replace("@PREFIX_B@", PREFIX.1)
    }

    /// Prints what a program wrote, and gives it.
    fn shown(&self, answer: &Answer<RunResponse>) -> String {
        if let Err(error) = answer {
            tell(&format!("  refused: {}: {}", error.code, error.message));
        }
        let text = output(answer);
        for line in text.lines() {
            tell(&format!("  | {line}"));
        }
        text
    }

    fn run_of(&self, answer: &Answer<RunResponse>) -> Option<String> {
        let instance = &answer.as_ref().ok()?.instance;
        instance.strip_prefix("freeboard-run:").map(str::to_owned)
    }

    /// The records of a run whose gate is closed; the log is written in batches, so this may wait for a moment.
    fn lines(&self, run: &str) -> Vec<String> {
        let mut lines = Vec::new();
        for _ in 0..LOG_LOOKS {
            lines = self.world.tool(&["audit", "query", &format!("run={run}")]);
            if lines.iter().any(|line| line.contains("gate closed")) {
                break;
            }
            std::thread::sleep(LOG_PAUSE);
        }
        lines
    }

    /// The last record, once it is another than `before`.
    fn last_line(&self, before: &str) -> String {
        let mut last = String::new();
        for _ in 0..LOG_LOOKS {
            last = self.world.tool(&["audit", "tail", "-n", "1"]).pop().unwrap_or_default();
            if last != before {
                break;
            }
            std::thread::sleep(LOG_PAUSE);
        }
        last
    }

    fn audit_of(&self, answer: &Answer<RunResponse>, needle: &str) {
        let Some(run) = self.run_of(answer) else { return };
        for line in self.lines(&run).iter().filter(|line| line.contains(needle)) {
            tell(&format!("  audit: {line}"));
        }
    }
}

enum Payload {
    JavaScript(JavaScriptRun),
    Project(ProjectRun),
}

fn tier(answer: &Answer<RunResponse>) -> String {
    answer.as_ref().map(|answer| answer.isolation.clone()).unwrap_or_default()
}

/// stdout and stderr of whatever ran.
fn output(answer: &Answer<RunResponse>) -> String {
    let Ok(answer) = answer else { return String::new() };
    let mut bytes = Vec::new();
    if let Some(result) = &answer.javascript {
        bytes.extend_from_slice(&result.stdout);
        bytes.extend_from_slice(&result.stderr);
    }
    for step in answer.project.iter().flat_map(|project| &project.steps) {
        bytes.extend_from_slice(&step.stdout);
        bytes.extend_from_slice(&step.stderr);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn show_program(text: &str) {
    for line in text.lines() {
        tell(&format!("    {line}"));
    }
}
