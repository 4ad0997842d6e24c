//! HTTP/1.1 as the broker reads it, against plain second readings.

use std::collections::HashMap;

use freeboard_proxy::http1::chunked::{Decoder, Step};
use freeboard_proxy::http1::{head as parser, write};
use freeboard_proxy::request::head::Form;
use freeboard_proxy::request::{Length, RequestHead, Version};

/// What never goes on: the broker writes its own.
const OWN: [&str; 9] = [
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authorization",
    "te",
    "upgrade",
];

/// A request head and what follows it.
pub(crate) fn head(data: &[u8]) {
    let found = end(data, data.len().max(1));
    for piece in [1, 3] {
        assert_eq!(end(data, piece), found, "the end of the head, in pieces of {piece}");
    }
    let Ok(Some(end)) = found else { return };
    let Some(bytes) = data.get(..end) else { panic!("the head ends at {end} of {}", data.len()) };
    let _ = parser::response(bytes);
    let Ok(head) = parser::request(bytes) else { return };
    let lines = lines(bytes);
    framing(&head, &lines);
    forwarded(&head, &lines);
    reads_again(&head);
}

/// Where the head ends when it comes in pieces of this size.
fn end(data: &[u8], piece: usize) -> Result<Option<usize>, &'static str> {
    let mut scanned = 0;
    let mut have = 0;
    while have < data.len() {
        have = (have + piece).min(data.len());
        if let Some(end) = parser::find_end(data.get(..have).unwrap_or_default(), &mut scanned)? {
            return Ok(Some(end));
        }
    }
    Ok(None)
}

/// Name in lower case and value of each line; what is accepted has no other line end than CRLF and no NUL.
fn lines(bytes: &[u8]) -> Vec<(String, Vec<u8>)> {
    let text: Vec<char> = bytes.iter().map(|byte| char::from(*byte)).collect();
    let text: String = text.into_iter().collect();
    let body = text.strip_suffix("\r\n\r\n");
    let mut lines = body.unwrap_or_else(|| panic!("a head that does not end: {text:?}")).split("\r\n");
    let first = lines.next().unwrap_or_default();
    assert!(!text.replace("\r\n", "").contains(['\r', '\n', '\0']), "{text:?}");
    assert_eq!(first.split(' ').count(), 3, "{first:?}");
    lines
        .map(|line| {
            let (name, value) = line.split_once(':').unwrap_or_else(|| panic!("no field: {line:?}"));
            let token = |letter: char| letter.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(letter);
            assert!(!name.is_empty() && name.chars().all(token), "{line:?}");
            let value =
                value.trim_matches([' ', '\t']).chars().map(|letter| u8::try_from(letter).unwrap_or(b'?'));
            (name.to_ascii_lowercase(), value.collect())
        })
        .collect()
}

/// There is one length, and nothing that another reader could take for another one.
fn framing(head: &RequestHead, lines: &[(String, Vec<u8>)]) {
    let all = |name: &str| -> Vec<&[u8]> {
        lines.iter().filter(|(other, _)| other == name).map(|(_, value)| value.as_slice()).collect()
    };
    let (lengths, codings) = (all("content-length"), all("transfer-encoding"));
    assert!(lengths.len() + codings.len() <= 1, "{lengths:?} {codings:?}");
    match (lengths.first(), codings.first()) {
        (_, Some(coding)) => {
            assert!(coding.eq_ignore_ascii_case(b"chunked") && head.length == Length::Unknown);
            assert_eq!(head.version, Version::Http11);
        }
        (Some(length), None) => {
            let text = String::from_utf8_lossy(length).into_owned();
            assert!(text.bytes().all(|byte| byte.is_ascii_digit()) && !text.is_empty(), "{text:?}");
            let number: u64 = text.parse().unwrap_or_else(|_| panic!("{text:?} does not fit"));
            assert!(
                head.length == Length::Sized(number) || (number == 0 && head.length == Length::None),
                "{text} and {:?}",
                head.length
            );
        }
        (None, None) => assert_eq!(head.length, Length::None),
    }
    assert!(all("host").len() <= 1);
}

/// What goes on came in, as often at most; nothing of what the broker writes itself is among it.
fn forwarded(head: &RequestHead, lines: &[(String, Vec<u8>)]) {
    let mut left: HashMap<(String, &[u8]), usize> = HashMap::new();
    for (name, value) in lines {
        *left.entry((name.clone(), value)).or_default() += 1;
    }
    for (name, value) in head.fields.iter() {
        let lower = name.to_ascii_lowercase();
        assert!(!OWN.contains(&lower.as_str()), "{name} would go on");
        match left.get_mut(&(lower, value)) {
            Some(count @ 1..) => *count -= 1,
            _ => panic!("{name}: {} did not come in", value.escape_ascii()),
        }
    }
}

/// Written anew, the head is read as the same.
fn reads_again(head: &RequestHead) {
    let Some(target) = &head.target else {
        assert!(matches!(head.form, Form::Authority(_)));
        return;
    };
    let mut out = format!("{} {} HTTP/1.1\r\nhost: x.test\r\n", head.method, target.wire()).into_bytes();
    write::fields(&mut out, &head.fields);
    out.extend_from_slice(b"\r\n");
    let again = parser::request(&out);
    let again = again.unwrap_or_else(|stop| panic!("{stop:?} of {}", out.escape_ascii()));
    assert_eq!((&again.method, &again.target), (&head.method, &head.target));
    let fields = |head: &RequestHead| -> Vec<(String, Vec<u8>)> {
        head.fields.iter().map(|(name, value)| (name.to_owned(), value.to_vec())).collect()
    };
    assert_eq!(fields(&again), fields(head));
}

/// A chunked body with what follows it. The first byte says in which pieces it comes.
pub(crate) fn chunked(data: &[u8]) {
    let Some((size, body)) = data.split_first() else { return };
    let whole = decode(body, body.len().max(1));
    assert_eq!(decode(body, usize::from(*size).max(1)), whole, "in pieces of {size}");
    let Ok(Some((content, end))) = whole else { return };
    assert_eq!(plain(body), Some((content.clone(), end)), "as a second reading says");
    // Written anew, it is the same body.
    let mut again = Vec::new();
    content.chunks(usize::from(*size).max(1)).for_each(|piece| write::chunk(&mut again, piece));
    write::last_chunk(&mut again, None);
    let length = again.len();
    assert_eq!(decode(&again, length), Ok(Some((content, length))));
}

type Decoded = Result<Option<(Vec<u8>, usize)>, &'static str>;

/// The content and where the body ends; `None` when it does not.
fn decode(body: &[u8], piece: usize) -> Decoded {
    let mut decoder = Decoder::default();
    let (mut content, mut used, mut have) = (Vec::new(), 0, 0);
    loop {
        let input = body.get(used..have).unwrap_or_default();
        match decoder.step(input).map_err(|malformed| malformed.0)? {
            Step::More if have == body.len() => return Ok(None),
            Step::More => have = (have + piece).min(body.len()),
            Step::Skip(count) => used += count,
            Step::Data(count) => {
                assert!(count > 0 && count <= input.len());
                content.extend_from_slice(input.get(..count).unwrap_or_default());
                used += count;
            }
            Step::End(count) => {
                assert!(decoder.is_done());
                return Ok(Some((content, used + count)));
            }
        }
        assert!(used <= have);
    }
}

/// Chunks as RFC 9112 7.1 has them, without a look at extensions and trailers.
fn plain(body: &[u8]) -> Option<(Vec<u8>, usize)> {
    let line = |from: usize| -> Option<&[u8]> {
        let rest = body.get(from..)?;
        rest.get(..rest.windows(2).position(|two| two == b"\r\n")?)
    };
    let (mut content, mut at) = (Vec::new(), 0);
    loop {
        let size = line(at)?;
        at += size.len() + 2;
        let digits = size.split(|byte| *byte == b';').next()?;
        let length = usize::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
        if length == 0 {
            break;
        }
        content.extend_from_slice(body.get(at..at + length)?);
        at += length;
        assert_eq!(body.get(at..at + 2), Some(&b"\r\n"[..]));
        at += 2;
    }
    loop {
        let trailer = line(at)?;
        at += trailer.len() + 2;
        if trailer.is_empty() {
            return Some((content, at));
        }
    }
}
