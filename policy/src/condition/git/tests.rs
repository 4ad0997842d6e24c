use super::*;
use crate::Target;
use crate::condition::media::Media;

const OLD: &str = "1111111111111111111111111111111111111111";
const NEW: &str = "2222222222222222222222222222222222222222";
const NULL: &str = "0000000000000000000000000000000000000000";

fn line(text: &str) -> String {
    format!("{:04x}{text}", text.len() + 4)
}

fn command(old: &str, new: &str, name: &str) -> String {
    line(&format!("{old} {new} {name}\0 report-status side-band-64k agent=git/2.43"))
}

fn push(refs: &[&str], changes: &[RefChange]) -> GitTest {
    GitTest {
        operation: GitOperation::Push,
        refs: refs.iter().map(|text| RefPattern::parse(text).unwrap()).collect(),
        changes: changes.to_vec(),
        max_pack_bytes: None,
    }
}

fn facts(service: &str) -> Facts {
    let media = format!("application/x-{service}-request");
    Facts { media: Media::parse(media.as_bytes()), ..Facts::default() }
}

fn reason(test: &GitTest, effect: Effect, body: &str) -> Option<Reason> {
    match test.check(effect, &facts(test.operation.service()), body.as_bytes()) {
        Check::Fails(miss) | Check::Unclear(miss) => Some(miss.reason),
        _ => None,
    }
}

#[test]
fn a_push_is_its_commands_and_a_pack() {
    let bot = push(&["refs/heads/bot/**"], &[RefChange::Create]);
    let create = command(NULL, NEW, "refs/heads/bot/one");
    let plain = |old: &str, new: &str, name: &str| line(&format!("{old} {new} {name}\n"));
    for (body, expected) in [
        (format!("{create}0000PACK\0\0\0\x02"), None),
        (format!("{create}{}0000PACK", plain(NULL, NEW, "refs/heads/bot/two/three")), None),
        (format!("{}{create}0000PACK", line(&format!("shallow {OLD}"))), None),
        ("0000".to_owned(), None),
        (format!("{create}{}0000PACK", plain(NULL, NEW, "refs/heads/main")), Some(Reason::BodyNotGranted)),
        (format!("{}0000PACK", command(NULL, NEW, "refs/heads/bot")), Some(Reason::BodyNotGranted)),
        (format!("{}0000PACK", command(OLD, NEW, "refs/heads/bot/one")), Some(Reason::BodyNotGranted)),
        (format!("{}0000", command(OLD, NULL, "refs/heads/bot/one")), Some(Reason::BodyNotGranted)),
        (create.clone(), Some(Reason::InspectionTruncated)),
        (format!("{create}0000"), Some(Reason::InspectionTruncated)),
        (format!("{create}0000PA"), Some(Reason::InspectionTruncated)),
        (format!("{create}0000{create}0000PACK"), Some(Reason::InspectionMalformed)),
        (format!("0000{create}0000PACK"), Some(Reason::InspectionMalformed)),
        (format!("{}0000PACK", command(NULL, NULL, "refs/heads/bot/one")), Some(Reason::InspectionMalformed)),
        (
            format!("{}0000PACK", command(NULL, NEW, "refs/heads/bot/../main")),
            Some(Reason::InspectionMalformed),
        ),
        (format!("{}0000PACK", command(NULL, NEW, "HEAD")), Some(Reason::InspectionMalformed)),
        (
            format!("{}0000PACK", command(NULL, &NEW.to_uppercase().replace('2', "A"), "refs/heads/bot/x")),
            Some(Reason::InspectionMalformed),
        ),
        (
            format!("{}0000PACK", line(&format!("{NULL}  {NEW} refs/heads/bot/one"))),
            Some(Reason::InspectionMalformed),
        ),
        (format!("{}0000PACK", line(&format!("push-cert\0{NULL} {NEW}"))), Some(Reason::InspectionMalformed)),
        (format!("{create}0001PACK"), Some(Reason::InspectionMalformed)),
        ("PACK".to_owned(), Some(Reason::InspectionMalformed)),
    ] {
        assert_eq!(reason(&bot, Effect::Allow, &body), expected, "{}", body.escape_debug());
    }
}

#[test]
fn a_beginning_is_enough_once_the_pack_begins() {
    let bot = push(&["refs/heads/**"], &RefChange::ALL);
    let body = format!("{}0000PACK", command(NULL, NEW, "refs/heads/a"));
    for length in 0..body.len() {
        assert!(!bot.is_enough(&body.as_bytes()[..length]), "{length}");
    }
    assert!(bot.is_enough(body.as_bytes()));
    assert!(bot.is_enough(b"no pkt-line"), "what is broken stays broken");
    let deletion = format!("{}0000", command(OLD, NULL, "refs/heads/a"));
    assert!(!bot.is_enough(deletion.as_bytes()), "the end shows that nothing follows");
    assert_eq!(reason(&bot, Effect::Allow, &deletion), None);
}

#[test]
fn options_stand_between_commands_and_pack() {
    let bot = push(&["refs/heads/**"], &RefChange::ALL);
    let create = line(&format!("{NULL} {NEW} refs/heads/a\0push-options report-status"));
    let ci = line("ci.skip");
    assert_eq!(reason(&bot, Effect::Allow, &format!("{create}0000{ci}0000PACK")), None);
    assert_eq!(reason(&bot, Effect::Allow, &format!("{create}0000PACK")), Some(Reason::InspectionMalformed));
}

#[test]
fn a_deny_rule_takes_one_ref_of_a_push() {
    let main = push(&["refs/heads/main"], &[]);
    let body = |name: &str| {
        format!("{}{}0000PACK", command(NULL, NEW, "refs/heads/a"), line(&format!("{OLD} {NEW} {name}")))
    };
    assert_eq!(reason(&main, Effect::Deny, &body("refs/heads/main")), None);
    assert_eq!(reason(&main, Effect::Deny, &body("refs/heads/Main")), None);
    assert_eq!(reason(&main, Effect::Deny, &body("refs/heads/mainly")), Some(Reason::BodyNotGranted));
    assert_eq!(reason(&main, Effect::Deny, "x"), Some(Reason::InspectionTruncated));
}

#[test]
fn a_fetch_is_read_in_every_version() {
    let fetch = GitTest {
        operation: GitOperation::Fetch,
        refs: Vec::new(),
        changes: Vec::new(),
        max_pack_bytes: None,
    };
    let want = line(&format!("want {NEW} multi_ack_detailed side-band-64k ofs-delta\n"));
    for (body, expected) in [
        (format!("{want}0000{}{}", line(&format!("have {OLD}\n")), line("done\n")), None),
        (format!("{want}{}0000{}", line("deepen 1"), line("done\n")), None),
        (format!("{}{}0001{}0000", line("command=ls-refs\n"), line("agent=git"), line("peel\n")), None),
        (
            format!("{}0001{}{}0000", line("command=fetch"), line(&format!("want {NEW}\n")), line("done\n")),
            None,
        ),
        (format!("{}0000", line("command=push")), Some(Reason::InspectionMalformed)),
        (format!("{want}0000{}", line("command=fetch")), Some(Reason::InspectionMalformed)),
        (command(NULL, NEW, "refs/heads/main"), Some(Reason::InspectionMalformed)),
        (String::new(), Some(Reason::InspectionMalformed)),
        ("0000".to_owned(), Some(Reason::InspectionMalformed)),
        ("0032want".to_owned(), Some(Reason::InspectionTruncated)),
    ] {
        assert_eq!(reason(&fetch, Effect::Allow, &body), expected, "{}", body.escape_debug());
    }
}

#[test]
fn the_endpoints_are_those_of_smart_http() {
    let bot = push(&["refs/heads/**"], &[RefChange::Create]);
    let fetch = GitTest {
        operation: GitOperation::Fetch,
        refs: Vec::new(),
        changes: Vec::new(),
        max_pack_bytes: None,
    };
    let check = |test: &GitTest, method: &str, target: &str| {
        let target = Target::parse(target.as_bytes()).unwrap();
        test.head(Effect::Allow, Head { method, target: &target, fields: &crate::NoFields })
    };
    assert_eq!(check(&fetch, "GET", "/o/r.git/info/refs?service=git-upload-pack"), Check::Holds);
    assert_eq!(check(&bot, "GET", "/o/r.git/info/refs?service=git-receive-pack"), Check::Holds);
    assert_eq!(check(&fetch, "POST", "/o/r.git/git-upload-pack"), Check::NeedsBody);
    assert_eq!(check(&bot, "POST", "/o/r.git/git-receive-pack"), Check::NeedsBody);
    for (test, method, target) in [
        (&fetch, "GET", "/o/r.git/info/refs"),
        (&fetch, "GET", "/o/r.git/info/refs?service=git-receive-pack"),
        (&bot, "GET", "/o/r.git/info/refs?service=git-upload-pack"),
        (&bot, "GET", "/o/r.git/info/refs?service=git-receive-pack&service=git-upload-pack"),
        (&fetch, "POST", "/o/r.git/git-receive-pack"),
        (&bot, "POST", "/o/r.git/git-upload-pack"),
        (&bot, "POST", "/o/r.git/git-receive-pack?x"),
        (&bot, "PUT", "/o/r.git/git-receive-pack"),
        (&bot, "POST", "/o/r.git/git-receive-pack/"),
        (&fetch, "GET", "/o/r.git/objects/info/packs"),
    ] {
        let found = check(test, method, target);
        let slash = target.ends_with('/') && found == Check::NeedsBody;
        assert!(matches!(found, Check::Fails(_)) || slash, "{method} {target}: {found:?}");
    }
}

#[test]
fn patterns_of_refs_take_whole_components() {
    for (pattern, name, allowed) in [
        ("refs/heads/main", "refs/heads/main", true),
        ("refs/heads/main", "refs/heads/Main", false),
        ("refs/heads/*", "refs/heads/a", true),
        ("refs/heads/*", "refs/heads/a/b", false),
        ("refs/heads/bot/**", "refs/heads/bot/a/b", true),
        ("refs/heads/bot/**", "refs/heads/bot", false),
        ("refs/heads/bot/**", "refs/heads/bots/a", false),
        ("refs/tags/v*", "refs/tags/v1", true),
        ("refs/tags/v*", "refs/tags/v", false),
        ("refs/heads/release-*-rc", "refs/heads/release-1-rc", true),
    ] {
        assert_eq!(
            RefPattern::parse(pattern).unwrap().matches(Effect::Allow, name.as_bytes()),
            allowed,
            "{pattern} {name}"
        );
        assert_eq!(RefPattern::parse(pattern).unwrap().to_string(), pattern);
    }
    for text in [
        "main",
        "heads/main",
        "refs/",
        "refs//x",
        "refs/heads/**/x",
        "refs/heads/a**b",
        "refs/heads/..",
        "refs/heads/a.lock",
        "refs/heads/a b",
    ] {
        assert!(RefPattern::parse(text).is_err(), "{text}");
    }
}
