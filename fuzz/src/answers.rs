//! What comes back from an upstream that got a secret: no form of it passes, whatever stands around it and however it is cut.

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll, Waker};

use freeboard_proxy::credential::Scrubber;
use freeboard_proxy::error::Stop;
use freeboard_proxy::request::{Fields, Length};
use freeboard_proxy::respond::{Guarded, ResponseHead, Sink};
use freeboard_proxy::upstream::frames::FrameScrubber;

const SECRET: &str = "s3cr3t/token+01=\"&~x";

static SCRUBBER: LazyLock<Arc<Scrubber>> = LazyLock::new(|| Arc::new(Scrubber::new(&[SECRET.as_bytes()])));

/// Spellings of the secret that must never pass. Bytes from 0xe0 on stand for one of them in an input.
static FORMS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let each = |spell: &dyn Fn(u8) -> String| SECRET.bytes().map(spell).collect::<String>();
    let plain = |byte: u8| char::from(byte).to_string();
    let mut forms = vec![
        SECRET.to_owned(),
        SECRET.to_uppercase(),
        each(&|byte| format!("{byte:02x}")),
        each(&|byte| format!("{byte:02X}")),
        each(&|byte| format!("%{byte:02X}")),
        each(&|byte| format!("%{byte:02x}")),
        each(&|byte| if byte == b'"' { "\\\"".to_owned() } else { plain(byte) }),
        each(&|byte| if byte == b'&' { "\\u0026".to_owned() } else { plain(byte) }),
        each(&|byte| match byte {
            b'"' | b'/' => format!("\\{}", char::from(byte)),
            _ => plain(byte),
        }),
        each(&|byte| if byte.is_ascii_alphanumeric() { plain(byte) } else { format!("\\u{byte:04x}") }),
        each(&|byte| if is_unreserved(byte) { plain(byte) } else { format!("%{byte:02X}") }),
        each(&|byte| if is_unreserved(byte) { plain(byte) } else { format!("%{byte:02x}") }),
    ];
    for letters in ["+/", "-_"] {
        forms.extend((0..3).map(|before| base64_inside(before, letters)));
    }
    forms.into_iter().map(String::into_bytes).collect()
});

/// RFC 3986 2.3.
fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)
}

/// The part of the secret's base64 that does not depend on what stands around it, with this many bytes in front.
fn base64_inside(before: usize, letters: &str) -> String {
    let around =
        |filler: u8| base64(&[&vec![filler; before], SECRET.as_bytes(), &[filler; 3]].concat(), letters);
    let (one, other) = (around(0), around(0xff));
    one.chars().zip(other.chars()).filter(|(one, other)| one == other).map(|(one, _)| one).collect()
}

fn base64(bytes: &[u8], letters: &str) -> String {
    let letters: Vec<char> = ('A'..='Z').chain('a'..='z').chain('0'..='9').chain(letters.chars()).collect();
    let bits: Vec<bool> =
        bytes.iter().flat_map(|byte| (0..8).rev().map(move |at| byte >> at & 1 == 1)).collect();
    let six = |bits: &[bool]| (0..6).fold(0, |six, at| six * 2 + usize::from(bits.get(at) == Some(&true)));
    bits.chunks(6).filter_map(|bits| letters.get(six(bits))).collect()
}

/// More says nothing new, and the plain search for forms would take long.
const EXPANDED_MAX: usize = 4096;

/// An input with the secret in it: a byte from 0xe0 on is one of its forms.
fn expand(data: &[u8]) -> Vec<u8> {
    data.iter()
        .flat_map(|byte| match byte.checked_sub(0xe0) {
            Some(form) => FORMS.get(usize::from(form)).cloned().unwrap_or_default(),
            None => vec![*byte],
        })
        .take(EXPANDED_MAX)
        .collect()
}

fn holds_a_form(bytes: &[u8]) -> bool {
    FORMS.iter().any(|form| bytes.windows(form.len()).any(|window| window == form.as_slice()))
}

/// Bytes that belong to a form.
fn of_a_form(bytes: &[u8]) -> Vec<bool> {
    let mut covered = vec![false; bytes.len()];
    let lower = SECRET.to_lowercase();
    for form in FORMS.iter().map(Vec::as_slice).chain([lower.as_bytes()]) {
        for (at, _) in bytes.windows(form.len()).enumerate().filter(|(_, window)| *window == form) {
            covered.iter_mut().skip(at).take(form.len()).for_each(|place| *place = true);
        }
    }
    covered
}

/// An answer: its kind, the size of its pieces, the length of a field, then its field and its body.
pub(crate) fn scrub(data: &[u8]) {
    let [kind, size, field, rest @ ..] = data else { return };
    let (field, body) = rest.split_at(usize::from(*field).min(rest.len()));
    let content_type: &[u8] = match kind % 3 {
        0 => b"text/event-stream",
        1 => b"text/plain",
        _ => b"application/json",
    };
    let mut fields = Fields::default();
    fields.push("content-type", content_type);
    fields.push("x-debug", &expand(field));
    let head = ResponseHead {
        status: 200,
        fields: fields.clone(),
        length: Length::Unknown,
        declared: None,
        close: false,
        websocket_accept: None,
    };
    let body = expand(body);
    let mut guest = Guest::default();
    let mut guarded = Guarded::new(&mut guest, Some(Arc::clone(&SCRUBBER)));
    ready(guarded.begin(&head, &[], false));
    for piece in body.chunks(usize::from(*size).max(1)) {
        ready(guarded.data(piece));
    }
    ready(guarded.end(Some(&fields)));
    assert_eq!(guest.body.len(), body.len());
    assert!(!holds_a_form(&guest.body), "{}", guest.body.escape_ascii());
    for fields in &guest.fields {
        assert!(fields.iter().all(|(_, value)| !holds_a_form(value)), "{fields:?}");
    }
    if content_type != b"application/json" {
        only_forms_are_masked(&body, &guest.body);
    }
}

fn only_forms_are_masked(body: &[u8], sent: &[u8]) {
    for ((before, after), of_form) in body.iter().zip(sent).zip(of_a_form(body)) {
        assert!(before == after || (*after == b'*' && of_form), "{}", sent.escape_ascii());
    }
}

/// What a guest would get.
#[derive(Debug, Default)]
struct Guest {
    fields: Vec<Fields>,
    body: Vec<u8>,
}

impl Sink for Guest {
    async fn go_on(&mut self) -> Result<(), Stop> {
        Ok(())
    }

    async fn begin(&mut self, head: &ResponseHead, first: &[u8], _: bool) -> Result<(), Stop> {
        self.fields.push(head.fields.clone());
        self.body.extend_from_slice(first);
        Ok(())
    }

    async fn data(&mut self, bytes: &[u8]) -> Result<(), Stop> {
        self.body.extend_from_slice(bytes);
        Ok(())
    }

    async fn end(&mut self, trailers: Option<&Fields>) -> Result<(), Stop> {
        self.fields.extend(trailers.cloned());
        Ok(())
    }

    fn has_begun(&self) -> bool {
        !self.fields.is_empty()
    }
}

/// The guest of these targets never waits.
fn ready(future: impl Future<Output = Result<(), Stop>>) {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Ok(())) => {}
        other => panic!("{other:?}"),
    }
}

/// Frames of a websocket. The first byte says in which pieces they come. No payload holds the secret, and nothing else changes.
pub(crate) fn websocket(data: &[u8]) {
    let Some((size, rest)) = data.split_first() else { return };
    let bytes = expand(rest);
    let follow = |size: usize| {
        let mut frames = FrameScrubber::new(&SCRUBBER);
        let (mut kept, mut sent) = (Vec::new(), Vec::new());
        for piece in bytes.chunks(size) {
            kept.extend_from_slice(piece);
            let ready = frames.mask(&mut kept);
            sent.extend(kept.drain(..ready));
        }
        // What is held back is the beginning of a form at the end of what came.
        assert!(FORMS.iter().any(|form| form.len() >= kept.len()) || SECRET.len() >= kept.len());
        sent.extend(kept);
        (sent, frames.found)
    };
    let (sent, found) = follow(usize::from(*size).max(1));
    assert_eq!(sent.len(), bytes.len());
    only_forms_are_masked(&bytes, &sent);
    assert!(found || sent == bytes);
    let mut rest = sent.as_slice();
    while let Some((payload, after)) = frame(rest) {
        assert!(!holds_a_form(payload), "{}", payload.escape_ascii());
        rest = after;
    }
}

/// The payload of a whole frame in front, and what follows it (RFC 6455 5.2).
fn frame(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (head, mut rest) = bytes.split_at_checked(2)?;
    let length = head.get(1)? & 0x7f;
    let extended = match length {
        126 => 2,
        127 => 8,
        _ => 0,
    };
    let (more, after) = rest.split_at_checked(extended)?;
    rest = after;
    let length = if extended == 0 {
        u64::from(length)
    } else {
        more.iter().fold(0, |length, byte| length << 8 | u64::from(*byte))
    };
    let mask = if head.get(1)? & 0x80 == 0 { 0 } else { 4 };
    let (_, rest) = rest.split_at_checked(mask)?;
    rest.split_at_checked(usize::try_from(length).ok()?)
}
