//! Logs of browsers and proxies.

use freeboard_policy::import::har::{Options, import};
use freeboard_policy::import::{Kind, Writes};
use proptest::prelude::*;
use serde_json::json;

use crate::{allows, fixture, loaded, message, naming, shown};

fn options() -> Options {
    Options { naming: naming(), writes: Writes::Include, ..Options::default() }
}

#[test]
fn what_was_seen_is_allowed_generalised_and_counted() {
    let text = fixture("har/shop.json");
    let imported = import(&text, &options()).unwrap();
    let policy = loaded(&imported.policy);
    for (method, url, allowed) in [
        ("GET", "https://shop.test/api/v2/orders?state=closed&page=7", true),
        ("GET", "https://shop.test/api/v2/orders/19", true),
        ("GET", "https://shop.test/api/v2/orders/x", false),
        ("GET", "https://shop.test/api/v2/orders?page=x", false),
        ("POST", "https://shop.test/api/v2/orders", true),
        ("GET", "https://cdn.test/app.js", true),
        ("GET", "https://cdn.test/broken", false),
        ("GET", "https://other.test/", false),
    ] {
        assert_eq!(allows(&policy, method, url), allowed, "{method} {url}\n{}", imported.policy);
    }
    insta::assert_snapshot!("har_shop", shown(&imported));
}

#[test]
fn hosts_and_writes_are_chosen() {
    let text = fixture("har/shop.json");
    let chosen = Options { hosts: vec!["cdn.test".to_owned()], writes: Writes::LeaveOut, ..options() };
    let imported = import(&text, &chosen).unwrap();
    let policy = loaded(&imported.policy);
    assert_eq!(policy.apis().count(), 1);
    let reading = Options { writes: Writes::LeaveOut, ..options() };
    let imported = import(&text, &reading).unwrap();
    assert!(!allows(&loaded(&imported.policy), "POST", "https://shop.test/api/v2/orders"));
    assert!(imported.report.of(Kind::LeftOut).any(|left| left.subject.starts_with("POST")));
    let unknown = Options { hosts: vec!["cdn.tst".to_owned()], ..options() };
    assert!(message(import(&text, &unknown)).contains("did you mean `cdn.test`?"));
    assert!(message(import("{}", &options())).contains("not JSON"));
}

#[test]
fn many_names_in_one_place_become_a_type() {
    let letters = [
        "alder", "birch", "cedar", "elm", "fir", "hazel", "holly", "larch", "lime", "maple", "oak", "pine",
        "rowan",
    ];
    let entries: Vec<_> = letters
        .iter()
        .map(|tree| json!({ "request": { "method": "GET", "url": format!("https://t.test/trees/{tree}/leaves") }, "response": { "status": 200 } }))
        .collect();
    let few = json!({ "log": { "entries": &entries[..12] } }).to_string();
    assert!(import(&few, &options()).unwrap().policy.contains("GET /trees/alder/leaves"));
    let many = json!({ "log": { "entries": entries } }).to_string();
    let imported = import(&many, &options()).unwrap();
    assert!(imported.policy.contains("GET /trees/{slug}/leaves"), "{}", imported.policy);
    assert!(imported.report.of(Kind::Wider).any(|wider| wider.reason.contains("13 different words")));
}

proptest! {
    /// Planted in every place of a log, a secret is in neither policy nor report.
    #[test]
    fn secrets_are_never_copied(
        secret in "[A-Za-z]{3,6}[0-9][A-Za-z0-9]{8,30}|[a-z]{2}_(live|test)_[a-z0-9]{12}7|[0-9a-f]{15}9[0-9a-f]{16}|[bcdfghjkl]{16}",
        word in "[a-z]{5,12}",
    ) {
        let url = format!("https://h.test/in/{secret}?q={secret}&token={secret}&{secret}&r={word}");
        let text = json!({ "log": { "entries": [{
            "request": {
                "method": "POST", "url": url,
                "headers": [{ "name": "Authorization", "value": format!("Basic {secret}") }, { "name": "X-Key", "value": format!("k {secret}") }, { "name": "X-Words", "value": format!("a;{word}") }],
                "cookies": [{ "name": "c", "value": secret }],
                "postData": { "text": secret, "params": [{ "name": secret, "value": secret }] },
            },
            "response": { "status": 200, "headers": [{ "name": "Set-Cookie", "value": secret }], "redirectURL": secret },
        }, {
            "request": { "method": "GET", "url": format!("https://h.test/{word}/x") }, "response": { "status": 200 },
        }] } }).to_string();
        prop_assert!(text.contains(&secret), "the search finds what is planted");
        let imported = import(&text, &options()).unwrap();
        let shown = shown(&imported);
        prop_assert!(!shown.contains(&secret), "{}", shown);
        prop_assert!(!imported.policy.contains(&format!("/{word}/")), "a word of a secret header or value: {}", shown);
        loaded(&imported.policy);
    }
}
