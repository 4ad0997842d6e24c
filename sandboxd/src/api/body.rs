//! Request bodies: bounded in size, time and decompressed size.

use std::io::Read;

use bytes::{Bytes, BytesMut};
use flate2::read::MultiGzDecoder;
use freeboard_wire::limits::MAX_REQUEST_BYTES;
use freeboard_wire::{Code, ConnectError, NotDispatchedReason};
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, EXPECT};
use http_body_util::BodyExt;
use hyper::body::Body;

use crate::limits::{BODY_TIMEOUT, DRAIN_TIMEOUT};

/// Why there is no body to decode. Nothing ran.
#[derive(Debug, thiserror::Error)]
pub(super) enum BodyError {
    #[error("the request is larger than {MAX_REQUEST_BYTES} bytes")]
    TooLarge,
    #[error("the request body did not arrive in time")]
    Slow,
    #[error("the request body broke off: {0}")]
    Broken(String),
    #[error("the request body is not gzip as it says")]
    Gzip,
}

/// What the headers say of the body, before any of it is read.
pub(super) fn check_head(headers: &HeaderMap) -> Result<(), ConnectError> {
    let mut encodings = headers.get_all(CONTENT_ENCODING).iter();
    let known = match (encodings.next(), encodings.next()) {
        (None, _) => true,
        (Some(value), None) => value == "gzip" || value == "identity",
        (Some(_), Some(_)) => false,
    };
    if !known {
        let text = "the content encoding is neither gzip nor identity";
        return Err(ConnectError::refused(Code::Unimplemented, NotDispatchedReason::Unsupported, text));
    }
    let declared = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if declared.is_some_and(|length| length > MAX_REQUEST_BYTES as u64) {
        let text = BodyError::TooLarge.to_string();
        return Err(ConnectError::refused(Code::ResourceExhausted, NotDispatchedReason::Request, text));
    }
    Ok(())
}

/// Reads the whole body, decompressed. Dropped midway, the rest is never read.
pub(super) async fn read<B>(headers: &HeaderMap, body: &mut B) -> Result<Bytes, BodyError>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    let raw = tokio::time::timeout(BODY_TIMEOUT, collect(body)).await.map_err(|_| BodyError::Slow)??;
    if headers.get(CONTENT_ENCODING).is_some_and(|value| value == "gzip") { unzip(&raw) } else { Ok(raw) }
}

async fn collect<B>(body: &mut B) -> Result<Bytes, BodyError>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| BodyError::Broken(error.to_string()))?;
        let Ok(data) = frame.into_data() else { continue };
        if whole.len() + data.len() > MAX_REQUEST_BYTES {
            return Err(BodyError::TooLarge);
        }
        whole.extend_from_slice(&data);
    }
    Ok(whole.freeze())
}

/// SECURITY: a few kilobytes of gzip become gigabytes; reading stops at the limit. Guarded by
/// a_gzip_bomb_is_refused_at_the_limit.
fn unzip(raw: &[u8]) -> Result<Bytes, BodyError> {
    let mut plain = Vec::new();
    let limit = MAX_REQUEST_BYTES as u64 + 1;
    MultiGzDecoder::new(raw).take(limit).read_to_end(&mut plain).map_err(|_| BodyError::Gzip)?;
    if plain.len() > MAX_REQUEST_BYTES { Err(BodyError::TooLarge) } else { Ok(plain.into()) }
}

/// Takes what a refused client is still sending off the wire for a moment: closing with unread bytes would reset the
/// connection, and the answer could be lost with it.
pub(super) async fn drain<B>(headers: &HeaderMap, body: &mut B)
where
    B: Body<Data = Bytes> + Unpin,
{
    // Reading would send `100 Continue` and invite the body that nobody wants.
    if headers.contains_key(EXPECT) {
        return;
    }
    let rest = async { while let Some(Ok(_)) = body.frame().await {} };
    let _ = tokio::time::timeout(DRAIN_TIMEOUT, rest).await;
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn a_gzip_bomb_is_refused_at_the_limit() {
        let bomb = gzip(&vec![0; 64 << 20]);
        assert!(bomb.len() < 1 << 20);
        assert!(matches!(unzip(&bomb), Err(BodyError::TooLarge)));
        assert!(matches!(unzip(b"not gzip"), Err(BodyError::Gzip)));
        assert_eq!(unzip(&gzip(b"{}")).unwrap(), "{}");
        assert_eq!(unzip(&gzip(&vec![b' '; MAX_REQUEST_BYTES])).unwrap().len(), MAX_REQUEST_BYTES);
    }

    #[test]
    fn a_declared_length_over_the_cap_is_refused_before_reading() {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_LENGTH, http::HeaderValue::from_static("8388608"));
        assert!(check_head(&headers).is_ok());
        headers.insert(CONTENT_LENGTH, http::HeaderValue::from_static("8388609"));
        let error = check_head(&headers).unwrap_err();
        assert_eq!((error.code, error.mark()), (Code::ResourceExhausted, Some(NotDispatchedReason::Request)));
    }

    #[test]
    fn an_unknown_encoding_is_refused() {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_ENCODING, http::HeaderValue::from_static("br"));
        assert_eq!(check_head(&headers).unwrap_err().code, Code::Unimplemented);
    }
}
