//! The smallest client of plimsoll.v1 that the demo needs: one JSON exchange per connection. It checks what a client has
//! to check before it believes an answer: the echo and the record.

use std::time::Duration;

use freeboard_wire::digest::{hex, record_digest, request_digest, result_digest};
use freeboard_wire::error::{ReadError, read_error};
use freeboard_wire::json::{JsonMessage, from_json, to_json};
use freeboard_wire::limits::MAX_RESPONSE_BYTES;
use freeboard_wire::{DescribeRequest, DescribeResponse, RunRequest, RunResponse, SERVICE};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::Failure;

/// No exchange of the demo takes longer.
const TIMEOUT: Duration = Duration::from_secs(60);

/// One daemon and one token.
#[derive(Debug, Clone, Copy)]
pub(super) struct Client<'a> {
    pub(super) address: &'a str,
    pub(super) token: &'a str,
}

/// An answer, or a refusal as the daemon gave it.
pub(super) type Answer<T> = Result<T, ReadError>;

impl Client<'_> {
    pub(super) async fn describe(&self) -> Result<Answer<DescribeResponse>, Failure> {
        self.call("Describe", &DescribeRequest {}).await
    }

    /// One run; its record is recomputed.
    pub(super) async fn run(&self, request: &RunRequest) -> Result<Answer<RunResponse>, Failure> {
        let answer = self.call::<_, RunResponse>("Run", request).await?;
        if let Ok(answer) = &answer {
            let record = answer.record.as_ref().ok_or("an answer without a record")?;
            let good = record.request_sha256 == request_digest(request)
                && record.result_sha256 == result_digest(answer)
                && Some(&record.record_sha256) == record_digest(record).as_ref()
                && record.isolation == answer.isolation;
            if !good {
                return Err("the record does not match the answer".into());
            }
        }
        Ok(answer)
    }

    async fn call<Q: JsonMessage, A: JsonMessage>(
        &self,
        procedure: &str,
        request: &Q,
    ) -> Result<Answer<A>, Failure> {
        tokio::time::timeout(TIMEOUT, self.exchange(procedure, &to_json(request))).await?
    }

    async fn exchange<A: JsonMessage>(&self, procedure: &str, body: &[u8]) -> Result<Answer<A>, Failure> {
        let mut id = [0_u8; 16];
        getrandom::fill(&mut id).map_err(|_| "no random bytes from the operating system")?;
        let id = hex(&id);
        let head = format!(
            "POST /{SERVICE}/{procedure} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Connect-Protocol-Version: 1\r\nPlimsoll-Request-Id: {id}\r\nAuthorization: Bearer {}\r\nContent-Length: {}\r\n\r\n",
            self.address,
            self.token,
            body.len()
        );
        let mut stream = TcpStream::connect(self.address).await?;
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(body).await?;
        let mut whole = Vec::new();
        stream.take(MAX_RESPONSE_BYTES as u64).read_to_end(&mut whole).await?;
        let (head, body) = split(&whole).ok_or("the answer has no head")?;
        let head = head.to_ascii_lowercase();
        if head.matches(&format!("\r\nplimsoll-request-id: {id}")).count() != 1 {
            return Err("the answer is not bound to the request".into());
        }
        if head.starts_with("http/1.1 200 ") {
            return Ok(Ok(from_json(body)?));
        }
        Ok(Err(read_error(body).ok_or("an error without a code")?))
    }
}

fn split(whole: &[u8]) -> Option<(&str, &[u8])> {
    let end = whole.windows(4).position(|window| window == b"\r\n\r\n")?;
    Some((std::str::from_utf8(whole.get(..end)?).ok()?, whole.get(end + 4..)?))
}
