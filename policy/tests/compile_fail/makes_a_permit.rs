//! A permit is made by `Policy::evaluate` alone.

fn main() {
    let _permit = freeboard_policy::Permit {
        grant: "g".into(),
        rule: freeboard_policy::RuleId("g.allow[0]".into()),
        api: "a".into(),
        credential: None,
        websocket: false,
        _made_by_evaluate: (),
    };
}
