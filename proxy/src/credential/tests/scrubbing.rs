use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use proptest::prelude::*;

use crate::credential::{Masked, Scrubber};

const SECRET: &str = "sk-live_8f/Zq+71~Lw==\"x&y";

/// Sends `body` through the scrubber in pieces of the given sizes, as the path does.
fn stream(scrubber: &Scrubber, body: &[u8], sizes: &[usize]) -> Vec<u8> {
    let (mut sent, mut kept, mut rest) = (Vec::new(), Vec::new(), body);
    let mut sizes = sizes.iter().copied().cycle();
    while !rest.is_empty() {
        let (piece, tail) = rest.split_at(sizes.next().unwrap_or(1).clamp(1, rest.len()));
        rest = tail;
        kept.extend_from_slice(piece);
        let Masked { keep_back, .. } = scrubber.mask_piece(&mut kept);
        sent.extend(kept.drain(..kept.len() - keep_back));
    }
    scrubber.mask(&mut kept);
    sent.extend(kept);
    sent
}

fn forms() -> Vec<(&'static str, String)> {
    let percent: String = SECRET.bytes().fold(String::new(), |text, byte| text + &format!("%{byte:02X}"));
    let hex: String = SECRET.bytes().fold(String::new(), |text, byte| text + &format!("{byte:02x}"));
    let component = percent_encoding::percent_encode(SECRET.as_bytes(), crate::credential::scrub::UNRESERVED);
    let sign = |letter: char| match letter {
        'a'..='z' | 'A'..='Z' | '0'..='9' => letter.to_string(),
        _ => format!("\\u{:04x}", u32::from(letter)),
    };
    let signs: String = SECRET.chars().map(sign).collect();
    let mut forms = vec![
        ("plain", SECRET.to_owned()),
        ("json of Python", SECRET.replace('"', "\\\"")),
        ("json with escaped slash", SECRET.replace('/', "\\/").replace('"', "\\\"")),
        ("json of Go", SECRET.replace('&', "\\u0026")),
        ("json, every sign", signs),
        ("lower case", SECRET.to_lowercase()),
        ("upper case", SECRET.to_uppercase()),
        ("percent, every byte", percent.clone()),
        ("percent, every byte, lower", percent.to_lowercase()),
        ("percent", component.to_string()),
        ("hex", hex.clone()),
        ("hex, upper", hex.to_uppercase()),
    ];
    for prefix in ["", "a", "ab", "Bearer ", "user:"] {
        forms.push(("base64", STANDARD.encode(format!("{prefix}{SECRET}"))));
        forms.push(("base64url", URL_SAFE_NO_PAD.encode(format!("{prefix}{SECRET} and more"))));
    }
    forms
}

/// Positive control: the search that the tests below rely on does find each form where nothing was masked.
#[test]
fn the_search_finds_each_form_when_it_is_there() {
    let scrubber = Scrubber::new(&[SECRET.as_bytes()]);
    for (name, form) in forms() {
        assert!(scrubber.contains(format!("before {form} after").as_bytes()), "{name}");
    }
    assert!(!scrubber.contains(b"an ordinary text without any of it"));
}

/// C01, C07: every known form is masked, with the same length, however the body is cut into pieces.
#[test]
fn c07_masks_every_known_form_across_chunk_borders() {
    let scrubber = Scrubber::new(&[SECRET.as_bytes()]);
    for (name, form) in forms() {
        let body = format!("{{\"authorization\":\"{form}\",\"other\":1}}");
        for size in 1..=body.len() {
            let sent = stream(&scrubber, body.as_bytes(), &[size]);
            assert_eq!(sent.len(), body.len(), "{name}, pieces of {size}");
            assert!(!scrubber.contains(&sent), "{name}, pieces of {size}");
            let text = String::from_utf8(sent).unwrap();
            assert!(
                text.starts_with("{\"authorization\":\"") && text.ends_with("\"other\":1}"),
                "{name}: {text}"
            );
        }
    }
}

#[test]
fn leaves_other_bytes_alone_and_keeps_nothing_back_at_the_end_of_ordinary_text() {
    let scrubber = Scrubber::new(&[SECRET.as_bytes()]);
    let body = "data: {\"event\": 1}\n\n".repeat(50);
    assert_eq!(stream(&scrubber, body.as_bytes(), &[7, 3, 20]), body.as_bytes());
    // H22: an event that does not end in the beginning of a form goes out at once.
    let mut event = b"data: tick\n\n".to_vec();
    assert_eq!(scrubber.mask_piece(&mut event), Masked { found: false, keep_back: 0 });
    let mut beginning = b"value sk-li".to_vec();
    assert_eq!(scrubber.mask_piece(&mut beginning), Masked { found: false, keep_back: 5 });
}

#[test]
fn a_short_secret_is_masked_as_it_is_only() {
    let scrubber = Scrubber::new(&[b"abc"]);
    assert!(scrubber.contains(b"xabcx"));
    assert!(!scrubber.contains(b"ABC 616263"));
}

#[test]
fn nothing_to_scrub_masks_nothing() {
    let mut body = b"anything".to_vec();
    assert_eq!(Scrubber::nothing().mask_piece(&mut body), Masked { found: false, keep_back: 0 });
    assert_eq!(body, b"anything");
}

proptest! {
    /// Streaming is the same as masking the whole body at once, for any body, secret and cutting.
    #[test]
    fn streaming_equals_masking_at_once(
        secret in "[a-b]{8,12}",
        body in "[a-b]{0,200}",
        sizes in prop::collection::vec(1_usize..40, 1..8),
    ) {
        let scrubber = Scrubber::new(&[secret.as_bytes()]);
        let sent = stream(&scrubber, body.as_bytes(), &sizes);
        prop_assert_eq!(sent.len(), body.len());
        prop_assert!(!scrubber.contains(&sent));
        for (before, after) in body.bytes().zip(&sent) {
            prop_assert!(*after == before || *after == b'*');
        }
    }
}
