//! What the checks of rules say is exact: what is reported as adding nothing can go, and nothing else can.

use freeboard_policy::diff::{Diff, Verdict};
use freeboard_policy::{Code, Policy};
use proptest::prelude::*;

use super::{API, Rules, grant, load, one, rules};

/// The rules without those of these indices.
fn without(rules: &Rules, gone: &[usize]) -> Rules {
    rules.iter().enumerate().filter(|(at, _)| !gone.contains(at)).map(|(_, rule)| rule.clone()).collect()
}

fn text(rules: &Rules) -> String {
    format!("{API}{}", grant("g", rules))
}

/// Indices of the rules that add nothing, by the check.
fn reported(rules: &Rules) -> Option<Vec<usize>> {
    let text = text(rules);
    load(&one(text.clone()))?;
    let warnings = Policy::load(&one(text.clone())).unwrap().warnings;
    let covered = warnings.iter().filter(|problem| problem.code == Code::ShadowedRule);
    let lines = covered.map(|problem| problem.place.as_ref().unwrap().line);
    let routes: Vec<u32> = (1_u32..)
        .zip(text.lines())
        .filter(|(_, line)| line.starts_with("routes"))
        .map(|(at, _)| at)
        .collect();
    Some(lines.map(|line| routes.iter().position(|of| *of == line).unwrap()).collect())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, max_global_rejects: 100_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_adds_nothing_can_go_and_nothing_else_can(rules in rules()) {
        let Some(reported) = reported(&rules) else { return Err(TestCaseError::reject("dead rules")) };
        let compare = |old: &Rules, new: &Rules| {
            let (old, new) = (load(&one(text(old)))?, load(&one(text(new)))?);
            Some(Diff::between(&old, &new))
        };
        let kept = without(&rules, &reported);
        let diff = compare(&rules, &kept).unwrap();
        prop_assert_eq!(diff.verdict, Verdict::Same, "{}\n{}", text(&rules), diff.render());
        for at in 0..kept.len() {
            // Without it another rule may be dead, or nothing is allowed: then it did something.
            let Some(diff) = compare(&kept, &without(&kept, &[at])) else { continue };
            // A deny rule may refuse what no rule allows: it is kept for runs with another grant.
            prop_assert!(!kept[at].0 || diff.verdict != Verdict::Same, "{} of\n{}", at, text(&kept));
        }
    }
}
