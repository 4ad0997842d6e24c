//! A sink that takes our secrets out of what a guest gets: head, body and trailers, whatever the protocol.
//!
//! In: the response of an upstream that got a credential. Out: the same response with each known form of the secret, and
//! tokens that the upstream handed out, masked by `*` of the same length. What cannot be read is refused before its first
//! byte went to the guest (ATTACKS C01-C07, C22).

use std::sync::Arc;

use freeboard_policy::Reason;

use super::tokens::TokenMask;
use super::{ResponseHead, Sink};
use crate::credential::Scrubber;
use crate::error::Stop;
use crate::record::RequestId;
use crate::request::{Fields, Length};

/// Wraps the sink of one exchange. Without a credential everything passes as it is.
#[derive(Debug)]
pub struct Guarded<'a, S> {
    inner: &'a mut S,
    inspector: Option<Inspector>,
}

#[derive(Debug)]
struct Inspector {
    scrubber: Arc<Scrubber>,
    tokens: Option<TokenMask>,
    messages: Option<GrpcMessages>,
    /// The end of the last piece, which could be the beginning of a secret.
    held: Vec<u8>,
    clean: Vec<u8>,
    found: Found,
}

/// What was masked, for the audit record.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Found {
    pub secret: bool,
    pub token: bool,
}

impl<'a, S: Sink> Guarded<'a, S> {
    pub fn new(inner: &'a mut S, scrubber: Option<Arc<Scrubber>>) -> Self {
        let inspector = scrubber.map(|scrubber| Inspector {
            scrubber,
            tokens: None,
            messages: None,
            held: Vec::new(),
            clean: Vec::new(),
            found: Found::default(),
        });
        Self { inner, inspector }
    }

    /// What was masked so far.
    pub fn found(&self) -> Found {
        self.inspector.as_ref().map(|inspector| inspector.found).unwrap_or_default()
    }
}

impl<S: Sink> Sink for Guarded<'_, S> {
    async fn go_on(&mut self) -> Result<(), Stop> {
        self.inner.go_on().await
    }

    async fn begin(&mut self, head: &ResponseHead, first: &[u8], last: bool) -> Result<(), Stop> {
        let Some(inspector) = &mut self.inspector else { return self.inner.begin(head, first, last).await };
        check_readable(head)?;
        let kind = head.fields.first("content-type");
        inspector.tokens = TokenMask::for_type(kind);
        inspector.messages =
            kind.is_some_and(|kind| kind.starts_with(b"application/grpc")).then(Default::default);
        let masked = inspector.head(head);
        let first = inspector.piece(first, last);
        self.inner.begin(masked.as_ref().unwrap_or(head), first, last).await
    }

    async fn data(&mut self, bytes: &[u8]) -> Result<(), Stop> {
        let Some(inspector) = &mut self.inspector else { return self.inner.data(bytes).await };
        match inspector.piece(bytes, false) {
            [] => Ok(()),
            piece => self.inner.data(piece).await,
        }
    }

    async fn end(&mut self, trailers: Option<&Fields>) -> Result<(), Stop> {
        let Some(inspector) = &mut self.inspector else { return self.inner.end(trailers).await };
        let rest = inspector.piece(&[], true);
        if !rest.is_empty() {
            self.inner.data(rest).await?;
        }
        let masked = trailers.and_then(|trailers| inspector.fields(trailers));
        self.inner.end(masked.as_ref().or(trailers)).await
    }

    fn has_begun(&self) -> bool {
        self.inner.has_begun()
    }

    fn left(&self) -> Option<Arc<std::sync::atomic::AtomicBool>> {
        self.inner.left()
    }

    async fn refuse(&mut self, stop: &Stop, id: RequestId, close: bool) -> Result<u16, Stop> {
        self.inner.refuse(stop, id, close).await
    }
}

/// SECURITY: a body in a coding that we did not ask for cannot be searched; it does not pass as "scrubbed" (C03, E11).
fn check_readable(head: &ResponseHead) -> Result<(), Stop> {
    if head.length == Length::None {
        return Ok(());
    }
    for name in ["content-encoding", "grpc-encoding"] {
        for value in head.fields.all(name) {
            let plain = value.split(|byte| *byte == b',').all(|coding| {
                let coding = coding.trim_ascii();
                coding.is_empty() || coding.eq_ignore_ascii_case(b"identity")
            });
            if !plain {
                let value = String::from_utf8_lossy(value);
                return Err(Stop::with(Reason::ResponseUninspectable, format!("{name}: {value}")));
            }
        }
    }
    Ok(())
}

impl Inspector {
    /// The head with its fields masked; `None` where there is nothing to mask.
    fn head(&mut self, head: &ResponseHead) -> Option<ResponseHead> {
        let fields = self.fields(&head.fields)?;
        Some(ResponseHead {
            status: head.status,
            fields,
            length: head.length,
            declared: head.declared,
            close: head.close,
            websocket_accept: head.websocket_accept.clone(),
        })
    }

    fn fields(&mut self, fields: &Fields) -> Option<Fields> {
        if !fields.texts().iter().any(|text| self.scrubber.contains(text)) {
            return None;
        }
        self.found.secret = true;
        let mut masked = fields.clone();
        // `*` is fit for names and values alike.
        masked.change_texts(|text| {
            self.scrubber.mask(text);
        });
        Some(masked)
    }

    /// The part of the body that may go out now.
    fn piece<'b>(&'b mut self, bytes: &'b [u8], last: bool) -> &'b [u8] {
        // A message that is complete goes out: the next one may come only in answer to it.
        let last = last || self.messages.as_mut().is_some_and(|messages| messages.end_with(bytes));
        let untouched = self.held.is_empty()
            && self.tokens.is_none()
            && !self.scrubber.contains(bytes)
            && (last || self.scrubber.open_end(bytes) == 0);
        if untouched {
            return bytes;
        }
        self.clean.clear();
        self.clean.append(&mut self.held);
        self.clean.extend_from_slice(bytes);
        let masked = self.scrubber.mask_piece(&mut self.clean);
        self.found.secret |= masked.found;
        if !last {
            self.held = self.clean.split_off(self.clean.len() - masked.keep_back);
        }
        if let Some(tokens) = &mut self.tokens {
            self.found.token |= tokens.mask(&mut self.clean);
        }
        &self.clean
    }
}

/// Where messages end: five bytes of flag and length in front of each (gRPC over HTTP/2).
#[derive(Debug, Default)]
struct GrpcMessages {
    prefix: [u8; 5],
    have: usize,
    left: usize,
}

impl GrpcMessages {
    /// Follows the next bytes; true when they end where a message ends.
    fn end_with(&mut self, mut bytes: &[u8]) -> bool {
        while let Some((first, rest)) = bytes.split_first() {
            if self.left > 0 {
                let skipped = self.left.min(bytes.len());
                self.left -= skipped;
                bytes = bytes.get(skipped..).unwrap_or_default();
                continue;
            }
            if let Some(place) = self.prefix.get_mut(self.have) {
                *place = *first;
            }
            self.have += 1;
            bytes = rest;
            if self.have == self.prefix.len() {
                let [_, a, b, c, d] = self.prefix;
                self.left = usize::try_from(u32::from_be_bytes([a, b, c, d])).unwrap_or(usize::MAX);
                self.have = 0;
            }
        }
        self.left == 0 && self.have == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Collected as Guest;

    const SECRET: &str = "s3cr3t-token-0123456789";

    fn scrubber() -> Arc<Scrubber> {
        Arc::new(Scrubber::new(&[SECRET.as_bytes()]))
    }

    fn head(fields: &[(&str, &str)], length: Length) -> ResponseHead {
        let mut list = Fields::default();
        for (name, value) in fields {
            list.push(name, value.as_bytes());
        }
        ResponseHead {
            status: 200,
            fields: list,
            length,
            declared: None,
            close: false,
            websocket_accept: None,
        }
    }

    /// C05, C36: head and trailers are searched like the body.
    #[tokio::test]
    async fn c05_masks_the_secret_in_head_and_trailers() {
        let mut guest = Guest::default();
        let mut guarded = Guarded::new(&mut guest, Some(scrubber()));
        let fields = [
            ("location", "https://pub.test/next?key=s3cr3t-token-0123456789&x=1"),
            ("x-debug", "authorization: Bearer s3cr3t-token-0123456789"),
            ("x-ordinary", "stays"),
        ];
        guarded.begin(&head(&fields, Length::Unknown), b"", false).await.unwrap();
        let mut trailers = Fields::default();
        trailers.push("x-trailer", SECRET.as_bytes());
        guarded.end(Some(&trailers)).await.unwrap();
        assert_eq!(guarded.found(), Found { secret: true, token: false });
        let (_, fields) = guest.head.unwrap();
        assert_eq!(
            fields.first("location"),
            Some(&b"https://pub.test/next?key=***********************&x=1"[..])
        );
        assert_eq!(fields.first("x-ordinary"), Some(&b"stays"[..]));
        assert_eq!(guest.trailers.unwrap().first("x-trailer"), Some(&b"***********************"[..]));
    }

    /// C01: an echo that comes in pieces of any size; the body keeps its length.
    #[tokio::test]
    async fn c01_masks_an_echo_across_pieces() {
        let body = format!("{{\"headers\":{{\"Authorization\":\"Bearer {SECRET}\"}}}}");
        for size in 1..body.len() {
            let mut guest = Guest::default();
            let mut guarded = Guarded::new(&mut guest, Some(scrubber()));
            guarded.begin(&head(&[], Length::Sized(body.len() as u64)), b"", false).await.unwrap();
            for piece in body.as_bytes().chunks(size) {
                guarded.data(piece).await.unwrap();
            }
            guarded.end(None).await.unwrap();
            assert!(guarded.found().secret);
            assert!(guest.ended);
            assert_eq!(guest.body(), body.replace(SECRET, &"*".repeat(SECRET.len())), "pieces of {size}");
        }
    }

    /// H22: an event goes out with the piece that it came in.
    #[tokio::test]
    async fn h22_does_not_hold_events_back() {
        let mut guest = Guest::default();
        let mut guarded = Guarded::new(&mut guest, Some(scrubber()));
        guarded
            .begin(&head(&[("content-type", "text/event-stream")], Length::Unknown), b"", false)
            .await
            .unwrap();
        guarded.data(b"data: 1\n\n").await.unwrap();
        guarded.data(b"data: 2\n\n").await.unwrap();
        assert_eq!(guest.pieces[1..], [b"data: 1\n\n".to_vec(), b"data: 2\n\n".to_vec()]);
    }

    /// C03: a coding that was not asked for is refused before anything was sent.
    #[tokio::test]
    async fn c03_refuses_what_it_cannot_read() {
        for (name, value, fine) in [
            ("content-encoding", "gzip", false),
            ("Content-Encoding", "identity, br", false),
            ("grpc-encoding", "gzip", false),
            ("content-encoding", "identity", true),
            ("content-type", "application/gzip", true),
        ] {
            let mut guest = Guest::default();
            let mut guarded = Guarded::new(&mut guest, Some(scrubber()));
            let answer = guarded.begin(&head(&[(name, value)], Length::Unknown), b"x", false).await;
            assert_eq!(answer.is_ok(), fine, "{name}: {value}");
            assert_eq!(guest.head.is_some(), fine);
            if let Err(stop) = answer {
                assert_eq!(stop.reason, Reason::ResponseUninspectable);
            }
        }
        // Without a credential nothing has to be read.
        let mut guest = Guest::default();
        let mut guarded = Guarded::new(&mut guest, None);
        let gzip = head(&[("content-encoding", "gzip")], Length::Unknown);
        assert!(guarded.begin(&gzip, SECRET.as_bytes(), true).await.is_ok());
        assert_eq!(guest.body(), SECRET);
    }

    /// H14: a message of a stream goes out whole, also when it ends in what could begin a secret.
    #[tokio::test]
    async fn h14_does_not_hold_grpc_messages_back() {
        let mut guest = Guest::default();
        let mut guarded = Guarded::new(&mut guest, Some(scrubber()));
        let kind = [("content-type", "application/grpc+proto")];
        guarded.begin(&head(&kind, Length::Unknown), b"", false).await.unwrap();
        guarded.data(b"\0\0\0\0\x03abs\0\0\0\0\x06").await.unwrap();
        guarded.data(b"abcs3c").await.unwrap();
        let echo = format!("\0\0\0\0\x17{SECRET}");
        guarded.data(&echo.as_bytes()[..20]).await.unwrap();
        guarded.data(&echo.as_bytes()[20..]).await.unwrap();
        assert_eq!(guest.pieces[1], b"\0\0\0\0\x03abs\0\0\0\0\x06");
        assert_eq!(guest.pieces[2], b"abcs3c");
        assert_eq!(guest.pieces[3..].concat(), format!("\0\0\0\0\x17{}", "*".repeat(23)).as_bytes());
    }

    /// C22: tokens that an upstream hands out stay with the broker.
    #[tokio::test]
    async fn c22_masks_tokens_in_json_answers() {
        let body = r#"{"access_token":"new-token","expires_in":3600,"note":"access_token"}"#;
        let mut guest = Guest::default();
        let mut guarded = Guarded::new(&mut guest, Some(scrubber()));
        let fields = [("content-type", "application/json; charset=utf-8")];
        guarded.begin(&head(&fields, Length::Sized(body.len() as u64)), body.as_bytes(), true).await.unwrap();
        assert_eq!(guarded.found(), Found { secret: false, token: true });
        let expected = r#"{"access_token":"*********","expires_in":3600,"note":"access_token"}"#;
        assert_eq!(guest.body(), expected);
    }
}
