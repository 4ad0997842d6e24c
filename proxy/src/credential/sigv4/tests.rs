//! Published examples of the signature, and what must be refused.

use super::*;
use crate::http1::head;
use crate::request::{Answered, Body, Fields};

fn signer(service: &str) -> Signer {
    Signer {
        access_key_id: Secret::new(b"AKIAIOSFODNN7EXAMPLE".to_vec()),
        secret_access_key: Secret::new(b"wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".to_vec()),
        session_token: None,
        region: "us-east-1".into(),
        service: service.into(),
    }
}

fn request(lines: &str) -> RequestHead {
    head::request(format!("{}\r\n\r\n", lines.replace('\n', "\r\n")).as_bytes()).unwrap()
}

/// 2013-05-24 00:00:00 UTC, the time of the examples in the S3 API reference.
const S3_TIME: i64 = 1_369_353_600;

fn signature(signer: &Signer, head: &mut RequestHead, host: &str, at: i64) -> String {
    let payload = signer.payload(head).unwrap();
    let signed = signer.sign(head, host, &payload, at).unwrap();
    let text = String::from_utf8(signed.authorization.expose().to_vec()).unwrap();
    text.rsplit_once("Signature=").unwrap().1.to_owned()
}

/// "Example: GET Bucket Lifecycle" and "GET Bucket (List Objects)" of the S3 API reference.
#[test]
fn h49_signs_as_the_examples_of_the_s3_reference() {
    const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    for (target, expected) in [
        ("/?lifecycle", "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"),
        ("/?max-keys=2&prefix=J", "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"),
    ] {
        let mut head = request(&format!(
            "GET {target} HTTP/1.1\nHost: examplebucket.s3.amazonaws.com\nx-amz-content-sha256: {EMPTY}"
        ));
        assert_eq!(signature(&signer("s3"), &mut head, "examplebucket.s3.amazonaws.com", S3_TIME), expected);
    }
}

/// The `ListUsers` example of the IAM user guide, with its other signed field.
#[test]
fn h49_signs_as_the_example_of_the_iam_guide() {
    let signer = Signer {
        access_key_id: Secret::new(b"AKIDEXAMPLE".to_vec()),
        secret_access_key: Secret::new(b"wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".to_vec()),
        ..signer("iam")
    };
    let mut head = request(
        "GET /?Action=ListUsers&Version=2010-05-08 HTTP/1.1\nHost: iam.amazonaws.com\nContent-Type: application/x-www-form-urlencoded; charset=utf-8",
    );
    let found = signature(&signer, &mut head, "iam.amazonaws.com", 1_440_938_160);
    assert_eq!(found, "5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7");
}

/// "Example: PutObject in chunks" of the S3 API reference: 65 KiB of `a` in chunks of 64 KiB.
#[test]
fn h49_signs_chunks_as_the_example_of_the_s3_reference() {
    let mut head = request(
        "PUT /examplebucket/chunkObject.txt HTTP/1.1\nHost: s3.amazonaws.com\nx-amz-storage-class: REDUCED_REDUNDANCY\nContent-Encoding: aws-chunked\nx-amz-decoded-content-length: 66560\nx-amz-content-sha256: STREAMING-AWS4-HMAC-SHA256-PAYLOAD\nContent-Length: 66824\nAuthorization: AWS4-HMAC-SHA256 guest",
    );
    let signer = signer("s3");
    let payload = signer.payload(&head).unwrap();
    let signed = signer.sign(&mut head, "s3.amazonaws.com", &payload, S3_TIME).unwrap();
    let mut resigner = signed.resigner.unwrap();
    // The example signs Content-Encoding and Content-Length as well: its chunks follow its own seed.
    resigner.previous = "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9".to_owned();
    let guest = "0".repeat(64);
    let mut body = Vec::new();
    for (size, count) in [("10000", 65536), ("400", 1024), ("0", 0)] {
        body.extend_from_slice(format!("{size};chunk-signature={guest}\r\n").as_bytes());
        body.extend(std::iter::repeat_n(b'a', count));
        body.extend_from_slice(b"\r\n");
    }
    assert_eq!(body.len(), 66824);
    let mut out = Vec::new();
    for piece in body.chunks(1000) {
        resigner.feed(piece).unwrap();
        if resigner.has_output() {
            out.extend_from_slice(resigner.output());
        }
    }
    resigner.end().unwrap();
    assert_eq!(out.len(), body.len(), "the length that was announced stays true");
    let text = String::from_utf8(out).unwrap();
    let signatures: Vec<&str> =
        text.split("chunk-signature=").skip(1).map(|rest| rest.split("\r\n").next().unwrap()).collect();
    assert_eq!(
        signatures,
        [
            "ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648",
            "0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497",
            "b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9",
        ]
    );
}

#[test]
fn chunks_come_out_the_same_in_whatever_pieces_they_come_or_not_at_all() {
    let signer = signer("s3");
    let resigner = || Resigner::new(signer.key("20130524"), "20130524T000000Z", "x", "0".repeat(64));
    let sign = "1".repeat(64);
    let body = format!(
        "5;chunk-signature={sign}\r\nhello\r\n0;chunk-signature={sign}\r\nx-amz-checksum-crc32c:AAAAAA==\r\nx-amz-trailer-signature:{sign}\r\n\r\n"
    );
    let run = |size: usize| {
        let (mut resigner, mut out) = (resigner(), Vec::new());
        for piece in body.as_bytes().chunks(size) {
            resigner.feed(piece).unwrap();
            if resigner.has_output() {
                out.extend_from_slice(resigner.output());
            }
        }
        resigner.end().unwrap();
        out
    };
    let whole = run(body.len());
    assert_eq!(whole.len(), body.len());
    assert!(!String::from_utf8(whole.clone()).unwrap().contains(&sign));
    for size in 1..body.len() {
        assert_eq!(run(size), whole, "pieces of {size}");
    }
    for broken in [
        "5;chunk-signature=1\r\nhello\r\n",
        "5\r\nhello\r\n",
        "zz;chunk-signature=",
        "fffffffffffffff;chunk-signature=1111111111111111111111111111111111111111111111111111111111111111\r\n",
        "1;chunk-signature=1111111111111111111111111111111111111111111111111111111111111111\r\nabc",
    ] {
        let mut resigner = resigner();
        assert!(resigner.feed(broken.as_bytes()).is_err() || resigner.end().is_err(), "{broken}");
    }
    for trailer in [
        "x-amz-trailer-signature:\r\nGET http://x/ HTTP/1.1\r\n".to_owned(),
        format!("x-amz-trailer-signature: {sign}\r\n"),
        format!("x-amz-trailer-signature:{sign}\r\nx-amz-trailer-signature:{sign}\r\n"),
        format!("x-amz-trailer-signature:{sign}\r\nx-amz-checksum-crc32c:AAAAAA==\r\n"),
    ] {
        let body = format!("0;chunk-signature={sign}\r\n{trailer}\r\n");
        assert!(resigner().feed(body.as_bytes()).is_err(), "{trailer}");
    }
    let mut early = resigner();
    early.feed(body.as_bytes().get(..20).unwrap()).unwrap();
    assert!(early.end().is_err());
}

#[test]
fn h49_the_guests_own_signature_never_goes_on() {
    let signer = Signer { session_token: Some(Secret::new(b"ours".to_vec())), ..signer("s3") };
    let mut head = request(
        "GET /b/k HTTP/1.1\nHost: s3.test\nAuthorization: AWS4-HMAC-SHA256 Credential=guest\nX-Amz-Date: 20000101T000000Z\nx-amz-security-token: guest\nx-amz-acl: private",
    );
    let payload = signer.payload(&head).unwrap();
    let signed = signer.sign(&mut head, "s3.test", &payload, S3_TIME).unwrap();
    let all = |head: &RequestHead, name: &str| -> Vec<Vec<u8>> {
        head.fields.all(name).map(<[u8]>::to_vec).collect()
    };
    assert!(all(&head, "authorization").is_empty());
    assert_eq!(all(&head, "x-amz-date"), [b"20130524T000000Z".to_vec()]);
    assert_eq!(all(&head, "x-amz-security-token"), [b"ours".to_vec()]);
    let text = String::from_utf8(signed.authorization.expose().to_vec()).unwrap();
    assert!(
        text.contains("SignedHeaders=host;x-amz-acl;x-amz-content-sha256;x-amz-date;x-amz-security-token,")
    );
}

#[test]
fn h49_refuses_what_cannot_be_signed_without_guessing() {
    let signer = signer("s3");
    for (target, fine) in [
        ("/b/a%20b", true),
        ("/b/a%2Fb", false),
        ("/b/k?a=1+2", false),
        ("/b/k?X-Amz-Signature=00&X-Amz-Credential=x", false),
        ("/b/k?partNumber=1&uploadId=x%2By", true),
    ] {
        let mut head = request(&format!("GET {target} HTTP/1.1\nHost: s3.test"));
        let payload = signer.payload(&head).unwrap();
        assert_eq!(signer.sign(&mut head, "s3.test", &payload, S3_TIME).is_ok(), fine, "{target}");
    }
    for (word, s3, other) in [
        ("UNSIGNED-PAYLOAD", true, false),
        ("STREAMING-UNSIGNED-PAYLOAD-TRAILER", true, false),
        ("STREAMING-AWS4-HMAC-SHA256-PAYLOAD", true, false),
        ("STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER", true, false),
        ("STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD", false, false),
        ("STREAMING-AWS4-HMAC-SHA256-EVENTS", false, false),
        ("e3b0", false, false),
        ("E3B0C44298FC1C149AFBF4C8996FB92427AE41E4649B934CA495991B7852B855", false, false),
    ] {
        let head = request(&format!(
            "PUT /b/k HTTP/1.1\nHost: s3.test\nContent-Length: 3\nx-amz-content-sha256: {word}"
        ));
        assert_eq!(signer.payload(&head).is_ok(), s3, "{word}");
        assert_eq!(self::signer("bedrock").payload(&head).is_ok(), other, "{word}");
    }
}

/// A body that is here in pieces.
#[derive(Debug)]
struct Pieces(Vec<Vec<u8>>, Vec<u8>);

impl Body for Pieces {
    async fn next(&mut self) -> Result<Option<&[u8]>, Stop> {
        if self.0.is_empty() {
            return Ok(None);
        }
        self.1 = self.0.remove(0);
        Ok(Some(&self.1))
    }
    fn whole(&mut self) -> Option<&[u8]> {
        None
    }
    fn is_done(&self) -> bool {
        self.0.is_empty()
    }
    fn trailers(&mut self) -> Option<Fields> {
        None
    }
    fn answered(&self) -> Option<&Answered> {
        None
    }
}

#[tokio::test]
async fn a_body_that_nobody_hashed_is_read_and_hashed() {
    let head = request("POST /model/x/invoke HTTP/1.1\nHost: bedrock.test\nTransfer-Encoding: chunked");
    assert_eq!(signer("bedrock").payload(&head).unwrap(), Payload::ToHash);
    let mut pieces = Pieces(vec![b"hel".to_vec(), b"lo".to_vec()], Vec::new());
    let (mut body, payload) = SignedBody::read_whole(&mut pieces).await.unwrap();
    assert_eq!(
        payload,
        Payload::Said("2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824".into())
    );
    assert_eq!(body.whole(), Some(&b"hello"[..]));
    let mut large = Pieces(vec![vec![0; crate::limits::SIGNED_BODY_BYTES], vec![0]], Vec::new());
    assert_eq!(SignedBody::read_whole(&mut large).await.unwrap_err().reason, Reason::BodyTooLarge);
}
