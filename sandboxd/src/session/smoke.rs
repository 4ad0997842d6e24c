//! What is proved of sessions before any is offered: a real one, which must leave no process, keep files, keep the state of
//! its interpreters, and lose that but no file when it is suspended.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::table::Sessions;
use crate::job::{Job, Language, NoSink, Payload, StepOutcome};
use crate::launch::{Launcher, new_run_id};
use crate::provider::{CallFailure, Cancel, CreateError, Plan, Provider, Session};

/// How long one call of the test may take; it takes milliseconds on an idle machine.
const LIMIT: Duration = Duration::from_secs(30);

impl Sessions {
    /// Tries a session at every provider that offers them; languages whose cells do not work there are not offered.
    pub async fn prove(&self, launcher: &Launcher) -> Result<(), (&'static str, CreateError)> {
        let mut proved = Vec::new();
        if self.are_offered() {
            for provider in launcher.providers() {
                let description = provider.describe();
                if description.supports_sessions {
                    let languages = prove(provider.as_ref(), &description.languages)
                        .await
                        .map_err(|error| (description.name, error))?;
                    tracing::info!(provider = description.name, ?languages, "sessions work");
                    proved.push((description.name, languages));
                }
            }
        }
        // Set already where it was proved twice; the first time holds.
        let _ = self.proved.set(proved);
        Ok(())
    }
}

fn failed(what: impl Into<String>) -> CreateError {
    CreateError::Step { step: "the smoke test of sessions".into(), source: io::Error::other(what.into()) }
}

async fn prove(provider: &dyn Provider, languages: &[String]) -> Result<Vec<String>, CreateError> {
    let plan = Plan { job: job(Payload::Session)?, prepared: None };
    let mut sandbox = provider.create(&plan).await?;
    sandbox.measure().await?;
    let mut session = sandbox.into_session().await?;
    let proved = prove_calls(session.as_mut(), languages).await;
    session.end().await;
    proved
}

async fn prove_calls(session: &mut dyn Session, languages: &[String]) -> Result<Vec<String>, CreateError> {
    expect(session, steps("echo kept > kept; sleep 300 & setsid sleep 300 & exit 3"), 3, "").await?;
    // Also of the background processes: one that is left makes the read-back of the host or of the guest fail.
    session.read_back().map_err(|error| failed(error.to_string()))?;
    expect(session, steps("cat kept"), 0, "kept\n").await?;
    let mut proved = Vec::new();
    for language in languages.iter().filter_map(|word| Language::from_word(word)) {
        match prove_cells(session, language).await {
            Ok(()) => proved.push(language.word().to_owned()),
            Err(error) => {
                tracing::warn!(language = language.word(), error = crate::causes::chain(&error), "no cells");
            }
        }
    }
    session.read_back().map_err(|error| failed(error.to_string()))?;
    session.suspend().await.map_err(|error| failed(error.to_string()))?;
    expect(session, steps("cat kept"), 0, "kept\n").await?;
    Ok(proved)
}

async fn prove_cells(session: &mut dyn Session, language: Language) -> Result<(), CreateError> {
    let cell = |code: &str| Payload::Cell { language, code: code.into() };
    let (set, get, raise) = match language {
        Language::JavaScript => ("var state = 41", "state + 1", "throw new Error('meant')"),
        Language::Python => ("state = 41", "state + 1", "raise ValueError('meant')"),
    };
    expect(session, cell(set), 0, "").await?;
    expect(session, cell(raise), 1, "").await?;
    expect(session, cell(get), 0, "42\n").await
}

async fn expect(
    session: &mut dyn Session,
    payload: Payload,
    exit_code: i32,
    stdout: &str,
) -> Result<(), CreateError> {
    let called = session.call(job(payload)?, Cancel::default(), Arc::new(NoSink)).await;
    let called = called.map_err(|error: CallFailure| failed(error.to_string()))?;
    if let Some(over) = called.over {
        return Err(failed(format!("a call ended the session: {over:?}")));
    }
    match called.outcome.steps.last() {
        Some(StepOutcome { exit_code: code, stdout: output, .. })
            if *code == exit_code && output == stdout.as_bytes() =>
        {
            Ok(())
        }
        Some(step) => Err(failed(format!(
            "a call ended with {} and `{}`: {}",
            step.exit_code,
            String::from_utf8_lossy(&step.stdout),
            String::from_utf8_lossy(&step.stderr)
        ))),
        None => Err(failed(called.outcome.detail)),
    }
}

fn steps(script: &str) -> Payload {
    Payload::Steps { steps: vec![script.into()] }
}

fn job(payload: Payload) -> Result<Job, CreateError> {
    let run = new_run_id().map_err(|error| failed(error.to_string()))?;
    Ok(Job { output_limit: 4096, ..Job::of_nobody(run, payload, LIMIT) })
}
