//! Signs requests with AWS Signature Version 4 in place of the guest, whose own signature is thrown away.
//!
//! In: a permitted head, where it goes, the keys. Out: the head with its `X-Amz-*` fields, the value of `Authorization`, and
//! how the body has to be treated. What cannot be signed without guessing is refused.

mod canonical;
mod chunks;
mod payload;
#[cfg(test)]
mod tests;

use aws_lc_rs::hmac;
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

pub use self::chunks::Resigner;
pub use self::payload::{Payload, SignedBody};

use super::Secret;
use crate::error::Stop;
use crate::request::{Fields, RequestHead};
use freeboard_policy::Reason;

/// Keys and what they sign for.
#[derive(Debug)]
pub struct Signer {
    pub(super) access_key_id: Secret,
    pub(super) secret_access_key: Secret,
    pub(super) session_token: Option<Secret>,
    pub(super) region: Box<str>,
    pub(super) service: Box<str>,
}

/// What a signature adds to a head that has its `X-Amz-*` fields already.
#[derive(Debug)]
pub struct Signed {
    /// The whole value.
    pub authorization: Secret,
    /// For bodies whose chunks are signed as well.
    pub resigner: Option<Resigner>,
}

/// A signature with what the signatures of chunks go on from.
struct WithKey {
    authorization: Secret,
    key: Zeroizing<[u8; 32]>,
    scope: String,
    signature: String,
}

/// Fields that a signature is made of: the guest's own never go on (ATTACKS H49).
const SIGNING_FIELDS: [&str; 4] =
    ["authorization", "x-amz-date", "x-amz-security-token", "x-amz-content-sha256"];

impl Signer {
    /// How the body of this request is signed. Asked before [`Signer::sign`], while the guest's fields are there.
    ///
    /// # Errors
    /// The guest announces a body that cannot be signed in its place.
    pub fn payload(&self, head: &RequestHead) -> Result<Payload, Stop> {
        payload::of(head, self.is_s3())
    }

    /// Replaces the guest's signature. `authority` is the Host field that will be sent.
    ///
    /// # Errors
    /// The request cannot be signed without guessing what the service makes of it.
    pub fn sign(
        &self,
        head: &mut RequestHead,
        authority: &str,
        payload: &Payload,
        now_unix: i64,
    ) -> Result<Signed, Stop> {
        let time = time(now_unix).ok_or(Stop::new(Reason::Internal, "the clock cannot be written"))?;
        let hash = payload.hash();
        let said = self.is_s3() || head.fields.first("x-amz-content-sha256").is_some();
        head.fields.retain(|field| !SIGNING_FIELDS.iter().any(|own| own.eq_ignore_ascii_case(field.name)));
        head.fields.push("x-amz-date", time.as_bytes());
        if said {
            head.fields.push("x-amz-content-sha256", hash.as_bytes());
        }
        if let Some(token) = &self.session_token {
            head.fields.push("x-amz-security-token", token.expose());
        }
        let target = head.target.as_ref().ok_or(Stop::new(Reason::Internal, "no target"))?;
        let path = canonical::path(target.path(), self.is_s3())?;
        let query = canonical::query(target.query())?;
        let signed = self.signed((&head.method, &path, &query), &head.fields, authority, hash, &time);
        let resigner =
            payload.signs_chunks().then(|| Resigner::new(signed.key, &time, &signed.scope, signed.signature));
        Ok(Signed { authorization: signed.authorization, resigner })
    }

    /// Signs a form that the broker itself sends to an issuer. Gives the fields that go with it.
    ///
    /// # Errors
    /// The clock cannot be written, or the path cannot be signed.
    pub(super) fn sign_form(
        &self,
        path: &str,
        authority: &str,
        body: &[u8],
        now_unix: i64,
    ) -> Result<Vec<(&'static str, Secret)>, Stop> {
        let time = time(now_unix).ok_or(Stop::new(Reason::Internal, "the clock cannot be written"))?;
        let mut fields = Fields::with_room(256);
        fields.push("content-type", b"application/x-www-form-urlencoded");
        fields.push("x-amz-date", time.as_bytes());
        let mut sent = vec![("x-amz-date", Secret::new(time.clone().into_bytes()))];
        if let Some(token) = &self.session_token {
            fields.push("x-amz-security-token", token.expose());
            sent.push(("x-amz-security-token", Secret::new(token.expose().to_vec())));
        }
        let path = canonical::path(path, self.is_s3())?;
        let hash = hex(&Sha256::digest(body));
        let signed = self.signed(("POST", &path, ""), &fields, authority, &hash, &time);
        sent.push(("authorization", signed.authorization));
        Ok(sent)
    }

    fn signed(
        &self,
        (method, path, query): (&str, &str, &str),
        fields: &Fields,
        authority: &str,
        hash: &str,
        time: &str,
    ) -> WithKey {
        let (fields, names) = canonical::fields(fields, authority);
        let request = Zeroizing::new(
            [
                method.as_bytes(),
                path.as_bytes(),
                query.as_bytes(),
                &fields,
                names.as_bytes(),
                hash.as_bytes(),
            ]
            .join(&b'\n'),
        );
        let day = time.get(..8).unwrap_or_default();
        let scope = format!("{day}/{}/{}/aws4_request", self.region, self.service);
        let key = self.key(day);
        let text = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{}", hex(&Sha256::digest(&*request)));
        let signature = hex(&mac(&*key, text.as_bytes()));
        let authorization = [
            b"AWS4-HMAC-SHA256 Credential=",
            self.access_key_id.expose(),
            format!("/{scope}, SignedHeaders={names}, Signature={signature}").as_bytes(),
        ]
        .concat();
        WithKey { authorization: Secret::new(authorization), key, scope, signature }
    }

    fn is_s3(&self) -> bool {
        matches!(&*self.service, "s3" | "s3-object-lambda" | "s3-outposts" | "s3express")
    }

    fn key(&self, day: &str) -> Zeroizing<[u8; 32]> {
        let secret = Zeroizing::new([b"AWS4", self.secret_access_key.expose()].concat());
        let mut key = Zeroizing::new(mac(&secret, day.as_bytes()));
        for part in [&*self.region, &*self.service, "aws4_request"] {
            key = Zeroizing::new(mac(&*key, part.as_bytes()));
        }
        key
    }
}

/// `20260131T235959Z`.
fn time(now_unix: i64) -> Option<String> {
    Some(jiff::Timestamp::from_second(now_unix).ok()?.strftime("%Y%m%dT%H%M%SZ").to_string())
}

fn mac(key: &[u8], text: &[u8]) -> [u8; 32] {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text);
    let mut out = [0; 32];
    // The tag of this algorithm has 32 bytes.
    out.iter_mut().zip(tag.as_ref()).for_each(|(place, byte)| *place = *byte);
    out
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
