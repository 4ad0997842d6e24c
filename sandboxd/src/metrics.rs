//! What the daemon counts, as an operator's collector reads it: Prometheus text format 0.0.4. Labels have values of fixed lists, never
//! of a caller or a guest; nothing of a run and no name of a caller is told.

use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The media type of the page.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// One family of samples: the page and its reference are made from this.
#[derive(Debug, Clone, Copy)]
pub struct Family {
    pub name: &'static str,
    /// `counter`, `gauge` or `summary`.
    pub kind: &'static str,
    pub labels: &'static [&'static str],
    pub help: &'static str,
}

macro_rules! families {
    ($($constant:ident: $kind:literal $name:literal [$($label:literal),*] $help:literal;)*) => {
        $(const $constant: Family = Family { name: $name, kind: $kind, labels: &[$($label),*], help: $help };)*
        /// Every family, in the order of the page.
        pub const ALL: &[Family] = &[$($constant),*];
    };
}

families! {
    INFO: "gauge" "sandboxd_info" ["version"] "1; the version of the daemon.";
    RUNS: "counter" "sandboxd_runs_total" ["provider", "ending"]
        "Runs whose code was released, by how they ended: `completed`, `timed_out`, `setup_failed`, `runner_failed`, `lost`, or `cancelled` by their caller. Calls of sessions are not among them.";
    SETUP: "summary" "sandboxd_setup_seconds" ["provider"] "From the admission of a run to its release: boundary, measurement, gate.";
    RUN_SECONDS: "summary" "sandboxd_run_seconds" ["provider"] "From the admission of a run to its end.";
    REFUSALS: "counter" "sandboxd_refusals_total" ["reason"]
        "Answers that say that nothing ran, by reason. Not among them: a started run that is refused after its Start was answered.";
    PLACES: "gauge" "sandboxd_places" [] "Runs that may run at once.";
    RUNNING: "gauge" "sandboxd_running" [] "Places that are taken, by runs and sessions.";
    WAITING: "gauge" "sandboxd_waiting" [] "Started runs that wait for a place.";
    SESSIONS: "gauge" "sandboxd_sessions" [] "Sessions that have not ended.";
    STARTED: "gauge" "sandboxd_started_runs" ["state"] "Started runs that are remembered: `queued`, `running`, `ended`.";
    LOADS: "counter" "sandboxd_callers_loads_total" ["outcome"]
        "Files of callers that were read again (`loaded`), or could not be used (`refused`): the old callers stay.";
    SIGNATURES: "counter" "sandboxd_attestations_total" ["outcome"] "Records that were `signed`, or not because that `failed`.";
    OPEN_FILES: "gauge" "process_open_fds" [] "Open file descriptors.";
    OPEN_FILES_MAX: "gauge" "process_max_fds" [] "Most open file descriptors.";
    RESIDENT: "gauge" "process_resident_memory_bytes" [] "Memory of the daemon itself, without its runs.";
}

/// Counts by label values. A combination is listed from its first time on.
#[derive(Debug, Default)]
pub struct Counts(Mutex<BTreeMap<Vec<&'static str>, u64>>);

impl Counts {
    pub fn add(&self, labels: &[&'static str]) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(labels.to_vec()).or_default() += 1;
    }
}

/// Sums of times by provider.
#[derive(Debug, Default)]
pub struct Times(Mutex<BTreeMap<&'static str, (u64, Duration)>>);

impl Times {
    fn add(&self, provider: &'static str, time: Duration) {
        let mut times = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (count, sum) = times.entry(provider).or_default();
        *count += 1;
        *sum += time;
    }
}

/// What is counted as it happens. Everything else is looked up when the page is made.
#[derive(Debug, Default)]
pub struct Metrics {
    runs: Counts,
    setup: Times,
    run: Times,
    pub refusals: Counts,
    pub loads: Counts,
}

impl Metrics {
    /// A run is released; what is given back counts how it ends, also when it is dropped.
    pub fn released(&self, provider: &'static str, setup: Duration) -> Released<'_> {
        self.setup.add(provider, setup);
        Released { metrics: self, provider, ended: false }
    }
}

/// A run between its release and its end.
#[derive(Debug)]
pub struct Released<'a> {
    metrics: &'a Metrics,
    provider: &'static str,
    ended: bool,
}

impl Released<'_> {
    pub fn ended(mut self, ending: &'static str, whole: Duration) {
        self.ended = true;
        self.metrics.runs.add(&[self.provider, ending]);
        self.metrics.run.add(self.provider, whole);
    }
}

impl Drop for Released<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.metrics.runs.add(&[self.provider, "cancelled"]);
        }
    }
}

/// What is looked up when the page is made.
#[derive(Debug, Clone, Copy, Default)]
pub struct Now {
    pub places: u32,
    pub running: u32,
    pub waiting: u32,
    pub sessions: usize,
    /// Queued, running, ended.
    pub started: [usize; 3],
}

/// The whole page.
pub fn page(metrics: &Metrics, signatures: &Counts, now: &Now) -> String {
    let mut page = Page(String::with_capacity(8 << 10));
    page.one(&INFO, &[env!("CARGO_PKG_VERSION")], 1);
    page.counts(&RUNS, &metrics.runs);
    page.times(&SETUP, &metrics.setup);
    page.times(&RUN_SECONDS, &metrics.run);
    page.counts(&REFUSALS, &metrics.refusals);
    page.one(&PLACES, &[], now.places);
    page.one(&RUNNING, &[], now.running);
    page.one(&WAITING, &[], now.waiting);
    page.one(&SESSIONS, &[], now.sessions);
    page.head(&STARTED);
    for (state, count) in ["queued", "running", "ended"].into_iter().zip(now.started) {
        page.sample(STARTED.name, &STARTED, &[state], count);
    }
    page.counts(&LOADS, &metrics.loads);
    page.counts(&SIGNATURES, signatures);
    page.process();
    page.0
}

struct Page(String);

impl Page {
    fn head(&mut self, family: &Family) {
        let Family { name, kind, help, .. } = family;
        // Writing to a string does not fail.
        let _ = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    fn sample(&mut self, name: &str, family: &Family, values: &[&str], sample: impl Display) {
        let labels: Vec<String> =
            family.labels.iter().zip(values).map(|(label, value)| format!("{label}=\"{value}\"")).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        let _ = writeln!(self.0, "{name}{labels} {sample}");
    }

    fn one(&mut self, family: &Family, values: &[&str], sample: impl Display) {
        self.head(family);
        self.sample(family.name, family, values, sample);
    }

    fn counts(&mut self, family: &Family, counts: &Counts) {
        self.head(family);
        for (values, count) in counts.0.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            self.sample(family.name, family, values, count);
        }
    }

    fn times(&mut self, family: &Family, times: &Times) {
        self.head(family);
        for (provider, (count, sum)) in times.0.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            self.sample(&format!("{}_sum", family.name), family, &[provider], sum.as_secs_f64());
            self.sample(&format!("{}_count", family.name), family, &[provider], count);
        }
    }

    /// As the kernel says it now. What it does not say is left out.
    fn process(&mut self) {
        let statm = std::fs::read_to_string("/proc/self/statm").ok();
        let pages = statm.and_then(|text| text.split_whitespace().nth(1)?.parse::<u64>().ok());
        let page_bytes = u64::try_from(rustix::param::page_size()).unwrap_or(4096);
        let files = std::fs::read_dir("/proc/self/fd").ok();
        let facts = [
            // The one of this look is not counted.
            (&OPEN_FILES, files.map(|files| files.count().saturating_sub(1) as u64)),
            (&OPEN_FILES_MAX, rustix::process::getrlimit(rustix::process::Resource::Nofile).current),
            (&RESIDENT, pages.map(|pages| pages.saturating_mul(page_bytes))),
        ];
        for (family, value) in facts {
            if let Some(value) = value {
                self.one(family, &[], value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_every_family_and_counts_what_ended_and_what_was_dropped() {
        let metrics = Metrics::default();
        let released = metrics.released("native", Duration::from_millis(5));
        released.ended("completed", Duration::from_millis(250));
        drop(metrics.released("native", Duration::from_millis(5)));
        metrics.refusals.add(&["capacity"]);
        let text = page(&metrics, &Counts::default(), &Now { started: [1, 2, 3], ..Now::default() });
        for family in ALL {
            assert!(text.contains(&format!("# TYPE {} {}\n", family.name, family.kind)), "{}", family.name);
        }
        for line in [
            "sandboxd_runs_total{provider=\"native\",ending=\"completed\"} 1",
            "sandboxd_runs_total{provider=\"native\",ending=\"cancelled\"} 1",
            "sandboxd_setup_seconds_count{provider=\"native\"} 2",
            "sandboxd_setup_seconds_sum{provider=\"native\"} 0.01",
            "sandboxd_run_seconds_sum{provider=\"native\"} 0.25",
            "sandboxd_refusals_total{reason=\"capacity\"} 1",
            "sandboxd_started_runs{state=\"running\"} 2",
        ] {
            assert!(text.lines().any(|one| one == line), "{line}:\n{text}");
        }
    }
}
