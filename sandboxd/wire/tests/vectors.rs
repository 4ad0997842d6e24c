//! The test vectors of the contract, section 4.7: every digest, byte for byte.

#![expect(clippy::unwrap_used, reason = "helpers of tests may panic like the tests themselves")]

use freeboard_wire::digest::{
    owner_name, record_digest, request_digest, result_digest, rule_id, session_fingerprint,
};
use freeboard_wire::json::{from_json, to_json};
use freeboard_wire::{Detail, RunRecord, RunRequest, RunResponse, SessionRunRequest, UnansweredCall};

fn request(json: &str) -> RunRequest {
    from_json(json.as_bytes()).unwrap()
}

fn result(json: &str) -> String {
    let response: RunResponse = from_json(json.as_bytes()).unwrap();
    // The answer as we would send it has the same digest.
    let again: RunResponse = from_json(&to_json(&response)).unwrap();
    assert_eq!(result_digest(&again), result_digest(&response));
    result_digest(&response)
}

fn versions(record: &RunRecord) -> Vec<String> {
    let with = |version| record_digest(&RunRecord { version, ..record.clone() }).unwrap();
    (1..=4).map(with).collect()
}

fn base(started: i64, ended: i64, isolation: &str) -> RunRecord {
    RunRecord {
        version: 4,
        provider: "mock".into(),
        isolation: isolation.into(),
        started_unix_ms: started,
        ended_unix_ms: ended,
        ..RunRecord::default()
    }
}

#[test]
fn vector_a_snippet() {
    let request = request(r#"{"protocol":4,"javascript":{"code":"console.log(1+1)"}}"#);
    let request_sha256 = request_digest(&request);
    assert_eq!(request_sha256, "922859b2f3742c46553dd97d2b61324d02e84f9100cc5b1c2513416dfaa2732e");
    let result_sha256 = result(r#"{"javascript":{"stdout":"Mgo="}}"#);
    assert_eq!(result_sha256, "7c24b5ea22e384ef0b8ae859e64fd5e73dfb328522df64da0fa2d149ea64b5cc");
    let record =
        RunRecord { request_sha256, result_sha256, ..base(1_700_000_000_000, 1_700_000_000_042, "process") };
    assert_eq!(
        versions(&record),
        [
            "43d9e9baef3c98e3b6910f4338124d9e5a3d93d85bcd54150c6ffb56603784a5",
            "3c3145083924653b592f60f897abf9972365d8e1a9f334a87d781986bd2229f6",
            "560d25dba67570b0cbf43ad094f18128271a0c44a13497301b8bc043cef4f9ff",
            "43e6771c07b6604fd868771e538f897deb34fdcc74174b0786c907b179b3445a",
        ]
    );
    assert_eq!(
        result(r#"{"javascript":{}}"#),
        "b8371b827cc237d409624d942b6a157a7fa3f7e2d440488161a5cdfff3752c1a"
    );
}

#[test]
fn vector_b_project_with_rule_grant_and_instance() {
    let id = |letter: &str| format!("oci-manifest:linux/amd64@sha256:{}", letter.repeat(64));
    let json = r#"{"protocol":4,"minimumIsolation":"kernel","traceId":"t-1","timeoutMs":30000,
        "softwareRule":{"mode":"approved","identities":["ID_B","ID_A"]},
        "project":{"steps":["sh build.sh","cat out.bin"],
        "files":[{"path":"build.sh","content":"printf '\\377\\000' > out.bin\n"},{"path":"src/\u00e9.txt","content":""}],
        "artifacts":["out.bin"],"grantProfile":"inventory"}}"#;
    let request = request(&json.replace("ID_A", &id("a")).replace("ID_B", &id("b")));
    let request_sha256 = request_digest(&request);
    assert_eq!(request_sha256, "0dbb3a59592a6b3d8ebc84f36f62c063e3929f5c044143935f8f0a6f179bcdca");
    let result_sha256 = result(
        r#"{"project":{"outcome":"PROJECT_OUTCOME_COMPLETED","artifactsTruncated":true,
        "steps":[{"command":"sh build.sh","durationMs":"12"},
        {"command":"cat out.bin","stdout":"/wA=","stderr":"d2Fybgo=","exitCode":3,"stderrTruncated":true,"durationMs":"4"}],
        "artifacts":[{"path":"out.bin","content":"/wA="}]}}"#,
    );
    assert_eq!(result_sha256, "2b906c74da7e1c13841a3c34e1c3273e50bf5fb9acbedeae81682515a46d0444");
    let software_rule_id = rule_id(request.software_rule.as_ref());
    assert_eq!(
        software_rule_id,
        "approved:sha256:def36ca56c26169c32c1690b9f8df85526c919015dc46db52662b58d98ad7a10"
    );
    let record = RunRecord {
        request_sha256,
        result_sha256,
        environment: format!("img:sha256:{}", "c".repeat(64)),
        policy: format!("policy:sha256:{}", "d".repeat(64)),
        software_identity: id("a"),
        software_rule_id,
        instance: "mock-box:7f3a-1".into(),
        ..base(1_700_000_000_000, 1_700_000_001_500, "kernel")
    };
    assert_eq!(
        versions(&record),
        [
            "60063cb0e51f08c80f60ff0f180f116b6d549dfa7375aa6ed83d3709000309bd",
            "f8dfe248d44fdbde136b17539ebdaa4cb9567e809e11df7c944369173f4cb10e",
            "f13bc000afaa2ddb1d8d4a0d54c4c45ef111fa11a48d635065fe478045c7f6f6",
            "50c8c883ce378be254845b4943b8062887aaabfa67e6610e0fe2f97fcba94a64",
        ]
    );
    assert_eq!(
        result(r#"{"project":{"outcome":5,"outcomeDetail":"the runner exited without a report"}}"#),
        "5a6a6fda7a4e219ec3f54e7bbf71c71f5fbf0c17a0b7d7601bfc3787636b997b"
    );
}

#[test]
fn vector_c_module_with_floats() {
    let request = request(
        r#"{"protocol":4,"module":{"model":"pend","rows":[{"values":[1.0,-0.5]},{"values":[0.1,2.0]}],"endTime":1.0,"step":0.5}}"#,
    );
    let request_sha256 = request_digest(&request);
    assert_eq!(request_sha256, "493574736c731afe5047139c6ae36b9e736dbabf6263208c700e2c8690ffab16");
    let result_sha256 = result(
        r#"{"module":{"outcome":"PROJECT_OUTCOME_COMPLETED","width":1,"runs":[{"status":2,"outputs":[-0.0,"NaN"]},{"status":-3}],"stdout":"MiByb3dzCg=="}}"#,
    );
    assert_eq!(result_sha256, "fff32cd5d037d6d419690bed4fbc752e340274259d3c700a35ecfff934c4fa63");
    let record = RunRecord {
        request_sha256,
        result_sha256,
        ..base(1_700_000_000_000, 1_700_000_000_001, "container")
    };
    assert_eq!(
        record_digest(&record).unwrap(),
        "a131a09cdb1f018a9d2addc934903d4ce982a1bc9ea1e30687742a18402c4944"
    );
}

#[test]
fn vector_d_session_chain_and_unanswered_call() {
    let session = session_fingerprint("00112233445566778899aabbccddeeff");
    assert_eq!(session, "5947d7c33d783f94b3b4c1a96ebc8991ed28f1b069b71e03376cba8caa98a720");
    let call = |json: &str| request_digest(&from_json::<SessionRunRequest>(json.as_bytes()).unwrap());
    let link = |sequence, previous_sha256: &str, record: RunRecord| {
        let mut record = RunRecord {
            session: session.clone(),
            sequence,
            previous_sha256: previous_sha256.to_owned(),
            ..record
        };
        record.record_sha256 = record_digest(&record).unwrap();
        record
    };

    let d1 = link(
        1,
        "",
        RunRecord {
            request_sha256: call(
                r#"{"protocol":4,"minimumIsolation":"container","cell":{"language":"python","code":"x = 41\nx + 1","files":[{"path":"data.csv","content":"a,b\n"}]}}"#,
            ),
            result_sha256: result(r#"{"cell":{"stdout":"NDIK","interpreterStarted":true}}"#),
            ..base(1_700_000_000_000, 1_700_000_000_007, "container")
        },
    );
    assert_eq!(d1.request_sha256, "07cc58768891f0115f37397b11b17c9a8875d2a4a493d79315ff7fe5bd3b7f92");
    assert_eq!(d1.result_sha256, "0ac5e3bdf4e3bc7f4bd2b5b11b44a57c2ac22bf5869825c6d8dc6f56909d1b61");
    assert_eq!(d1.record_sha256, "83dd547cc0f1f59825617b95be5375998bbe4f3c4d76898761b899510e3a2ff4");

    let d2 = link(
        2,
        &d1.record_sha256,
        RunRecord {
            request_sha256: call(
                r#"{"protocol":4,"minimumIsolation":"container","timeoutMs":1500,"javascript":{"code":"while(1);"}}"#,
            ),
            unanswered: "internal".into(),
            ..base(1_700_000_000_100, 1_700_000_001_700, "container")
        },
    );
    assert_eq!(d2.request_sha256, "301251899714ea17179118cc11770de2b1839670c0ce0b97ecafbb4e891378f6");
    assert_eq!(d2.record_sha256, "7b9665dd805f50c703f2245d33175c865b44b28d5248c6e38aeecef8bf902428");
    let detail = Detail::unanswered(&UnansweredCall { record: Some(d2.clone()) });
    assert_eq!(detail.value.len(), 313);
    let expected = "CrYCCAQSQDMwMTI1MTg5OTcxNGVhMTcxNzkxMThjYzExNzcwZGUyYjE4Mzk2NzBjMGNlMGI5N2VjYWZiYjRlODkxMzc4ZjYiBG1v\
        Y2sqCWNvbnRhaW5lckDk0JX/vDFIpN2V/7wxUkA1OTQ3ZDdjMzNkNzgzZjk0YjNiNGMxYTk2ZWJjODk5MWVkMjhmMWIwNjliNzFl\
        MDMzNzZjYmE4Y2FhOThhNzIwWAJiQDgzZGQ1NDdjYzBmMWY1OTgyNTYxN2I5NWJlNTM3NTk5OGJiZTRmM2M0ZDc2ODk4NzYxYjg5\
        OTUxMGUzYTJmZjRqQDdiOTY2NWRkODA1ZjUwYzcwM2YyMjQ1ZDMzMTc1Yzg2NWI0NGIyOGQ1MjQ4YzZlMzhhZWVjZWY4YmY5MDI0\
        MjiCAQhpbnRlcm5hbA";
    let error = freeboard_wire::ConnectError::new(freeboard_wire::Code::Internal, "").with(detail);
    assert!(String::from_utf8(error.to_json()).unwrap().contains(expected));

    let d3 = link(
        3,
        &d2.record_sha256,
        RunRecord {
            request_sha256: call(
                r#"{"protocol":4,"minimumIsolation":"container","project":{"steps":["true"]}}"#,
            ),
            result_sha256: result(
                r#"{"project":{"outcome":"PROJECT_OUTCOME_COMPLETED","steps":[{"command":"true"}]}}"#,
            ),
            ..base(1_700_000_002_000, 1_700_000_002_001, "container")
        },
    );
    assert_eq!(d3.request_sha256, "76a23c29a53b44311b9677ebeb57fdcd2bc4f8c7daf80594dcc62216cdd7e5c4");
    assert_eq!(d3.result_sha256, "1048b67ef0fe649de1cddf4beafe4507703777f2b300f700c3d5dd5ce9937aaf");
    assert_eq!(d3.record_sha256, "1fe73b0841c1506359111cfcd447f51c1c6058c084f7cf1d29b23e186b21ebc2");
}

#[test]
fn vector_others_old_request_form_and_owner_names() {
    let old = request(
        r#"{"protocol":1,"minimumIsolation":"container","timeoutMs":5000,"javascript":{"code":"console.log(1+1)"}}"#,
    );
    assert_eq!(request_digest(&old), "585a1b46c55ebacc1dfdd4336e302328c32ed3e2e7e8a8b460d252d0454be8fc");
    assert_eq!(
        owner_name("tok-0123456789", "alice@example.com"),
        "6ee4cfaee0709770dc4cd1cdd87b7bbff6c716c9d577c47008eb54295ccd4e0c"
    );
    assert_eq!(
        owner_name("", "alice@example.com"),
        "b261355cb5012097b8b4ca487cfe786bf9a7fcbc616c9c2fc38469a1c3e5bc8e"
    );
}

#[test]
fn a_record_of_an_unknown_version_has_no_digest() {
    for version in [0, 5, u32::MAX] {
        assert_eq!(record_digest(&RunRecord { version, ..RunRecord::default() }), None);
    }
}
