//! What the extensions of a ClientHello say that rustls does not tell (RFC 8446 4.1.2).
//!
//! In: the bytes of a hello that rustls has read already, in one record or several. Out: yes or no. What cannot be followed is
//! taken for the worse.

/// `encrypted_client_hello` (RFC 9849), and what its drafts called encrypted server name.
const HIDING: [u16; 2] = [0xfe0d, 0xffce];

/// Whether the hello may name another server to its reader than in the clear. An extension that only looks like it (GREASE)
/// cannot be told from a real one.
pub fn hides_its_name(bytes: &[u8]) -> bool {
    let message = handshake(bytes);
    match extensions(&message) {
        Some(types) => types.iter().any(|kind| HIDING.contains(kind)),
        None => true,
    }
}

/// The handshake bytes of the records at the start.
fn handshake(mut bytes: &[u8]) -> Vec<u8> {
    const HANDSHAKE: u8 = 22;
    let mut message = Vec::with_capacity(bytes.len());
    while let Some((head, rest)) = bytes.split_at_checked(5) {
        let [HANDSHAKE, _, _, high, low] = head else { break };
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        let (piece, rest) = rest.split_at_checked(length).unwrap_or((rest, &[]));
        message.extend_from_slice(piece);
        bytes = rest;
    }
    message
}

/// The types of the extensions; `None` where the message ends early.
fn extensions(message: &[u8]) -> Option<Vec<u16>> {
    // Type and length, version, random.
    let mut rest = message.get(4 + 2 + 32..)?;
    for width in [1, 2, 1] {
        // Session id, cipher suites, compression methods.
        (_, rest) = vector(rest, width)?;
    }
    if rest.is_empty() {
        return Some(Vec::new());
    }
    let (mut listed, _) = vector(rest, 2)?;
    let mut types = Vec::new();
    while !listed.is_empty() {
        let (kind, after) = listed.split_first_chunk::<2>()?;
        types.push(u16::from_be_bytes(*kind));
        (_, listed) = vector(after, 2)?;
    }
    Some(types)
}

/// A vector with a length of `width` bytes in front, and what follows it.
fn vector(bytes: &[u8], width: usize) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_at_checked(width)?;
    let length = length.iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
    rest.split_at_checked(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(extensions: &[(u16, &[u8])]) -> Vec<u8> {
        let mut listed = Vec::new();
        for (kind, body) in extensions {
            listed.extend(kind.to_be_bytes());
            listed.extend(u16::try_from(body.len()).unwrap().to_be_bytes());
            listed.extend_from_slice(body);
        }
        let mut body = vec![3, 3];
        body.extend([7; 32]);
        body.extend([1, 9, 0, 2, 0x13, 1, 1, 0]);
        body.extend(u16::try_from(listed.len()).unwrap().to_be_bytes());
        body.extend(listed);
        let length = u32::try_from(body.len()).unwrap().to_be_bytes();
        [&[1], &length[1..], &body].concat()
    }

    fn records(message: &[u8], piece: usize) -> Vec<u8> {
        let record = |piece: &[u8]| {
            [&[22, 3, 1][..], &u16::try_from(piece.len()).unwrap().to_be_bytes(), piece].concat()
        };
        message.chunks(piece).flat_map(record).collect()
    }

    #[test]
    fn finds_what_hides_the_name_however_the_hello_is_cut() {
        let plain = hello(&[(0, b"name"), (43, &[2, 3, 4])]);
        for (kind, hides) in [(0xfe0d, true), (0xffce, true), (0xfe0e, false)] {
            let hidden = hello(&[(0, b"name"), (kind, b"x"), (43, &[2, 3, 4])]);
            for piece in [1, 3, 40, 4096] {
                assert!(!hides_its_name(&records(&plain, piece)));
                assert_eq!(hides_its_name(&records(&hidden, piece)), hides, "{kind:x} in pieces of {piece}");
            }
        }
    }

    #[test]
    fn takes_what_ends_early_for_the_worse() {
        let whole = hello(&[(0, b"name")]);
        for length in 0..whole.len() {
            assert!(
                length == whole.len() - 10 || hides_its_name(&records(&whole[..length], 4096)),
                "{length}"
            );
        }
    }
}
