//! How the body of a request is signed, and the body as it goes out.

use freeboard_policy::Reason;
use sha2::{Digest as _, Sha256};

use super::{Resigner, hex};
use crate::error::Stop;
use crate::limits::SIGNED_BODY_BYTES;
use crate::request::{Answered, Body, Fields, Length, RequestHead};

/// SHA-256 of nothing.
const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
const UNSIGNED: &str = "UNSIGNED-PAYLOAD";
/// Chunks with a checksum at the end and no signatures: what current SDKs send over TLS.
const UNSIGNED_TRAILER: &str = "STREAMING-UNSIGNED-PAYLOAD-TRAILER";
const SIGNED_CHUNKS: &str = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD";
const SIGNED_CHUNKS_TRAILER: &str = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER";

/// What stands for the body in the signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Payload {
    /// A word, or a hash that the guest worked out: the service checks it against the body.
    Said(String),
    /// The body has to be read whole before the head can be signed.
    ToHash,
}

impl Payload {
    pub(super) fn hash(&self) -> &str {
        match self {
            Self::Said(hash) => hash,
            Self::ToHash => EMPTY,
        }
    }

    pub(super) fn signs_chunks(&self) -> bool {
        matches!(self, Self::Said(word) if word == SIGNED_CHUNKS || word == SIGNED_CHUNKS_TRAILER)
    }
}

pub(super) fn of(head: &RequestHead, s3: bool) -> Result<Payload, Stop> {
    let mut said = head.fields.all("x-amz-content-sha256");
    let (first, second) = (said.next(), said.next());
    if second.is_some() {
        return Err(Stop::malformed("two x-amz-content-sha256 fields"));
    }
    let empty = matches!(head.length, Length::None | Length::Sized(0));
    let Some(first) = first else {
        return Ok(match (empty, s3) {
            (true, _) => Payload::Said(EMPTY.to_owned()),
            (false, true) => Payload::Said(UNSIGNED.to_owned()),
            (false, false) => Payload::ToHash,
        });
    };
    let word = std::str::from_utf8(first).map_err(|_| Stop::malformed("x-amz-content-sha256 is no text"))?;
    let is_hash = word.len() == 64 && word.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    match word {
        _ if is_hash => Ok(Payload::Said(word.to_owned())),
        UNSIGNED | UNSIGNED_TRAILER | SIGNED_CHUNKS | SIGNED_CHUNKS_TRAILER if s3 => {
            Ok(Payload::Said(word.to_owned()))
        }
        _ => Err(Stop::new(
            Reason::Malformed,
            "a kind of signed body that cannot be signed in the guest's place",
        )),
    }
}

/// The body of a signed request.
#[derive(Debug)]
pub enum SignedBody<'a, B> {
    /// As it comes.
    AsItIs(&'a mut B),
    /// Read whole, for its hash.
    Whole { bytes: Vec<u8>, given: bool },
    /// Each chunk signed anew.
    Chunks { inner: &'a mut B, resigner: Box<Resigner> },
}

impl<'a, B: Body> SignedBody<'a, B> {
    /// Reads all of the body and says what its hash is.
    ///
    /// # Errors
    /// It is larger than `SIGNED_BODY_BYTES`, or cannot be read.
    pub async fn read_whole(body: &mut B) -> Result<(Self, Payload), Stop> {
        let mut bytes = Vec::new();
        while let Some(piece) = body.next().await? {
            if bytes.len() + piece.len() > SIGNED_BODY_BYTES {
                let detail = format!("a body that has to be hashed has at most {SIGNED_BODY_BYTES} bytes");
                return Err(Stop::with(Reason::BodyTooLarge, detail));
            }
            bytes.extend_from_slice(piece);
        }
        let hash = Payload::Said(hex(&Sha256::digest(&bytes)));
        Ok((Self::Whole { bytes, given: false }, hash))
    }

    pub fn new(body: &'a mut B, resigner: Option<Resigner>) -> Self {
        match resigner {
            Some(resigner) => Self::Chunks { inner: body, resigner: Box::new(resigner) },
            None => Self::AsItIs(body),
        }
    }
}

impl<B: Body> Body for SignedBody<'_, B> {
    async fn next(&mut self) -> Result<Option<&[u8]>, Stop> {
        match self {
            Self::AsItIs(body) => body.next().await,
            Self::Whole { bytes, given } => {
                Ok(if std::mem::replace(given, true) || bytes.is_empty() { None } else { Some(bytes) })
            }
            Self::Chunks { inner, resigner } => loop {
                match inner.next().await? {
                    Some(piece) => {
                        resigner.feed(piece)?;
                        if resigner.has_output() {
                            return Ok(Some(resigner.output()));
                        }
                    }
                    None => return resigner.end().map(|()| None),
                }
            },
        }
    }

    fn whole(&mut self) -> Option<&[u8]> {
        match self {
            Self::AsItIs(body) => body.whole(),
            Self::Whole { bytes, given } => {
                *given = true;
                Some(bytes)
            }
            Self::Chunks { .. } => None,
        }
    }

    fn is_done(&self) -> bool {
        match self {
            Self::AsItIs(body) => body.is_done(),
            Self::Whole { given, .. } => *given,
            Self::Chunks { inner, .. } => inner.is_done(),
        }
    }

    fn trailers(&mut self) -> Option<Fields> {
        match self {
            Self::AsItIs(body) => body.trailers(),
            Self::Chunks { inner, .. } => inner.trailers(),
            Self::Whole { .. } => None,
        }
    }

    fn answered(&self) -> Option<&Answered> {
        match self {
            Self::AsItIs(body) | Self::Chunks { inner: body, .. } => body.answered(),
            Self::Whole { .. } => None,
        }
    }
}
