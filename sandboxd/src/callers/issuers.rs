//! Tokens of identity providers: JSON Web Tokens (RFC 7519) whose issuer, audience, algorithm, time and signature are checked
//! against what the callers file pins. What comes out is a subject; which caller that is, the file says.

use std::path::PathBuf;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::jwk::{AlgorithmParameters, Jwk, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use serde::{Deserialize, Serialize};

use super::jwks::{Keys, KeysError};
use crate::limits::{CLOCK_SKEW, MAX_JWT_BYTES};

/// An identity provider as the callers file has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The exact `iss` of its tokens.
    pub issuer: String,
    /// The exact `aud` that a token must have, alone or among others: a token for another service is none for this one.
    pub audience: String,
    /// Algorithms that are taken: RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, EdDSA. Those with a shared secret are not.
    pub algorithms: Vec<String>,
    /// File of its public keys (RFC 7517), read again when it changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jwks_file: Option<PathBuf>,
    /// Where its public keys are, https.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jwks_url: Option<String>,
    /// PEM of the authority of `jwks_url`, instead of the system's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jwks_ca_file: Option<PathBuf>,
}

/// Why a token is not believed. Its bearer is not told which.
#[derive(Debug, thiserror::Error)]
pub enum JwtError {
    #[error("it is no token of a known issuer")]
    Foreign,
    #[error("its algorithm {0:?} is not one of those that are taken")]
    Algorithm(Algorithm),
    #[error("no key of the issuer fits it")]
    NoKey,
    #[error("it does not hold")]
    Invalid(#[source] jsonwebtoken::errors::Error),
    /// Not the bearer's doing.
    #[error("the keys of the issuer `{issuer}` are not known")]
    Keys {
        issuer: String,
        #[source]
        source: KeysError,
    },
}

/// One identity provider with its keys.
#[derive(Debug)]
pub struct Issuer {
    settings: Settings,
    algorithms: Vec<Algorithm>,
    keys: Keys,
}

#[derive(Debug, Deserialize)]
struct Claims {
    sub: String,
}

/// Who a token speaks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    pub issuer: String,
    pub subject: String,
}

impl Issuer {
    /// Checks what can be checked of the settings alone.
    pub(super) fn new(settings: Settings) -> Result<Self, &'static str> {
        if settings.issuer.is_empty() || settings.audience.is_empty() {
            return Err("`issuer` and `audience` are needed");
        }
        if settings.algorithms.is_empty() {
            return Err("`algorithms` is empty: pin those that the issuer signs with");
        }
        let algorithms: Option<Vec<Algorithm>> =
            settings.algorithms.iter().map(|word| algorithm(word)).collect();
        let algorithms = algorithms
            .ok_or("an algorithm is one of RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, EdDSA")?;
        let keys = Keys::of(&settings)?;
        Ok(Self { settings, algorithms, keys })
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The subject of a token of this issuer.
    async fn verify(&self, token: &str) -> Result<Subject, JwtError> {
        let header = jsonwebtoken::decode_header(token).map_err(JwtError::Invalid)?;
        // SECURITY: before a key is looked for. Otherwise whoever sends the token chooses how it is checked. Guarded by
        // a_token_that_chooses_its_own_algorithm_is_not_believed.
        if !self.algorithms.contains(&header.alg) {
            return Err(JwtError::Algorithm(header.alg));
        }
        let fits = |keys: &[Jwk]| key(keys, header.kid.as_deref(), header.alg);
        let found = self.keys.find(fits).await;
        let found = found
            .map_err(|source| JwtError::Keys { issuer: self.settings.issuer.clone(), source })?
            .ok_or(JwtError::NoKey)?;
        let mut validation = Validation::new(header.alg);
        validation.set_issuer(&[&self.settings.issuer]);
        validation.set_audience(&[&self.settings.audience]);
        validation.set_required_spec_claims(&["exp", "iss", "aud", "sub"]);
        validation.validate_nbf = true;
        validation.leeway = CLOCK_SKEW.as_secs();
        let claims = jsonwebtoken::decode::<Claims>(token, &found, &validation).map_err(JwtError::Invalid)?;
        Ok(Subject { issuer: self.settings.issuer.clone(), subject: claims.claims.sub })
    }
}

/// The subject of a token, whichever of the issuers it is of.
pub(super) async fn verify(issuers: &[Arc<Issuer>], token: &str) -> Result<Subject, JwtError> {
    // Unchecked so far, and only to choose whose keys it is checked with.
    let claimed = claimed_issuer(token).ok_or(JwtError::Foreign)?;
    let issuer = issuers.iter().find(|issuer| issuer.settings.issuer == claimed).ok_or(JwtError::Foreign)?;
    issuer.verify(token).await
}

fn claimed_issuer(token: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Claimed {
        iss: String,
    }
    if token.len() > MAX_JWT_BYTES {
        return None;
    }
    let mut parts = token.split('.');
    let (_, claims, _, None) = (parts.next()?, parts.next()?, parts.next()?, parts.next()) else {
        return None;
    };
    let claimed: Claimed = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).ok()?).ok()?;
    Some(claimed.iss)
}

/// The key that a token names, or the only one that there is.
fn key(keys: &[Jwk], id: Option<&str>, algorithm: Algorithm) -> Option<DecodingKey> {
    let signs = |key: &&Jwk| {
        let usable = key.common.public_key_use.as_ref().is_none_or(|usage| *usage == PublicKeyUse::Signature);
        let named = key.common.key_algorithm.is_none_or(|named| named.to_string() == word(algorithm));
        // A shared secret has no place among public keys.
        usable && named && !matches!(key.algorithm, AlgorithmParameters::OctetKey(_))
    };
    let mut fitting = keys.iter().filter(signs);
    let found = match id {
        Some(id) => fitting.find(|key| key.common.key_id.as_deref() == Some(id)),
        None => fitting.next().filter(|_| fitting.next().is_none()),
    };
    DecodingKey::from_jwk(found?).ok()
}

const ALGORITHMS: [(&str, Algorithm); 9] = [
    ("RS256", Algorithm::RS256),
    ("RS384", Algorithm::RS384),
    ("RS512", Algorithm::RS512),
    ("PS256", Algorithm::PS256),
    ("PS384", Algorithm::PS384),
    ("PS512", Algorithm::PS512),
    ("ES256", Algorithm::ES256),
    ("ES384", Algorithm::ES384),
    ("EdDSA", Algorithm::EdDSA),
];

fn algorithm(word: &str) -> Option<Algorithm> {
    ALGORITHMS.into_iter().find_map(|(name, algorithm)| (name == word).then_some(algorithm))
}

fn word(algorithm: Algorithm) -> &'static str {
    ALGORITHMS.into_iter().find_map(|(name, one)| (one == algorithm).then_some(name)).unwrap_or_default()
}
