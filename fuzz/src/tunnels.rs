//! What comes before requests: the ClientHello, and the heads of HTTP/2 frames.

use freeboard_proxy::accept::http2::unseen::Unseen;
use freeboard_proxy::tls::hello::hides_its_name;

/// Records with a ClientHello. However the message is cut into records, the answer is that of a second reading.
pub(crate) fn hello(data: &[u8]) {
    let hides = hides_its_name(data);
    let message = handshake(data);
    assert_eq!(hides, has_hiding_extension(&message).unwrap_or(true), "as a second reading says");
    for piece in [1, 7, message.len().max(1)] {
        let cut: Vec<u8> = message.chunks(piece).flat_map(record).collect();
        assert_eq!(hides_its_name(&cut), hides, "in records of {piece} bytes");
    }
}

fn record(piece: &[u8]) -> Vec<u8> {
    let length = u16::try_from(piece.len()).unwrap_or(u16::MAX).to_be_bytes();
    [&[22, 3, 1], &length[..], piece].concat()
}

/// The handshake bytes of the records in front.
fn handshake(data: &[u8]) -> Vec<u8> {
    let mut reader = Reader(data);
    let mut message = Vec::new();
    loop {
        let Some(head) = reader.take(5) else { return message };
        let [22, _, _, high, low] = head else { return message };
        let length = usize::from(*high) * 256 + usize::from(*low);
        let there = length.min(reader.0.len());
        message.extend_from_slice(reader.take(there).unwrap_or_default());
    }
}

/// `None` where the hello ends early.
fn has_hiding_extension(message: &[u8]) -> Option<bool> {
    let mut reader = Reader(message);
    reader.take(4 + 2 + 32)?;
    for width in [1, 2, 1] {
        reader.vector(width)?;
    }
    if reader.0.is_empty() {
        return Some(false);
    }
    let mut extensions = Reader(reader.vector(2)?);
    let mut hides = false;
    while !extensions.0.is_empty() {
        let kind = extensions.number(2)?;
        extensions.vector(2)?;
        hides |= kind == 0xfe0d || kind == 0xffce;
    }
    Some(hides)
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self, width: usize) -> Option<usize> {
        Some(self.take(width)?.iter().fold(0, |number, byte| number * 256 + usize::from(*byte)))
    }

    fn vector(&mut self, width: usize) -> Option<&'a [u8]> {
        let length = self.number(width)?;
        self.take(length)
    }
}

/// Both directions of an HTTP/2 connection: the first byte says how they are cut, the second how long the first one is.
pub(crate) fn frames(data: &[u8]) {
    let [size, part, rest @ ..] = data else { return };
    let (from_guest, to_guest) = rest.split_at(rest.len() * usize::from(*part) / 256);
    let seen = |size: usize| {
        let unseen = Unseen::default();
        from_guest.chunks(size).for_each(|piece| unseen.read(piece));
        to_guest.chunks(size).for_each(|piece| unseen.written(piece));
        let stops: Vec<String> = unseen.take().iter().map(|stop| format!("{stop:?}")).collect();
        (stops, unseen.has_ended())
    };
    let whole = seen(rest.len().max(1));
    assert_eq!(seen(usize::from(*size).max(1)), whole, "in pieces of {size}");
    // A stream is opened, and refused, once.
    assert!(whole.0.len() <= from_guest.len() / 9 && whole.0.len() <= to_guest.len() / 9, "{whole:?}");
}
