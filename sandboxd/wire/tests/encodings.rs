//! Both encodings of a message, and what is refused in them.

use freeboard_wire::check::{self, Invalid};
use freeboard_wire::error::read_error;
use freeboard_wire::json::{from_json, to_json};
use freeboard_wire::{
    Code, ConnectError, Detail, JavaScriptResult, ModuleRowResult, NotDispatchedReason, ProjectResult,
    RunRecord, RunRequest, RunResponse, SessionEnd, SessionRunResponse, SoftwareRule,
};
use proptest::prelude::*;
use prost::Message;

fn read(json: &str) -> Result<RunRequest, String> {
    from_json(json.as_bytes()).map_err(|error| error.to_string())
}

#[test]
fn reads_camel_case_first_and_snake_case_where_it_is_absent_or_null() {
    let table = [
        (r#"{"minimumIsolation":"vm"}"#, "vm"),
        (r#"{"minimum_isolation":"vm"}"#, "vm"),
        (r#"{"minimum_isolation":"vm","minimumIsolation":null}"#, "vm"),
        (r#"{"minimumIsolation":null,"minimum_isolation":"vm"}"#, "vm"),
        (r#"{"minimumIsolation":"kernel","minimum_isolation":"vm"}"#, "kernel"),
        (r#"{"minimum_isolation":"vm","minimumIsolation":"kernel"}"#, "kernel"),
        (r#"{"minimum_isolation":null}"#, ""),
    ];
    for (json, expected) in table {
        assert_eq!(read(json).unwrap().minimum_isolation, expected, "{json}");
    }
}

#[test]
fn reads_every_form_of_a_number() {
    let timeouts = ["7", "7.0", "70e-1", "\"7\""];
    for text in timeouts {
        assert_eq!(read(&format!(r#"{{"timeoutMs":{text}}}"#)).unwrap().timeout_ms, 7, "{text}");
    }
    let record: RunRecord =
        from_json(br#"{"startedUnixMs":"-9223372036854775808","sequence":18446744073709551615}"#).unwrap();
    assert_eq!((record.started_unix_ms, record.sequence), (i64::MIN, u64::MAX));
    let row: ModuleRowResult =
        from_json(br#"{"outputs":["Infinity","-Infinity","1.5e3",0.1,-0,"NaN",1]}"#).unwrap();
    let bits: Vec<u64> = row.outputs.iter().map(|value| value.to_bits()).collect();
    let expected = [f64::INFINITY, f64::NEG_INFINITY, 1500.0, 0.1, -0.0, f64::NAN, 1.0];
    assert_eq!(bits, expected.map(f64::to_bits));
}

#[test]
fn refuses_what_has_no_single_reading() {
    let bad = [
        r#"{"protocol":4,"protocol":4}"#,
        r#"{"javascript":{"code":"1","code":"2"}}"#,
        r#"{"unknown":{"a":1,"a":2}}"#,
        r#"{"unknown":1,"unknown":1}"#,
        r#"{"protocol":"x"}"#,
        r#"{"protocol":true}"#,
        r#"{"protocol":-1}"#,
        r#"{"protocol":4.5}"#,
        r#"{"protocol":4294967296}"#,
        r#"{"timeoutMs":"2147483648"}"#,
        r#"{"timeoutMs":1e400}"#,
        r#"{"timeoutMs":" 7"}"#,
        r#"{"timeoutMs":"+7"}"#,
        r#"{"minimumIsolation":7}"#,
        r#"{"javascript":[]}"#,
        r#"{"javascript":{"code":"\ud800"}}"#,
        r#"{"unknown":"\udfff"}"#,
        r#"{"project":{"steps":["a",null]}}"#,
        r#"{"project":{"files":[null]}}"#,
        r#"{"module":{"rows":[{"values":["inf"]}]}}"#,
        r#"{"module":{"rows":[{"values":["+1"]}]}}"#,
        r#"{"module":{"rows":[{"values":[true]}]}}"#,
        "[]",
        "null",
        "",
        "{} {}",
        "{}x",
        "\u{feff}{}",
        r#"{"protocol":NaN}"#,
    ];
    for json in bad {
        assert!(read(json).is_err(), "{json}");
    }
    assert!(from_json::<RunRequest>(b"{\"traceId\":\"\xff\"}").is_err(), "not UTF-8");
    let deep = format!(r#"{{"x":{}{}}}"#, "[".repeat(5000), "]".repeat(5000));
    assert!(read(&deep).is_err(), "nested too deeply");
    let wide: Vec<String> = (0..300).map(|n| format!("\"k{n}\":0")).collect();
    assert!(read(&format!("{{{}}}", wide.join(","))).is_err(), "too many members");
    assert!(read("  {\"protocol\": 4, \"more\": [{}, null, 1.5, \"\\u00e9\"]}\n").is_ok());
}

#[test]
fn bytes_are_base64_of_any_common_kind() {
    for text in ["-_8=", "-_8", "+/8=", "+/8"] {
        let result: JavaScriptResult = from_json(format!(r#"{{"stdout":"{text}"}}"#).as_bytes()).unwrap();
        assert_eq!(result.stdout, [0xfb, 0xff], "{text}");
    }
    for text in ["+_8=", "+/8==", "+/ 8", "a", "*"] {
        assert!(
            from_json::<JavaScriptResult>(format!(r#"{{"stdout":"{text}"}}"#).as_bytes()).is_err(),
            "{text}"
        );
    }
}

#[test]
fn writes_zero_values_away_but_keeps_result_objects() {
    let text = |message: &RunResponse| String::from_utf8(to_json(message)).unwrap();
    let empty = RunResponse {
        javascript: Some(JavaScriptResult::default()),
        record: Some(RunRecord::default()),
        ..RunResponse::default()
    };
    assert_eq!(text(&empty), r#"{"record":{},"javascript":{}}"#);
    let full = RunResponse {
        duration_ms: 12,
        project: Some(ProjectResult { outcome: 1, artifacts_truncated: true, ..ProjectResult::default() }),
        ..RunResponse::default()
    };
    assert_eq!(
        text(&full),
        r#"{"durationMs":"12","project":{"outcome":"PROJECT_OUTCOME_COMPLETED","artifactsTruncated":true}}"#
    );
    let unknown = ProjectResult { outcome: 77, ..ProjectResult::default() };
    assert_eq!(to_json(&unknown), br#"{"outcome":77}"#);
    let session = SessionRunResponse { ended: SessionEnd::Expired.into(), ..SessionRunResponse::default() };
    assert_eq!(to_json(&session), br#"{"ended":"SESSION_END_EXPIRED"}"#);
    let row = ModuleRowResult { status: -3, outputs: vec![-0.0, f64::NAN, f64::INFINITY] };
    assert_eq!(to_json(&row), br#"{"status":-3,"outputs":[-0.0,"NaN","Infinity"]}"#);
}

#[test]
fn enumerations_are_read_by_name_and_number() {
    let outcome = |json: &str| from_json::<ProjectResult>(json.as_bytes()).map(|result| result.outcome);
    assert_eq!(outcome(r#"{"outcome":"PROJECT_OUTCOME_TIMED_OUT"}"#).unwrap(), 3);
    assert_eq!(outcome(r#"{"outcome":77}"#).unwrap(), 77);
    assert!(outcome(r#"{"outcome":"COMPLETED"}"#).is_err());
}

#[test]
fn an_error_carries_its_mark_in_binary() {
    let marks = ["CAE", "CAI", "CAM", "CAQ", "CAU", "CAY", "CAc"];
    for (number, value) in (1..).zip(marks) {
        let reason = NotDispatchedReason::try_from(number).unwrap();
        let error = ConnectError::refused(Code::InvalidArgument, reason, "no");
        let body = String::from_utf8(error.to_json()).unwrap();
        let expected = format!(
            r#"{{"code":"invalid_argument","message":"no","details":[{{"type":"plimsoll.v1.NotDispatched","value":"{value}"}}]}}"#
        );
        assert_eq!(body, expected);
        assert_eq!(error.mark(), Some(reason));
        assert_eq!(read_error(body.as_bytes()).unwrap().mark, Some(reason));
    }
    let ended = ConnectError::new(Code::FailedPrecondition, "")
        .with(Detail::session_ended(SessionEnd::Expired, "lifetime over"));
    assert!(String::from_utf8(ended.to_json()).unwrap().contains("CAISDWxpZmV0aW1lIG92ZXI"));
    assert_eq!(ended.mark(), None);
    assert_eq!(Code::ALL.len(), 16);
}

#[test]
fn floors_are_exact_words() {
    for word in ["process", "container", "kernel", "vm"] {
        assert_eq!(check::floor(word), Ok(Some(word)));
    }
    assert_eq!(check::floor(""), Ok(None));
    for word in ["none", "Kernel", " kernel ", "VM", "unknown"] {
        assert_eq!(check::floor(word), Err(Invalid::Floor), "{word}");
    }
}

#[test]
fn rules_are_checked_by_mode() {
    let rule = |mode: &str, identities: &[&str]| SoftwareRule {
        mode: mode.into(),
        identities: identities.iter().map(ToString::to_string).collect(),
    };
    let good = [rule("exact", &["a:1"]), rule("approved", &["a"]), rule("approved", &["a", "b"])];
    for rule in &good {
        assert_eq!(check::rule(Some(rule)), Ok(Some(rule)));
    }
    assert_eq!(check::rule(Some(&rule("", &[]))), Ok(None));
    assert_eq!(check::rule(None), Ok(None));
    let long = "x".repeat(257);
    let many: Vec<String> = (0..33).map(|n| n.to_string()).collect();
    let many = rule("approved", &many.iter().map(String::as_str).collect::<Vec<_>>());
    let bad = [
        rule("exact", &[]),
        rule("exact", &["a", "b"]),
        rule("", &["a"]),
        rule("some", &["a"]),
        rule("approved", &["a", "a"]),
        rule("approved", &[""]),
        rule("approved", &["a b"]),
        rule("approved", &[&long]),
        many,
    ];
    for rule in &bad {
        assert!(check::rule(Some(rule)).is_err(), "{rule:?}");
    }
}

#[test]
fn payloads_keep_the_limits_of_the_contract() {
    let verdict = |json: String| check::payload(&read(&json).unwrap()).map(|_| ());
    let steps = |steps: &str| format!(r#"{{"project":{{"steps":[{steps}]}}}}"#);
    let files = |files: &str| format!(r#"{{"project":{{"steps":["a"],"files":[{files}]}}}}"#);
    let code = |code: &str| format!(r#"{{"javascript":{{"code":"{code}"}}}}"#);
    let list =
        |count: usize, entry: &dyn Fn(usize) -> String| (0..count).map(entry).collect::<Vec<_>>().join(",");
    let file = |path: &str, content: &str| format!(r#"{{"path":"{path}","content":"{content}"}}"#);

    let good = [
        code("1"),
        code(&"x".repeat(262_144)),
        steps(r#""""#),
        steps(&list(20, &|_| "\"true\"".into())),
        steps(&format!("\"{}\"", "x".repeat(16_384))),
        files(&list(200, &|n| file(&format!("f{n}"), ""))),
        files(&file(".plimsoll/a b/é", "\\u0000")),
        files(&file("a", &"x".repeat(4 << 20))),
        r#"{"module":{"model":"m","rows":[{"values":[1]}],"endTime":1,"step":1}}"#.into(),
    ];
    for json in good {
        assert_eq!(verdict(json.clone()), Ok(()), "{json:.90}");
    }
    let sizes = [
        code(&"x".repeat(262_145)),
        steps(&list(21, &|_| "\"true\"".into())),
        steps(&format!("\"{}\"", "x".repeat(16_385))),
        files(&list(201, &|n| file(&format!("f{n}"), ""))),
        files(&file("a", &"x".repeat((4 << 20) + 1))),
    ];
    for json in sizes {
        assert!(verdict(json.clone()).unwrap_err().is_size(), "{json:.90}");
    }
    let long = "x".repeat(1025);
    let mut bad = vec![
        "{}".to_owned(),
        r#"{"cell":{"language":"python","code":"1"}}"#.into(),
        r#"{"javascript":{"code":"1"},"project":{"steps":["a"]}}"#.into(),
        code(""),
        code("a\\u0000b"),
        steps(""),
        steps(r#""a\u0000""#),
        files(&[file("a", ""), file("a", "")].join(",")),
        r#"{"project":{"steps":["a"],"artifacts":["x","x"]}}"#.into(),
        r#"{"module":{"model":"","rows":[{"values":[1]}],"endTime":1,"step":1}}"#.into(),
        r#"{"module":{"model":"m","rows":[],"endTime":1,"step":1}}"#.into(),
        r#"{"module":{"model":"m","rows":[{"values":[1]},{"values":[1,2]}],"endTime":1,"step":1}}"#.into(),
        r#"{"module":{"model":"m","rows":[{"values":["NaN"]}],"endTime":1,"step":1}}"#.into(),
        r#"{"module":{"model":"m","rows":[{"values":[1]}],"endTime":1,"step":0}}"#.into(),
        r#"{"module":{"model":"m","rows":[{"values":[1]}],"endTime":1e9,"step":1}}"#.into(),
    ];
    for path in ["", "/a", "a//b", "a/", "./a", "../x", "a/..", "a\\\\b", "a\\u0001", "a\\u0085", &long] {
        bad.push(files(&file(path, "")));
    }
    for json in bad {
        let refusal = verdict(json.clone()).unwrap_err();
        assert!(!refusal.is_size(), "{json:.90} {refusal}");
    }
}

#[test]
fn grant_profiles_are_names_separated_by_commas() {
    assert_eq!(check::grants(""), Ok(vec![]));
    assert_eq!(check::grants("a, b"), Ok(vec!["a".to_owned(), "b".to_owned()]));
    for bad in [",", "a,", "a,,b", "a,a", "a\u{1}"] {
        assert_eq!(check::grants(bad), Err(Invalid::GrantProfile), "{bad:?}");
    }
    assert!(check::grants(&"a".repeat(129)).unwrap_err().is_size());
    let many: Vec<String> = (0..17).map(|n| n.to_string()).collect();
    assert!(check::grants(&many.join(",")).unwrap_err().is_size());
}

#[test]
fn a_malformed_trace_id_is_dropped() {
    assert_eq!(check::trace_id("smoke-1"), Some("smoke-1"));
    for bad in ["", "a b", "../x", &"x".repeat(65)] {
        assert_eq!(check::trace_id(bad), None);
    }
}

proptest! {
    #[test]
    fn both_encodings_bring_a_message_back(
        stdout in prop::collection::vec(any::<u8>(), 0..64),
        exit_code in any::<i32>(),
        started in any::<i64>(),
        sequence in any::<u64>(),
        provider in "\\PC{0,12}",
        outputs in prop::collection::vec(any::<f64>().prop_filter("NaN is not equal to itself", |v| !v.is_nan()), 0..5),
    ) {
        let response = RunResponse {
            sandbox: provider.clone(),
            record: Some(RunRecord { provider, started_unix_ms: started, sequence, ..RunRecord::default() }),
            javascript: Some(JavaScriptResult { stdout, exit_code, timed_out: true, ..JavaScriptResult::default() }),
            module: Some(freeboard_wire::ModuleResult {
                runs: vec![ModuleRowResult { status: exit_code, outputs }],
                ..Default::default()
            }),
            ..RunResponse::default()
        };
        prop_assert_eq!(&from_json::<RunResponse>(&to_json(&response)).unwrap(), &response);
        prop_assert_eq!(&RunResponse::decode(response.encode_to_vec().as_slice()).unwrap(), &response);
    }

    #[test]
    fn no_body_makes_the_reader_panic(body in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = from_json::<RunRequest>(&body);
        let _ = read_error(&body);
    }
}
