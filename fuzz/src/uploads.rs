//! Uploads that the broker signs anew on their way (`aws-chunked`).

use freeboard_proxy::credential::sigv4::Resigner;

/// What comes out for these pieces; `None` where it is refused.
fn resigned<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Option<Vec<u8>> {
    let scope = "20270101/eu/s3/aws4_request";
    let mut resigner = Resigner::new([7; 32].into(), "20270101T000000Z", scope, "0".repeat(64));
    let mut out = Vec::new();
    for piece in pieces {
        resigner.feed(piece).ok()?;
        if resigner.has_output() {
            out.extend_from_slice(resigner.output());
        }
    }
    resigner.end().ok().map(|()| out)
}

/// Bytes as they are, except for some that stand for what mutations hardly ever find: a line end, a signature, a trailer.
fn written(data: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for byte in data {
        match byte {
            b'~' => bytes.extend_from_slice(b"\r\n"),
            b'^' => {
                bytes.extend_from_slice(b";chunk-signature=");
                bytes.extend_from_slice(&[b'a'; 64]);
            }
            b'`' => {
                bytes.extend_from_slice(b"x-amz-trailer-signature:");
                bytes.extend_from_slice(&[b'B'; 64]);
            }
            byte => bytes.push(*byte),
        }
    }
    bytes
}

/// An upload keeps its length, whatever pieces it comes in, and nothing of it changes but the digits of signatures.
pub(crate) fn signed(data: &[u8]) {
    let bytes = written(data);
    let whole = resigned(std::iter::once(bytes.as_slice()));
    for size in [1, 7] {
        assert_eq!(resigned(bytes.chunks(size)), whole, "in pieces of {size}");
    }
    let Some(out) = whole else { return };
    assert_eq!(out.len(), bytes.len(), "another length than the head says");
    let same = |at: usize| bytes.get(at) == out.get(at);
    let mut at = 0;
    while at < out.len() {
        if same(at) {
            at += 1;
            continue;
        }
        // Somewhere within the digits of a signature.
        let before = bytes.get(..at).unwrap_or_default();
        let digits = |byte: &&u8| byte.is_ascii_hexdigit();
        let begin = [&b";chunk-signature="[..], b"x-amz-trailer-signature:"]
            .iter()
            .filter_map(|word| {
                let found = before.windows(word.len()).rposition(|window| window == *word)?;
                Some(found + word.len())
            })
            .max();
        let begin = begin.filter(|begin| at < begin + 64);
        let Some(begin) = begin else { panic!("byte {at} changed, which is of no signature") };
        let ours = out.get(begin..begin + 64).unwrap_or_default();
        assert_eq!(ours.iter().take_while(digits).count(), 64, "no signature of ours at {begin}");
        assert!(!ours.iter().any(u8::is_ascii_uppercase), "written as they are signed");
        assert_eq!(out.get(begin + 64..begin + 66), Some(&b"\r\n"[..]), "a signature ends its line");
        at = begin + 64;
    }
    // A reader that takes a bare line feed for the end of a line sees the same trailer.
    assert!(trailer(&bytes).iter().all(|byte| *byte != b'\n' && *byte != b'\r'), "a line within a line");
}

/// The trailer lines without their ends: what follows the data of the last chunk.
fn trailer(bytes: &[u8]) -> Vec<u8> {
    let mut rest = bytes;
    while let Some(end) = rest.windows(2).position(|two| two == b"\r\n") {
        let (line, after) = rest.split_at(end);
        let text = String::from_utf8_lossy(line);
        let size = text.split(';').next().and_then(|digits| usize::from_str_radix(digits, 16).ok());
        let Some(size) = size else { panic!("a chunk without a size: {text:?}") };
        let after = after.get(2..).unwrap_or_default();
        if size == 0 {
            let lines = after.split(|byte| *byte == b'\r');
            return lines.flat_map(|line| line.strip_prefix(b"\n").unwrap_or(line)).copied().collect();
        }
        rest = after.get(size + 2..).unwrap_or_default();
    }
    Vec::new()
}
