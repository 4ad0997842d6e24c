//! DSSE, the Dead Simple Signing Envelope: what is signed is the payload with its type, byte for byte, so that nobody has to
//! agree on how JSON is written.

use std::collections::BTreeMap;

use freeboard_wire::runs::{Envelope, EnvelopeSignature};

use super::key::{PrivateKey, PublicKey};
use super::statement::{Statement, StatementError};
use super::tpm::{NotQuoted, QuoteError, QuoteKey, Quoter};

/// The type of the payload: an in-toto statement.
pub const PAYLOAD_TYPE: &str = "application/vnd.in-toto+json";

/// Signs a payload.
pub fn seal(key: &PrivateKey, payload: &[u8]) -> Envelope {
    let sig = key.sign(&message(PAYLOAD_TYPE, payload));
    Envelope {
        payload_type: PAYLOAD_TYPE.to_owned(),
        payload: payload.to_vec(),
        signatures: vec![EnvelopeSignature {
            keyid: key.public().map(|key| key.id()).unwrap_or_default(),
            sig,
        }],
        quote: None,
    }
}

/// The envelope of a payload with what a TPM says of it.
pub(super) async fn seal_quoted(
    key: &PrivateKey,
    payload: &[u8],
    tpm: &Quoter,
) -> Result<Envelope, QuoteError> {
    let quote = tpm.quote(&message(PAYLOAD_TYPE, payload)).await?;
    Ok(Envelope { quote: Some(quote), ..seal(key, payload) })
}

/// Whether the TPM of this key saw this envelope, with these values of its registers among those that it quoted.
///
/// # Errors
/// There is no quote, or it is of another key, envelope or state.
pub fn verify_quote(
    envelope: &Envelope,
    key: &QuoteKey,
    expected: &BTreeMap<u8, String>,
) -> Result<(), NotQuoted> {
    key.verify(envelope.quote.as_ref(), &message(&envelope.payload_type, &envelope.payload), expected)
}

/// The statement of an envelope, when this key signed it. Which key an envelope says it is of does not count.
///
/// # Errors
/// No signature is of this key, or what is signed is no statement about a run.
pub fn verify(envelope: &Envelope, key: &PublicKey) -> Result<Statement, StatementError> {
    if envelope.payload_type != PAYLOAD_TYPE {
        return Err(StatementError::Form("the payload is no in-toto statement".to_owned()));
    }
    let message = message(&envelope.payload_type, &envelope.payload);
    if !envelope.signatures.iter().any(|signature| key.verifies(&message, &signature.sig)) {
        return Err(StatementError::Signature);
    }
    Statement::parse(&envelope.payload)
}

/// PAE of the DSSE protocol, version 1.
fn message(payload_type: &str, payload: &[u8]) -> Vec<u8> {
    let mut message = format!("DSSEv1 {} {payload_type} {} ", payload_type.len(), payload.len()).into_bytes();
    message.extend_from_slice(payload);
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the protocol's own specification.
    #[test]
    fn what_is_signed_is_what_the_protocol_says() {
        let said = message("http://example.com/HelloWorld", b"hello world");
        assert_eq!(said, b"DSSEv1 29 http://example.com/HelloWorld 11 hello world");
    }
}
