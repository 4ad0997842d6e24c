//! Netlink messages as bytes: header, attributes, padding (RFC 3549 2.2; linux/netlink.h).

/// The kernel is asked to acknowledge.
pub(crate) const ACKNOWLEDGE: u16 = 0x4;
pub(crate) const REQUEST: u16 = 0x1;
pub(crate) const CREATE: u16 = 0x400;
pub(crate) const EXCLUSIVE: u16 = 0x200;
pub(crate) const APPEND: u16 = 0x800;

/// Bytes of `struct nlmsghdr`.
pub(crate) const HEADER_BYTES: usize = 16;
const NESTED: u16 = 0x8000;

/// One or more messages, ready to be sent in one call.
#[derive(Debug, Default, Clone)]
pub(crate) struct Messages {
    bytes: Vec<u8>,
    /// Sequence number of the last message.
    pub(crate) last: u32,
}

impl Messages {
    /// Appends a message: `header` is the fixed part of its kind, `fill` writes the attributes.
    pub(crate) fn push(
        &mut self,
        kind: u16,
        flags: u16,
        header: &[u8],
        fill: impl FnOnce(&mut Attributes<'_>),
    ) {
        self.last += 1;
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&0_u32.to_ne_bytes());
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(&(flags | REQUEST).to_ne_bytes());
        self.bytes.extend_from_slice(&self.last.to_ne_bytes());
        self.bytes.extend_from_slice(&0_u32.to_ne_bytes());
        self.bytes.extend_from_slice(header);
        pad(&mut self.bytes);
        fill(&mut Attributes { bytes: &mut self.bytes });
        let length = u32::try_from(self.bytes.len() - start).unwrap_or(u32::MAX);
        write_at(&mut self.bytes, start, &length.to_ne_bytes());
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// Writes attributes of one message or one nest.
#[derive(Debug)]
pub(crate) struct Attributes<'a> {
    bytes: &'a mut Vec<u8>,
}

impl Attributes<'_> {
    pub(crate) fn put(&mut self, kind: u16, value: &[u8]) -> &mut Self {
        self.attribute(kind, |bytes| bytes.extend_from_slice(value))
    }

    /// A name with its terminating zero.
    pub(crate) fn put_name(&mut self, kind: u16, name: &str) -> &mut Self {
        self.attribute(kind, |bytes| {
            bytes.extend_from_slice(name.as_bytes());
            bytes.push(0);
        })
    }

    /// nf_tables numbers are in network byte order.
    pub(crate) fn put_be32(&mut self, kind: u16, value: u32) -> &mut Self {
        self.put(kind, &value.to_be_bytes())
    }

    pub(crate) fn nest(&mut self, kind: u16, fill: impl FnOnce(&mut Attributes<'_>)) -> &mut Self {
        self.attribute(kind | NESTED, |bytes| fill(&mut Attributes { bytes }))
    }

    /// Fixed bytes before the attributes of a nest (an embedded header).
    pub(crate) fn embed(&mut self, header: &[u8]) -> &mut Self {
        self.bytes.extend_from_slice(header);
        pad(self.bytes);
        self
    }

    fn attribute(&mut self, kind: u16, fill: impl FnOnce(&mut Vec<u8>)) -> &mut Self {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&0_u16.to_ne_bytes());
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        fill(self.bytes);
        let length = u16::try_from(self.bytes.len() - start).unwrap_or(u16::MAX);
        write_at(self.bytes, start, &length.to_ne_bytes());
        pad(self.bytes);
        self
    }
}

fn pad(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().next_multiple_of(4), 0);
}

fn write_at(bytes: &mut [u8], start: usize, value: &[u8]) {
    if let Some(place) = bytes.get_mut(start..start + value.len()) {
        place.copy_from_slice(value);
    }
}

/// The parts of an answer that we read: `(sequence, errno)` of each acknowledgement or error in `answer`.
pub(crate) fn acknowledgements(answer: &[u8]) -> impl Iterator<Item = (u32, i32)> + '_ {
    const ERROR: u16 = 2;
    let mut rest = answer;
    std::iter::from_fn(move || {
        loop {
            let length = usize::try_from(u32::from_ne_bytes(*rest.first_chunk()?)).ok()?;
            let message = rest.get(..length.min(rest.len()))?;
            let kind = u16::from_ne_bytes(*message.get(4..)?.first_chunk()?);
            let sequence = u32::from_ne_bytes(*message.get(8..)?.first_chunk()?);
            let errno = message.get(HEADER_BYTES..).and_then(|body| body.first_chunk());
            rest = rest.get(length.next_multiple_of(4).max(HEADER_BYTES)..).unwrap_or_default();
            if let (ERROR, Some(errno)) = (kind, errno) {
                return Some((sequence, -i32::from_ne_bytes(*errno)));
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_lengths_padding_and_nests() {
        let mut messages = Messages::default();
        messages.push(16, ACKNOWLEDGE, &[1, 2], |attributes| {
            attributes.nest(18, |nest| {
                nest.put_name(1, "veth");
            });
        });
        let bytes = messages.bytes();
        assert_eq!(bytes.len(), 16 + 4 + 4 + 4 + 8);
        assert_eq!(u32::from_ne_bytes(bytes[0..4].try_into().unwrap()), 36);
        assert_eq!(&bytes[16..20], &[1, 2, 0, 0]);
        assert_eq!(
            u16::from_ne_bytes(bytes[20..22].try_into().unwrap()),
            16,
            "nest: its header, an attribute of 9, 3 of padding"
        );
        assert_eq!(u16::from_ne_bytes(bytes[24..26].try_into().unwrap()), 9, "4 and `veth\\0`");
    }

    #[test]
    fn reads_errors_and_survives_cut_answers() {
        let mut answer = Vec::new();
        for (sequence, errno) in [(1_u32, 0_i32), (2, -17)] {
            answer.extend_from_slice(&36_u32.to_ne_bytes());
            answer.extend_from_slice(&2_u16.to_ne_bytes());
            answer.extend_from_slice(&0_u16.to_ne_bytes());
            answer.extend_from_slice(&sequence.to_ne_bytes());
            answer.extend_from_slice(&0_u32.to_ne_bytes());
            answer.extend_from_slice(&errno.to_ne_bytes());
            answer.extend_from_slice(&[0; 16]);
        }
        assert_eq!(acknowledgements(&answer).collect::<Vec<_>>(), [(1, 0), (2, 17)]);
        for cut in 0..answer.len() {
            assert!(acknowledgements(&answer[..cut]).count() <= 2);
        }
        assert_eq!(acknowledgements(&[0; 64]).count(), 0, "a length of zero does not loop for ever");
    }
}
