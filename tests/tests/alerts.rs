//! Alert rules name metrics, labels and values that the daemons have: an alert on something that nobody writes is silent for ever. What
//! there is says the reference page, which is made from the code; and the guide names alerts that are there.

#![expect(clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::path::Path;

use freeboard_wire::NotDispatchedReason;

fn file(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A row of the page.
struct Metric {
    kind: String,
    labels: String,
    meaning: String,
}

impl Metric {
    /// What it writes beside its own name.
    fn ends(&self) -> &'static [&'static str] {
        match self.kind.as_str() {
            "histogram" => &["_bucket", "_sum", "_count"],
            "summary" => &["_sum", "_count"],
            _ => &[""],
        }
    }

    fn has_label(&self, label: &str) -> bool {
        label == "job" || self.labels.split(", ").any(|one| one == format!("`{label}`"))
    }
}

fn metrics() -> BTreeMap<String, Metric> {
    let row = |line: &str| {
        let mut cells = line.strip_prefix("| `")?.split(" | ").map(str::trim);
        let name = cells.next()?.trim_end_matches('`').to_owned();
        let mut cell = || cells.next().map(str::to_owned);
        Some((name, Metric { kind: cell()?, labels: cell()?, meaning: cell()? }))
    };
    file("docs/reference/metrics.md").lines().filter_map(row).collect()
}

fn word(text: &str) -> &str {
    text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_').next().unwrap_or_default()
}

/// Names of metrics in a file of rules, each with the selection behind it.
fn selections(rules: &str) -> Vec<(String, Vec<(String, String)>)> {
    let expressions = rules
        .lines()
        .filter(|line| !line.contains("alert:") && !line.contains("name:") && !line.contains("summary:"));
    let expressions = expressions.filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n");
    let mut found = Vec::new();
    for prefix in ["freeboard_", "sandboxd_", "process_"] {
        for (at, _) in expressions.match_indices(prefix) {
            let name = word(&expressions[at..]);
            let rest = expressions[at + name.len()..].strip_prefix('{');
            let inside = rest.and_then(|rest| rest.split_once('}')).map_or("", |(inside, _)| inside);
            let labels = inside.split(',').filter_map(|one| one.split_once('='));
            let labels =
                labels.map(|(label, wanted)| (label.to_owned(), wanted.trim_matches(['~', '"']).to_owned()));
            found.push((name.to_owned(), labels.collect()));
        }
    }
    found
}

fn is_value(name: &str, metric: &Metric, label: &str, value: &str) -> bool {
    match label {
        "job" => ["freeboard", "sandboxd"].contains(&value),
        "verdict" => ["allowed", "denied"].contains(&value),
        "reason" if name.starts_with("sandboxd_") => (1..=7)
            .filter_map(|number| NotDispatchedReason::try_from(number).ok())
            .any(|reason| reason.word() == value),
        "reason" => freeboard_policy::Reason::ALL.iter().any(|reason| reason.code() == value),
        _ => metric.meaning.contains(&format!("`{value}`")),
    }
}

#[test]
fn every_alert_is_on_metrics_labels_and_values_that_exist() {
    let metrics = metrics();
    for rules in ["freeboard", "sandboxd"] {
        let text = file(&format!("deploy/prometheus/{rules}.rules.yml"));
        let selections = selections(&text);
        assert!(selections.len() > 12, "{rules}: {}", selections.len());
        for (name, labels) in selections {
            let metric = metrics
                .iter()
                .find(|(known, metric)| metric.ends().iter().any(|end| format!("{known}{end}") == name));
            let (known, metric) = metric.unwrap_or_else(|| panic!("`{name}` is no metric"));
            for (label, wanted) in labels {
                assert!(metric.has_label(&label), "`{known}` has no label `{label}`");
                for value in wanted.split('|') {
                    assert!(
                        is_value(known, metric, &label, value),
                        "`{known}` is never with {label} `{value}`"
                    );
                }
            }
        }
    }
}

#[test]
fn the_guide_names_alerts_that_are_there_and_all_of_them_are_explained() {
    let guide = file("docs/operate.md");
    let mut names = Vec::new();
    for rules in ["freeboard", "sandboxd"] {
        let text = file(&format!("deploy/prometheus/{rules}.rules.yml"));
        names
            .extend(text.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).map(str::to_owned));
        assert_eq!(
            text.matches("summary: ").count(),
            text.matches("- alert: ").count(),
            "each says what it means"
        );
    }
    for prefix in ["`Freeboard", "`Sandboxd"] {
        for (at, _) in guide.match_indices(prefix) {
            let name = word(&guide[at + 1..]);
            assert!(names.iter().any(|known| known == name), "the guide names `{name}`");
        }
    }
    let explained = names.iter().filter(|name| guide.contains(&format!("`{name}`"))).count();
    assert!(explained * 3 > names.len() * 2, "{explained} of {}", names.len());
}
