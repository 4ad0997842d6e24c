//! The table from reason to words. What a guest reads is short, the same for everybody, and tells neither paths nor
//! other rules nor names of secrets (STYLE 25).

use freeboard_policy::Reason;
use serde::Serialize;

use super::ResponseHead;
use crate::error::Stop;
use crate::record::RequestId;
use crate::request::{Fields, Length};

/// A whole answer.
#[derive(Debug)]
pub struct Refused {
    pub head: ResponseHead,
    pub body: Vec<u8>,
}

#[derive(Serialize)]
struct Document<'a> {
    error: &'a str,
    request_id: String,
    message: &'a str,
    hint: &'a str,
}

/// The answer for `stop`.
pub fn refused(stop: &Stop, id: RequestId, close: bool) -> Refused {
    let (message, hint) = words(stop.reason);
    let document = Document { error: stop.reason.code(), request_id: id.to_string(), message, hint };
    let mut body = serde_json::to_vec(&document).unwrap_or_default();
    body.push(b'\n');
    let mut fields = Fields::default();
    fields.push("content-type", b"application/json");
    fields.push("cache-control", b"no-store");
    fields.push("x-freeboard-reason", stop.reason.code().as_bytes());
    fields.push("x-freeboard-request-id", document.request_id.as_bytes());
    match stop.reason {
        Reason::ProxyAuthRequired => fields.push("proxy-authenticate", b"Basic realm=\"freeboard\""),
        Reason::BudgetExhausted | Reason::RunLimit | Reason::Shed => {
            let seconds = stop.retry_after.unwrap_or(60).to_string();
            fields.push("retry-after", seconds.as_bytes());
        }
        _ => {}
    }
    let status = match stop.reason.status() {
        // 499 is nobody's to read; should it ever be sent, it is a broken request.
        499 => 400,
        status => status,
    };
    let length = Length::Sized(body.len() as u64);
    Refused {
        head: ResponseHead { status, fields, length, declared: None, close, websocket_accept: None },
        body,
    }
}

const POLICY_HINT: &str =
    "This is policy; do not retry. Ask the owner of the grant for a rule if you need it.";
const REQUEST_HINT: &str = "Send a well-formed request; do not retry it unchanged.";
const SMALLER_HINT: &str = "Send less at once; do not retry it unchanged.";
const PLAIN_HINT: &str = "Send the body without Content-Encoding.";
const RETRY_HINT: &str = "Try again later.";
const OPERATOR_HINT: &str = "Tell the operator the request id.";

/// What a guest reads, and what it should do.
const fn words(reason: Reason) -> (&'static str, &'static str) {
    match reason {
        Reason::HostNotGranted => ("This run has no grant for this host.", POLICY_HINT),
        Reason::NoRule => ("No rule of this run's grants allows this request.", POLICY_HINT),
        Reason::DeniedByRule => ("A rule forbids this request.", POLICY_HINT),
        Reason::MethodNotGranted => ("The path is granted, this method is not.", POLICY_HINT),
        Reason::QueryNotGranted => ("The path is granted, this query is not.", POLICY_HINT),
        Reason::HeaderNotGranted => ("The route is granted, these header fields are not.", POLICY_HINT),
        Reason::ContentTypeNotGranted => ("The route is granted, this content type is not.", POLICY_HINT),
        Reason::BodyNotGranted => ("The route is granted, what the body says is not.", POLICY_HINT),
        Reason::MessageTooLarge => ("A message is larger than the rule takes.", SMALLER_HINT),
        Reason::InspectionTooLarge => ("The body is too large for a rule that looks at it.", SMALLER_HINT),
        Reason::InspectionTruncated => ("The body ends too early for a rule that looks at it.", REQUEST_HINT),
        Reason::InspectionEncoding => ("The body's encoding cannot be looked through.", PLAIN_HINT),
        Reason::InspectionNestedEncoding => ("The body is encoded more than once.", PLAIN_HINT),
        Reason::InspectionDuplicateKey => ("The body says one thing twice.", REQUEST_HINT),
        Reason::InspectionMalformed => {
            ("The body is not what a rule that looks at it expects.", REQUEST_HINT)
        }
        Reason::InspectionTooComplex => {
            ("The body is nested too deeply or has too many values.", SMALLER_HINT)
        }
        Reason::ResponseTypeNotGranted => ("The host's answer has a type that is not granted.", POLICY_HINT),
        Reason::RawAddress => {
            ("Addresses cannot be dialled directly.", "Use the name of a granted host over https.")
        }
        Reason::PortNotGranted => ("This run has no grant for this port.", POLICY_HINT),
        Reason::AddressRefused => ("The host's address is not one that may be dialled.", OPERATOR_HINT),
        Reason::ConnectionTooLarge => ("The connection has carried what the grant allows.", POLICY_HINT),
        Reason::EncryptedHello => {
            ("TLS to this host needs a readable server name.", "Turn encrypted ClientHello off.")
        }
        Reason::ConnectionOnly => (
            "This run's grant for this host and port is for connections, not for HTTP requests.",
            "Connect to it, by its name or with CONNECT.",
        ),
        Reason::PlainHttp => ("Clear-text http is not forwarded.", "Use https."),
        Reason::GrantExpired => ("The grant's time is over.", POLICY_HINT),
        Reason::GrantRevoked => ("The grant was taken away.", POLICY_HINT),
        Reason::GrantNotYetValid => ("The grant's first day is still to come.", POLICY_HINT),
        Reason::GrantOutsideSchedule => ("The grant does not work at this time.", POLICY_HINT),
        Reason::ApprovalDenied => ("A person refused this request.", POLICY_HINT),
        Reason::ApprovalTimeout => {
            ("A person must approve this request, and nobody did in time.", POLICY_HINT)
        }
        Reason::ApprovalWithdrawn => {
            ("The policy changed while the request waited for a person.", RETRY_HINT)
        }
        Reason::FloorNotMet => ("The grant needs stronger isolation than this run has.", POLICY_HINT),
        Reason::GrantNotAvailable => ("The grant is not available to this run.", POLICY_HINT),
        Reason::MethodForbidden => ("This method is never forwarded.", REQUEST_HINT),
        Reason::UpgradeRefused => ("Switching to this protocol is not allowed.", POLICY_HINT),
        Reason::NameMismatch => ("The connection and the request name different hosts.", REQUEST_HINT),
        Reason::PlaceholderAstray => (
            "The request carries a key that is meant for another API.",
            "Send it to its own API only; do not retry.",
        ),
        Reason::Malformed => ("The request is malformed or has two readings.", REQUEST_HINT),
        Reason::TargetNotCanonical => (
            "The path or query has more than one reading.",
            "Send it without dot segments, `//`, `;` or `\\`.",
        ),
        Reason::ExpectationFailed => ("Only `100-continue` can be expected.", REQUEST_HINT),
        Reason::HeadTooLarge => ("The request head is too large.", REQUEST_HINT),
        Reason::BodyTooLarge => ("The request body is larger than the grant allows.", POLICY_HINT),
        Reason::ClientTimeout => ("The request took too long to arrive.", RETRY_HINT),
        Reason::ClientClosed => ("The connection was closed early.", RETRY_HINT),
        Reason::TlsRefused => ("TLS 1.2 or newer is needed.", REQUEST_HINT),
        Reason::LeafRejected => ("The certificate was not accepted.", REQUEST_HINT),
        Reason::NoServerName => ("TLS needs a server name.", REQUEST_HINT),
        Reason::ProxyAuthRequired => {
            ("The proxy needs this run's credential.", "Send Proxy-Authorization with the run's token.")
        }
        Reason::BudgetExhausted => ("The grant's budget for this run is used up.", POLICY_HINT),
        Reason::RunLimit => ("This run has too many connections.", RETRY_HINT),
        Reason::Shed => ("The API is overloaded; the request was held back.", RETRY_HINT),
        Reason::CredentialUnavailable => ("The credential for this API is not available.", OPERATOR_HINT),
        Reason::IssuerUnavailable => ("The issuer of this API's credential does not answer.", RETRY_HINT),
        Reason::AuditUnavailable => ("Nothing is forwarded while the audit log is down.", OPERATOR_HINT),
        Reason::PolicyUnavailable => ("No policy is loaded.", OPERATOR_HINT),
        Reason::RunEnded => ("The run has ended.", "Start a new run."),
        Reason::ShuttingDown => ("The broker is shutting down.", RETRY_HINT),
        Reason::Internal => ("The broker failed.", OPERATOR_HINT),
        Reason::UpstreamUnresolved => ("The host's name does not resolve.", RETRY_HINT),
        Reason::UpstreamUnreachable => ("The host could not be reached.", RETRY_HINT),
        Reason::UpstreamProxyUnreachable => ("The way to the host is interrupted.", RETRY_HINT),
        Reason::UpstreamProxyAuth => ("The way to the host is not open to the broker.", OPERATOR_HINT),
        Reason::UpstreamProxyRefused => ("A proxy on the way to the host refused.", OPERATOR_HINT),
        Reason::UpstreamUntrusted => {
            ("The host's certificate is not trusted; nothing was sent.", OPERATOR_HINT)
        }
        Reason::UpstreamMalformed => ("The host's answer is malformed.", OPERATOR_HINT),
        Reason::UpstreamTimeout => ("The host took too long.", RETRY_HINT),
        Reason::ResponseUninspectable => ("The host's answer cannot be inspected.", OPERATOR_HINT),
        Reason::ResponseTooLarge => ("The host's answer is larger than the grant allows.", POLICY_HINT),
        Reason::DnsRefused => ("This run has no grant for this name.", POLICY_HINT),
        Reason::UdpRefused => ("UDP is not forwarded.", POLICY_HINT),
        Reason::InsufficientIsolation => ("The isolation asked for is not available.", OPERATOR_HINT),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h53_every_reason_has_a_status_words_and_a_hint() {
        for reason in Reason::ALL {
            let answer = refused(&Stop::new(*reason, "a detail that stays inside"), RequestId(7), false);
            let text = String::from_utf8(answer.body).unwrap();
            let document: serde_json::Value = serde_json::from_str(&text).unwrap();
            assert_eq!(document["error"], reason.code());
            assert_eq!(document["request_id"], "00000000000000000000000000000007");
            assert!(!document["message"].as_str().unwrap().is_empty());
            assert!(!document["hint"].as_str().unwrap().is_empty());
            assert!(!text.contains("stays inside"));
            assert!((400..600).contains(&answer.head.status));
        }
    }
}
