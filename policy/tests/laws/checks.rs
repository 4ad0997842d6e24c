//! What the checks of rules say is exact: what is reported as adding nothing can go, and nothing else can.

use freeboard_policy::diff::{Diff, Verdict};
use freeboard_policy::{Code, Policy, Severity};
use proptest::prelude::*;

use super::reference::{Asked, Reference};
use super::{API, Rules, decide, grant, load, one, request, rules};

/// The rules without those of these indices.
fn without(rules: &Rules, gone: &[usize]) -> Rules {
    rules.iter().enumerate().filter(|(at, _)| !gone.contains(at)).map(|(_, rule)| rule.clone()).collect()
}

fn text(rules: &Rules) -> String {
    format!("{API}{}", grant("g", rules))
}

/// Indices of the rules that add nothing, by the check; `None` where others are wrong as well.
fn reported(rules: &Rules) -> Option<Vec<usize>> {
    let text = text(rules);
    let Err(problems) = Policy::load(&one(text.clone())) else { return Some(Vec::new()) };
    let mut errors = problems.iter().filter(|problem| problem.severity == Severity::Error);
    if !errors.all(|problem| problem.code == Code::ShadowedRule) {
        return None;
    }
    let covered = problems.iter().filter(|problem| problem.code == Code::ShadowedRule);
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
    fn what_adds_nothing_can_go_and_nothing_else_can(
        rules in rules(),
        requests in prop::collection::vec(request(), 48),
    ) {
        let Some(reported) = reported(&rules) else { return Err(TestCaseError::reject("dead rules")) };
        let kept = without(&rules, &reported);
        // All that are reported go at once, and what is left is in order.
        let policy = load(&one(text(&kept)));
        prop_assert!(policy.is_some(), "{}", text(&kept));
        let policy = policy.unwrap();
        // A policy with such rules is not loaded: the second reading says what they would have meant.
        let whole = Reference::read(&text(&rules));
        for (method, target, websocket) in requests {
            let before = whole.allows(&Asked { method: &method, target: &target, websocket });
            let after = decide(&policy, &method, &target, websocket).is_ok();
            prop_assert_eq!(after, before, "{} {}\n{}\n{:?}", method, target, text(&rules), reported);
        }
        for at in 0..kept.len() {
            // Without it another rule may be dead, or nothing is allowed: then it did something.
            let Some(fewer) = load(&one(text(&without(&kept, &[at])))) else { continue };
            let diff = Diff::between(&policy, &fewer);
            // A deny rule may refuse what no rule allows: it is kept for runs with another grant.
            prop_assert!(!kept[at].0 || diff.verdict != Verdict::Same, "{} of\n{}", at, text(&kept));
        }
    }
}
