//! The page of `/metrics`: Prometheus text format 0.0.4, which every collector reads.

use std::fmt::{Display, Write as _};

use super::families::{self as all, Family, FamilyKind};
use super::histogram::{Histogram, Reading};
use crate::broker::Broker;
use crate::record::{Kind, Verdict};
use crate::traces::Traces;

/// Its media type.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Facts that belong to the process and not to the broker.
#[derive(Debug, Clone, Copy, Default)]
pub struct Process {
    pub open_files: Option<u64>,
    pub most_open_files: Option<u64>,
    pub resident_bytes: Option<u64>,
    pub started_unix: u64,
}

impl Process {
    /// As the kernel says it now. What it does not say is left out.
    pub fn read(started_unix: u64) -> Self {
        let statm = std::fs::read_to_string("/proc/self/statm").ok();
        let pages = statm.and_then(|text| text.split_whitespace().nth(1)?.parse::<u64>().ok());
        let page = u64::try_from(rustix::param::page_size()).unwrap_or(4096);
        let files = std::fs::read_dir("/proc/self/fd").ok();
        // The one of this look is not counted.
        let open = files.map(|files| u64::try_from(files.count().saturating_sub(1)).unwrap_or(u64::MAX));
        Self {
            open_files: open,
            most_open_files: rustix::process::getrlimit(rustix::process::Resource::Nofile).current,
            resident_bytes: pages.map(|pages| pages.saturating_mul(page)),
            started_unix,
        }
    }
}

/// The whole page.
pub fn page(broker: &Broker, process: &Process) -> String {
    let mut page = Page(String::with_capacity(16 << 10));
    page.one(&all::INFO, &[env!("CARGO_PKG_VERSION")], 1);
    decisions(&mut page, broker);
    guests(&mut page, broker);
    credentials(&mut page, broker);
    audit(&mut page, broker);
    let metrics = &broker.metrics;
    page.family(&all::RELOADS);
    page.sample(&all::RELOADS, &["loaded"], metrics.policies_loaded.read());
    page.sample(&all::RELOADS, &["refused"], metrics.policies_refused.read());
    page.one(&all::LOADED_AT, &[], metrics.policy_loaded_at.read());
    page.one(&all::CA_EXPIRY, &[], broker.authority.ca().validity().1);
    let runs = broker.runs.which(|_| true);
    page.one(&all::RUNS, &[], runs.len());
    page.one(&all::CONNECTIONS, &[], broker.runs.connections());
    page.one(&all::APPROVALS, &[], broker.approvals.list().len());
    page.one(&all::ACCEPT_FAILURES, &[], metrics.accept_failures.read());
    page.one(&all::OVER_LIMIT, &[], metrics.connections_over_limit.read());
    let spans = broker.traces.as_ref().map(Traces::counts);
    page.family(&all::SPANS);
    page.sample(&all::SPANS, &["sent"], spans.map_or(0, |counts| counts.sent.read()));
    page.sample(&all::SPANS, &["lost"], spans.map_or(0, |counts| counts.lost.read()));
    page.family(&all::PROBES);
    page.sample(&all::PROBES, &["ready"], metrics.probes_ready.read());
    page.sample(&all::PROBES, &["unready"], metrics.probes_unready.read());
    let confined = crate::confine::state();
    page.family(&all::CONFINED);
    page.sample(&all::CONFINED, &["files"], u8::from(confined.files));
    page.sample(&all::CONFINED, &["calls"], u8::from(confined.calls));
    let process_facts = [
        (&all::OPEN_FILES, process.open_files),
        (&all::OPEN_FILES_MAX, process.most_open_files),
        (&all::RESIDENT, process.resident_bytes),
        (&all::STARTED, Some(process.started_unix)),
    ];
    for (family, value) in process_facts {
        if let Some(value) = value {
            page.one(family, &[], value);
        }
    }
    page.0
}

fn decisions(page: &mut Page, broker: &Broker) {
    let metrics = &broker.metrics;
    page.family(&all::DECISIONS);
    let mut by_verdict = [0_u64; Verdict::ALL.len()];
    for (kind, verdict, reason, count) in metrics.all_decisions() {
        let reason = reason.map_or("none", freeboard_policy::Reason::code);
        page.sample(&all::DECISIONS, &[kind.word(), verdict.word(), reason], count);
        if let Some(sum) = by_verdict.get_mut(verdict as usize) {
            *sum += count;
        }
    }
    page.family(&all::VERDICTS);
    for (verdict, count) in Verdict::ALL.into_iter().zip(by_verdict) {
        page.sample(&all::VERDICTS, &[verdict.word()], count);
    }
    page.family(&all::REQUEST_SECONDS);
    for (verdict, histogram) in Verdict::ALL.into_iter().zip(&metrics.requests) {
        page.histogram(&all::REQUEST_SECONDS, &[verdict.word()], histogram);
    }
    page.family(&all::UPSTREAM_SECONDS);
    page.histogram(&all::UPSTREAM_SECONDS, &[], &metrics.upstream);
    page.family(&all::BODY_BYTES);
    page.sample(&all::BODY_BYTES, &["to_upstream"], metrics.to_upstream_bytes.read());
    page.sample(&all::BODY_BYTES, &["to_guest"], metrics.to_guest_bytes.read());
    page.family(&all::MASKED);
    page.sample(&all::MASKED, &["secret"], metrics.secrets_masked.read());
    page.sample(&all::MASKED, &["token"], metrics.tokens_masked.read());
}

fn guests(page: &mut Page, broker: &Broker) {
    let metrics = &broker.metrics;
    let failed =
        metrics.all_decisions().filter(|(kind, ..)| *kind == Kind::Tls).map(|(.., count)| count).sum::<u64>();
    page.family(&all::HANDSHAKES);
    page.sample(&all::HANDSHAKES, &["completed"], metrics.handshakes.read());
    page.sample(&all::HANDSHAKES, &["failed"], failed);
    page.family(&all::ABORTS);
    page.sample(&all::ABORTS, &["alert"], metrics.aborts.alert.read());
    page.sample(&all::ABORTS, &["closed"], metrics.aborts.closed.read());
    page.sample(&all::ABORTS, &["silent"], metrics.aborts.silent.read());
    let (made, failed) = broker.authority.mints();
    page.family(&all::LEAVES);
    page.sample(&all::LEAVES, &["made"], made);
    page.sample(&all::LEAVES, &["failed"], failed);
}

fn credentials(page: &mut Page, broker: &Broker) {
    page.family(&all::CREDENTIAL_MINTS);
    for (name, made, failed) in broker.mints.counts() {
        page.sample(&all::CREDENTIAL_MINTS, &[&name, "made"], made);
        page.sample(&all::CREDENTIAL_MINTS, &[&name, "failed"], failed);
    }
    page.one(&all::CREDENTIALS_UNREADY, &[], broker.metrics.credentials_unready.read());
    let (snapshot, open) = (broker.snapshot(), broker.breakers.open());
    page.family(&all::BREAKERS);
    for api in snapshot.policy.apis() {
        page.sample(&all::BREAKERS, &[&api.name], u8::from(open.contains(&api.name)));
    }
}

fn audit(page: &mut Page, broker: &Broker) {
    let state = broker.recorder.state();
    page.one(&all::AUDIT_WRITABLE, &[], u8::from(state.writable));
    page.one(&all::AUDIT_UNWRITTEN, &[], state.unwritten);
    page.one(&all::AUDIT_LAG, &[], Seconds(state.lag_ms.saturating_mul(1000)));
    page.one(&all::AUDIT_SEQUENCE, &[], state.sequence);
    page.one(&all::AUDIT_FAILURES, &[], state.failures);
    page.one(&all::AUDIT_LOST, &[], state.lost);
}

/// Microseconds as seconds.
struct Seconds(u64);

impl Display for Seconds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (whole, rest) = (self.0 / 1_000_000, self.0 % 1_000_000);
        if rest == 0 {
            write!(f, "{whole}")
        } else {
            write!(f, "{whole}.{}", format!("{rest:06}").trim_end_matches('0'))
        }
    }
}

struct Page(String);

impl Page {
    fn family(&mut self, family: &Family) {
        self.line(format_args!(
            "# HELP {} {}",
            family.name,
            family.help.replace('\\', "\\\\").replace('\n', "\\n")
        ));
        self.line(format_args!("# TYPE {} {}", family.name, family.kind.word()));
    }

    /// A family of one sample.
    fn one(&mut self, family: &Family, values: &[&str], value: impl Display) {
        self.family(family);
        self.sample(family, values, value);
    }

    fn sample(&mut self, family: &Family, values: &[&str], value: impl Display) {
        debug_assert_ne!(family.kind, FamilyKind::Histogram);
        self.line(format_args!("{}{} {value}", family.name, Labels(family.labels, values, None)));
    }

    fn histogram(&mut self, family: &Family, values: &[&str], histogram: &Histogram) {
        let Reading { up_to, count, sum_us } = histogram.read();
        let (name, labels) = (family.name, family.labels);
        for (end, count) in up_to {
            let end = Seconds(end).to_string();
            self.line(format_args!("{name}_bucket{} {count}", Labels(labels, values, Some(&end))));
        }
        self.line(format_args!("{name}_bucket{} {count}", Labels(labels, values, Some("+Inf"))));
        self.line(format_args!("{name}_sum{} {}", Labels(labels, values, None), Seconds(sum_us)));
        self.line(format_args!("{name}_count{} {count}", Labels(labels, values, None)));
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = self.0.write_fmt(line);
        self.0.push('\n');
    }
}

/// Names, values, and the end of a histogram's step.
struct Labels<'a>(&'a [&'a str], &'a [&'a str], Option<&'a str>);

impl Display for Labels<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let pairs = self.0.iter().copied().zip(self.1.iter().copied()).chain(self.2.map(|end| ("le", end)));
        let mut before = "{";
        for (name, value) in pairs {
            let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            write!(f, "{before}{name}=\"{value}\"")?;
            before = ",";
        }
        if before == "," { f.write_str("}") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_seconds_without_a_float() {
        for (us, text) in [(0, "0"), (500, "0.0005"), (2_500_000, "2.5"), (60_000_000, "60"), (1, "0.000001")]
        {
            assert_eq!(Seconds(us).to_string(), text);
        }
    }

    #[test]
    fn escapes_what_stands_in_a_label() {
        let labels = Labels(&["api"], &["a\"b\\c\nd"], None).to_string();
        assert_eq!(labels, "{api=\"a\\\"b\\\\c\\nd\"}");
        assert_eq!(Labels(&[], &[], Some("1")).to_string(), "{le=\"1\"}");
        assert_eq!(Labels(&[], &[], None).to_string(), "");
    }
}
