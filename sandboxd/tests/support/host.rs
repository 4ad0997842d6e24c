//! A provider that runs programs on this host without any boundary: only for tests of the wire with a client that
//! wants real results.

use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::sync::Arc;

use freeboard_control::{Door, Evidence};
use freeboard_policy::Tier;
use freeboard_sandboxd::job::{Ending, Job, JobFile, Outcome, OutputSink, Payload, StepOutcome};
use freeboard_sandboxd::provider::{CreateError, Description, Plan, Provider, RunFailure, Sandbox};
use futures_util::future::BoxFuture;
use tokio::io::AsyncWriteExt as _;

use super::{Act, Fake};

#[derive(Debug)]
pub struct Host;

impl Provider for Host {
    fn describe(&self) -> Description {
        Description { name: "host", ..Fake::new(Act::Hang).description }
    }

    fn create<'a>(&'a self, plan: &'a Plan) -> BoxFuture<'a, Result<Box<dyn Sandbox>, CreateError>> {
        let sandbox = HostSandbox { job: plan.job.clone() };
        Box::pin(async move { Ok(Box::new(sandbox) as Box<dyn Sandbox>) })
    }
}

struct HostSandbox {
    job: Job,
}

impl Sandbox for HostSandbox {
    fn measure(&mut self) -> BoxFuture<'_, Result<Evidence, CreateError>> {
        let evidence = Evidence { provider: "host".into(), tier: Tier::Container, facts: Vec::new() };
        Box::pin(async move { Ok(evidence) })
    }

    fn take_doors(&mut self) -> Vec<(Door, OwnedFd)> {
        Vec::new()
    }

    fn release(
        self: Box<Self>,
        output: Arc<dyn OutputSink>,
    ) -> BoxFuture<'static, Result<Outcome, RunFailure>> {
        Box::pin(async move {
            let folder = tempfile::tempdir().unwrap();
            for file in &self.job.files {
                let path = folder.path().join(&file.path);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, &file.content).unwrap();
            }
            let commands: Vec<Vec<String>> = match &self.job.payload {
                Payload::JavaScript { code } => vec![vec!["node".into(), "-e".into(), code.clone()]],
                Payload::Command { argv } => vec![argv.clone()],
                Payload::Session | Payload::Cell { .. } => panic!("no sessions here"),
                Payload::Steps { steps } => {
                    steps.iter().map(|step| vec!["sh".into(), "-c".into(), step.clone()]).collect()
                }
            };
            let mut steps: Vec<StepOutcome> = Vec::new();
            let mut ending = Ending::Completed;
            for argv in commands {
                let (step, timed_out) = one(&argv, folder.path(), &self.job).await;
                output.stdout(&step.stdout);
                output.stderr(&step.stderr);
                let failed = step.exit_code != 0;
                steps.push(step);
                if timed_out {
                    ending = Ending::TimedOut;
                }
                if failed {
                    break;
                }
            }
            let artifacts = self.job.artifacts.iter().filter_map(|path| {
                let content = std::fs::read(folder.path().join(path)).ok()?;
                Some(JobFile { path: path.clone(), content })
            });
            let artifacts = artifacts.collect();
            Ok(Outcome { steps, ending, detail: String::new(), artifacts, artifacts_truncated: false })
        })
    }
}

async fn one(argv: &[String], folder: &std::path::Path, job: &Job) -> (StepOutcome, bool) {
    let mut child = tokio::process::Command::new(&argv[0])
        .args(&argv[1..])
        .current_dir(folder)
        .envs(job.environment.iter().map(|(name, value)| (name, value)))
        .stdin(if job.input.is_some() { Stdio::piped() } else { Stdio::null() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    if let (Some(input), Some(mut stdin)) = (job.input.clone(), child.stdin.take()) {
        tokio::spawn(async move {
            while let Some(piece) = input.next().await {
                let _ = stdin.write_all(&piece).await;
            }
        });
    }
    match tokio::time::timeout(job.timeout, child.wait_with_output()).await {
        Err(_) => (StepOutcome { exit_code: 124, timed_out: true, ..StepOutcome::default() }, true),
        Ok(output) => {
            let output = output.unwrap();
            let step = StepOutcome {
                command: argv.last().unwrap().clone(),
                stdout_truncated: output.stdout.len() > job.output_limit,
                stdout: output.stdout[..output.stdout.len().min(job.output_limit)].to_vec(),
                stderr: output.stderr,
                exit_code: output.status.code().unwrap_or(128),
                ..StepOutcome::default()
            };
            (step, false)
        }
    }
}
