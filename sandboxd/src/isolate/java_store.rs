//! A Java trust store (the JKS format that every JDK reads) from PEM certificates.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha1::{Digest, Sha1};

/// The password that every JDK's own store has; it protects nothing, it only feeds the check sum.
const PASSWORD: &str = "changeit";
/// What the format mixes into its check sum (sun.security.provider.JavaKeyStore).
const WHITENER: &[u8] = b"Mighty Aphrodite";

const MAGIC: u32 = 0xfeed_feed;
const VERSION: u32 = 2;
const TRUSTED_CERTIFICATE: u32 = 2;

/// The store with every certificate of the text; `None` when there is none, or one does not decode.
pub fn trust_store(pem: &str) -> Option<Vec<u8>> {
    let certificates = certificates(pem)?;
    if certificates.is_empty() {
        return None;
    }
    let mut store = Vec::new();
    let number = |store: &mut Vec<u8>, value: u32| store.extend_from_slice(&value.to_be_bytes());
    number(&mut store, MAGIC);
    number(&mut store, VERSION);
    number(&mut store, u32::try_from(certificates.len()).ok()?);
    for (index, certificate) in certificates.iter().enumerate() {
        number(&mut store, TRUSTED_CERTIFICATE);
        text(&mut store, &format!("freeboard-{index}"))?;
        // When it was added, milliseconds since 1970: of no meaning here, and the same store for the same CA.
        store.extend_from_slice(&0_u64.to_be_bytes());
        text(&mut store, "X.509")?;
        number(&mut store, u32::try_from(certificate.len()).ok()?);
        store.extend_from_slice(certificate);
    }
    let mut sum = Sha1::new();
    for unit in PASSWORD.encode_utf16() {
        sum.update(unit.to_be_bytes());
    }
    sum.update(WHITENER);
    sum.update(&store);
    store.extend_from_slice(&sum.finalize());
    Some(store)
}

/// A text of the format: two bytes of length, then the bytes.
fn text(store: &mut Vec<u8>, text: &str) -> Option<()> {
    store.extend_from_slice(&u16::try_from(text.len()).ok()?.to_be_bytes());
    store.extend_from_slice(text.as_bytes());
    Some(())
}

fn certificates(pem: &str) -> Option<Vec<Vec<u8>>> {
    let blocks = pem.split("-----BEGIN CERTIFICATE-----").skip(1);
    blocks
        .map(|block| {
            let (body, _) = block.split_once("-----END CERTIFICATE-----")?;
            let body: String = body.split_whitespace().collect();
            STANDARD.decode(body).ok()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_has_its_certificates_and_a_check_sum() {
        let pem = "-----BEGIN CERTIFICATE-----\nAQID\n-----END CERTIFICATE-----\n";
        let store = trust_store(&pem.repeat(2)).unwrap();
        assert_eq!(&store[..12], [0xfe, 0xed, 0xfe, 0xed, 0, 0, 0, 2, 0, 0, 0, 2]);
        assert_eq!(store.windows(7).filter(|window| window == b"\0\0\0\x03\x01\x02\x03").count(), 2);
        assert_eq!(store.len(), 12 + 2 * (4 + 2 + 11 + 8 + 2 + 5 + 4 + 3) + 20);
    }

    #[test]
    fn what_is_no_certificate_makes_no_store() {
        assert_eq!(trust_store(""), None);
        assert_eq!(trust_store("-----BEGIN CERTIFICATE-----\n?!\n-----END CERTIFICATE-----"), None);
    }
}
