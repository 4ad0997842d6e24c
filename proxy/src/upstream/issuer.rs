//! Questions to the issuers of tokens, over the same checked addresses and verified TLS as every upstream.
//!
//! In: an issuer and one request. Out: its whole answer, bounded in size. One connection per question: issuers are asked
//! a few times an hour.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use freeboard_policy::{ApiView, Host, Reason};
use zeroize::Zeroizing;

use super::answer::{AnswerHead, date, retry_after};
use super::dial::{Dialler, Offer};
use super::send::{Connection, ReadHead};
use crate::credential::Secret;
use crate::credential::minted::{IssuerAnswer, IssuerRequest, Issuers};
use crate::error::Stop;
use crate::http1::body::BodyError;
use crate::http1::{Input, Patience, Stream, write};
use crate::limits::{
    CLIENT_WRITE_TIMEOUT, ISSUER_ANSWER_BYTES, MAX_INTERIM_RESPONSES, MINT_FAILURE_PAUSE_MAX, MINT_TIMEOUT,
};

impl Issuers for Dialler {
    fn ask<'a>(
        &'a self,
        issuer: &'a Arc<ApiView>,
        request: IssuerRequest,
    ) -> Pin<Box<dyn Future<Output = Result<IssuerAnswer, Stop>> + Send + 'a>> {
        Box::pin(async move {
            let (host, port) = issuer.origins.first().ok_or(Reason::Internal)?;
            let connected = self.connect(issuer, host, *port, Offer::Http1Only).await?;
            let (stream, mut input) = (Stream::from(connected.stream), Input::default());
            let bytes = head_and_body(host, *port, &request);
            let gone = |error: std::io::Error| Stop::with(Reason::UpstreamUnreachable, error.to_string());
            stream.write_all(&bytes, CLIENT_WRITE_TIMEOUT).await.map_err(gone)?;
            let head = read_head(&stream, &mut input, request.method == "HEAD").await?;
            let body = read_body(&stream, &mut input, &head).await?;
            let answered = head.fields.first("date").and_then(date);
            Ok(IssuerAnswer {
                status: head.status,
                body,
                date: answered,
                retry_after: head
                    .fields
                    .first("retry-after")
                    .and_then(|value| retry_after(value, answered.unwrap_or_default()))
                    .map(|pause| pause.min(MINT_FAILURE_PAUSE_MAX)),
            })
        })
    }
}

/// Head and body in one allocation that is zeroed.
fn head_and_body(host: &Host, port: u16, request: &IssuerRequest) -> Zeroizing<Vec<u8>> {
    let body = request.body.as_ref().map(Secret::expose);
    let fields: usize =
        request.fields.iter().map(|(name, value)| name.len() + value.expose().len() + 4).sum();
    let mut bytes = Zeroizing::new(Vec::with_capacity(
        request.path.len() + fields + body.map_or(0, <[u8]>::len) + host.as_str().len() + 512,
    ));
    let out = &mut *bytes;
    out.extend_from_slice(request.method.as_bytes());
    out.push(b' ');
    out.extend_from_slice(request.path.as_bytes());
    out.extend_from_slice(b" HTTP/1.1\r\nHost: ");
    out.extend_from_slice(host.as_str().as_bytes());
    if port != 443 {
        out.push(b':');
        write::number(out, u64::from(port));
    }
    out.extend_from_slice(b"\r\nAccept: application/json\r\nUser-Agent: freeboard\r\nConnection: close\r\n");
    for (name, value) in &request.fields {
        write::field(out, name, value.expose());
    }
    if let Some(body) = body {
        write::number_field(out, "Content-Length", body.len() as u64);
    }
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(body.unwrap_or_default());
    bytes
}

async fn read_head(stream: &Stream, input: &mut Input, to_head: bool) -> Result<AnswerHead, Stop> {
    for _ in 0..MAX_INTERIM_RESPONSES {
        match Connection::read_head(stream, input, to_head, Patience::For(MINT_TIMEOUT)).await? {
            ReadHead::ClosedSilently => {
                return Err(Stop::new(Reason::UpstreamUnreachable, "closed without an answer"));
            }
            ReadHead::Head(head) if head.status == 101 => break,
            ReadHead::Head(head) if head.status < 200 => {}
            ReadHead::Head(head) => return Ok(head),
        }
    }
    Err(Stop::new(Reason::UpstreamMalformed, "interim responses and no final one"))
}

async fn read_body(stream: &Stream, input: &mut Input, head: &AnswerHead) -> Result<Secret, Stop> {
    let mut reader = head.framing.reader();
    let mut body = Zeroizing::new(Vec::with_capacity(ISSUER_ANSWER_BYTES));
    loop {
        match reader.next(stream, input, MINT_TIMEOUT).await {
            Ok(Some(piece)) if body.len() + piece.len() <= ISSUER_ANSWER_BYTES => {
                body.extend_from_slice(piece);
            }
            Ok(Some(_)) => {
                return Err(Stop::new(Reason::ResponseTooLarge, "the issuer's answer is too large"));
            }
            Ok(None) => return Ok(Secret::new(std::mem::take(&mut *body))),
            Err(BodyError::Malformed(what)) => return Err(Stop::new(Reason::UpstreamMalformed, what)),
            Err(BodyError::TimedOut) => return Err(Stop::new(Reason::UpstreamTimeout, "the answer stalled")),
            Err(BodyError::Closed | BodyError::Failed(_)) => {
                return Err(Stop::new(Reason::UpstreamUnreachable, "closed inside the answer"));
            }
        }
    }
}
