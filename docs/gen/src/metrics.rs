//! `metrics.md`: what `/metrics` counts.

use freeboard_proxy::metrics::families::ALL;
use freeboard_proxy::metrics::histogram::STEPS_US;

use crate::NOTICE;
use crate::source::cell;

pub(crate) fn page() -> String {
    let mut page = format!(
        "{NOTICE}\n# Metrics\n\nWhat the broker counts, at `/metrics` of `metrics_listen`, in Prometheus' text format. \
         How to watch it: [operate.md](../operate.md). Labels have values of a fixed list or of the policy, never of a guest.\n\n\
         | metric | type | labels | meaning |\n|---|---|---|---|\n"
    );
    for family in ALL {
        let labels: Vec<String> = family.labels.iter().map(|label| format!("`{label}`")).collect();
        page.push_str(&format!(
            "| `{}` | {} | {} | {} |\n",
            family.name,
            family.kind.word(),
            labels.join(", "),
            cell(family.help)
        ));
    }
    let steps: Vec<String> = STEPS_US
        .iter()
        .map(|step| match step % 1000 {
            0 => format!("{} ms", step / 1000),
            us => format!("{}.{} ms", step / 1000, us / 100),
        })
        .collect();
    page.push_str(&format!("\nSteps of the histograms: {}.\n", steps.join(", ")));
    page.push_str(
        "\n## sandboxd\n\nAt `/metrics` of `metrics_listen` in `[sandboxd]`. A summary has a `_sum` of seconds and a `_count`.\n\n\
         | metric | type | labels | meaning |\n|---|---|---|---|\n",
    );
    for family in freeboard_sandboxd::metrics::ALL {
        let labels: Vec<String> = family.labels.iter().map(|label| format!("`{label}`")).collect();
        page.push_str(&format!(
            "| `{}` | {} | {} | {} |\n",
            family.name,
            family.kind,
            labels.join(", "),
            cell(family.help)
        ));
    }
    page
}
