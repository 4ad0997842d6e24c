//! Questions to a gate's name server.

use std::cell::Cell;
use std::net::{Ipv4Addr, Ipv6Addr};

use freeboard_policy::Host;
use freeboard_proxy::dns::Issued;
use freeboard_proxy::dns::answer::{Verdict, answer};

/// RFC 1035 4.2.1: what every resolver takes in a datagram. A name has at most 255 bytes, so a reply has room.
const DATAGRAM: usize = 512;
const REFUSED: u8 = 5;

/// One message. What is answered is a reply to it, of bounded size, and says nothing of a name that is not granted.
pub(crate) fn dns(data: &[u8]) {
    let granted = Cell::new(false);
    let verdict = answer(data, |host: &Host| {
        granted.set(host.as_str() == "api.test");
        let issued = Issued { v4: Ipv4Addr::new(198, 18, 1, 7), v6: Ipv6Addr::LOCALHOST };
        granted.get().then_some(issued)
    });
    let (reply, refused) = match verdict {
        Verdict::Drop => return,
        Verdict::Answer(reply) => (reply, false),
        Verdict::Refuse { reply, question } => {
            assert!(!question.name.bytes().any(|byte| byte.is_ascii_control()), "{question:?}");
            (reply, true)
        }
    };
    assert_eq!(granted.get(), !refused, "what is granted is answered, and nothing else");
    assert!(reply.len() <= DATAGRAM, "{} bytes", reply.len());
    let [id_high, id_low, flags, more, counts @ ..] = reply.as_slice() else { panic!("{reply:?}") };
    assert_eq!(data.get(..2), Some(&[*id_high, *id_low][..]), "the id of the question");
    assert_eq!(flags & 0x80, 0x80, "a response");
    assert_eq!(flags & 0x78, data.get(2).map_or(0, |flags| flags & 0x78), "to the same operation");
    assert_eq!(more & 0x0f, if refused { REFUSED } else { 0 });
    let [0, 1, 0, answers, 0, 0, 0, more, ..] = counts else { panic!("{reply:?}") };
    assert!(*answers <= u8::from(!refused) && *more <= 1, "{reply:?}");
}
