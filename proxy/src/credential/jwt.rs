//! Tokens that the broker signs itself: who calls, for whom, for how long.
//!
//! In: the credential's description, its key and the caller. Out: a signed token. It never signs for longer than the
//! credential's lifetime, and every token has an id of its own.

use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde::Serialize;

use super::Secret;

/// The facts of a `jwt` credential, as `CredentialView::Jwt` holds them.
#[derive(Debug, Clone, Copy)]
pub(super) struct JwtShape<'a> {
    pub algorithm: &'a str,
    pub issuer: Option<&'a str>,
    pub audience: Option<&'a str>,
    pub key_id: Option<&'a str>,
    pub scope: Option<&'a str>,
    pub ttl_seconds: u64,
}

/// Why no token was signed. Nothing of the key is in it.
#[derive(Debug, thiserror::Error)]
pub(super) enum JwtError {
    #[error("the algorithm `{0}` is not one of HS256, ES256, EdDSA, RS256")]
    Algorithm(String),
    #[error("the key is no PEM private key for {0}")]
    Key(String),
    #[error("an HS256 key must have at least 32 bytes (RFC 7518 3.2)")]
    ShortKey,
    #[error("the token cannot be signed")]
    Sign,
    #[error("no random bytes from the system")]
    Random,
}

#[derive(Serialize)]
struct Claims<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    iss: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sub: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    aud: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    scope: Option<&'a str>,
    iat: i64,
    nbf: i64,
    exp: i64,
    jti: String,
}

/// Signs a token for `caller`.
pub(super) fn sign(
    shape: JwtShape<'_>,
    key: &Secret,
    caller: Option<&str>,
    now_unix: i64,
) -> Result<Secret, JwtError> {
    let (algorithm, key) = encoding_key(shape.algorithm, key.expose())?;
    let mut header = Header::new(algorithm);
    header.kid = shape.key_id.map(str::to_owned);
    let claims = Claims {
        iss: shape.issuer,
        sub: caller,
        aud: shape.audience,
        scope: shape.scope,
        iat: now_unix,
        nbf: now_unix,
        exp: now_unix.saturating_add_unsigned(shape.ttl_seconds),
        jti: random_id()?,
    };
    let token = jsonwebtoken::encode(&header, &claims, &key).map_err(|_| JwtError::Sign)?;
    Ok(Secret::new(token.into_bytes()))
}

fn encoding_key(name: &str, key: &[u8]) -> Result<(Algorithm, EncodingKey), JwtError> {
    let wrong = |_| JwtError::Key(name.to_owned());
    Ok(match name {
        // A shorter secret can be guessed from one token by anybody who sees it.
        "HS256" if key.len() < 32 => return Err(JwtError::ShortKey),
        "HS256" => (Algorithm::HS256, EncodingKey::from_secret(key)),
        "ES256" => (Algorithm::ES256, EncodingKey::from_ec_pem(key).map_err(wrong)?),
        "EdDSA" => (Algorithm::EdDSA, EncodingKey::from_ed_pem(key).map_err(wrong)?),
        "RS256" => (Algorithm::RS256, EncodingKey::from_rsa_pem(key).map_err(wrong)?),
        _ => return Err(JwtError::Algorithm(name.to_owned())),
    })
}

fn random_id() -> Result<String, JwtError> {
    let mut bytes = [0_u8; 16];
    getrandom::fill(&mut bytes).map_err(|_| JwtError::Random)?;
    Ok(format!("{:032x}", u128::from_be_bytes(bytes)))
}
