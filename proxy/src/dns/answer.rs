//! One question, one answer: pure, from bytes to bytes.
//!
//! In: a message as a guest sent it, and which names are granted. Out: what to send back, and the question if it was
//! refused. Nothing is forwarded to any other name server, so nothing that a guest puts into a question leaves the
//! host (ATTACKS D04).

use freeboard_policy::Host;
use hickory_proto::op::{Edns, Message, MessageType, Metadata, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::opt::EdnsOption;
use hickory_proto::rr::rdata::{A, AAAA};
use hickory_proto::rr::{DNSClass, RData, Record, RecordType};

use super::names::Issued;
use crate::limits::{DNS_TTL, DNS_UDP_PAYLOAD};

/// RFC 8914 4.18: "Filtered", by request of the client's operator.
const EXTENDED_ERROR_FILTERED: u16 = 17;
/// RFC 8914 2: the option's code.
const EXTENDED_ERROR_OPTION: u16 = 15;

/// What to do about one message.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Send this back.
    Answer(Vec<u8>),
    /// Send this back and record the question.
    Refuse { reply: Vec<u8>, question: Question },
    /// No message that could be answered: send nothing.
    Drop,
}

/// A refused question, for the record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// As asked, lower case, without the last dot.
    pub name: String,
    /// `A`, `TXT`, …
    pub kind: String,
}

/// Answers one message. `granted` says whether a name may be resolved and with which addresses.
pub fn answer(bytes: &[u8], granted: impl FnOnce(&Host) -> Option<Issued>) -> Verdict {
    let Ok(message) = Message::from_vec(bytes) else { return Verdict::Drop };
    // A response sent to a server is an attempt to make two servers talk to each other for ever.
    if message.metadata.message_type != MessageType::Query {
        return Verdict::Drop;
    }
    let [query] = message.queries.as_slice() else { return Verdict::Drop };
    let host = Host::parse(&query.name.to_ascii()).ok();
    let plain = message.metadata.op_code == OpCode::Query && query.query_class == DNSClass::IN;
    let issued = host.as_ref().filter(|_| plain && is_served(query.query_type)).and_then(granted);
    let Some(issued) = issued else { return refuse(&message, query) };
    let mut reply = reply_to(&message, ResponseCode::NoError);
    let data = match query.query_type {
        RecordType::A => Some(RData::A(A(issued.v4))),
        RecordType::AAAA => Some(RData::AAAA(AAAA(issued.v6))),
        // HTTPS and SVCB exist and say nothing: no h3, no ECH, no other address (ATTACKS D03, D17).
        _ => None,
    };
    if let Some(data) = data {
        reply.add_answer(Record::from_rdata(query.name.clone(), DNS_TTL, data));
    }
    reply.to_vec().map_or(Verdict::Drop, Verdict::Answer)
}

/// Types that a granted name is answered for.
fn is_served(kind: RecordType) -> bool {
    matches!(kind, RecordType::A | RecordType::AAAA | RecordType::HTTPS | RecordType::SVCB)
}

fn refuse(message: &Message, query: &Query) -> Verdict {
    let mut reply = reply_to(message, ResponseCode::Refused);
    if let Some(edns) = &mut reply.edns {
        let code = EXTENDED_ERROR_FILTERED.to_be_bytes().to_vec();
        edns.options_mut().insert(EdnsOption::Unknown(EXTENDED_ERROR_OPTION, code));
    }
    let name = query.name.to_ascii().to_ascii_lowercase();
    let name = name.strip_suffix('.').unwrap_or(&name).to_owned();
    let question = Question { name, kind: query.query_type.to_string() };
    reply.to_vec().map_or(Verdict::Drop, |reply| Verdict::Refuse { reply, question })
}

/// A reply with the question repeated as it was spelt (some resolvers check the case) and, where the question had
/// EDNS, with EDNS (RFC 6891 7).
fn reply_to(message: &Message, code: ResponseCode) -> Message {
    let mut reply = Message::response(message.metadata.id, message.metadata.op_code);
    reply.metadata = Metadata::response_from_request(&message.metadata);
    reply.metadata.recursion_available = true;
    reply.metadata.response_code = code;
    reply.queries.clone_from(&message.queries);
    if message.edns.is_some() {
        let mut edns = Edns::new();
        edns.set_max_payload(DNS_UDP_PAYLOAD);
        reply.edns = Some(edns);
    }
    reply
}
