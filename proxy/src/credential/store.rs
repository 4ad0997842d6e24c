//! The credentials of one policy generation: read, minted and refreshed in single flight.
//!
//! In: a credential's description and a caller. Out: what to attach, fresh. When it cannot be had, the request is
//! refused with `credential_unavailable`; a stale or expired secret is never handed out.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use base64::Engine as _;
use freeboard_policy::{CredentialView, Reason, SecretReference};
use lru::LruCache;

use super::jwt::{self, JwtShape};
use super::source::{self, Stamp};
use super::{Attach, Material, Scrubber, Secret, next_identity};
use crate::error::Stop;
use crate::limits::{
    MINTED_TOKENS_PER_CREDENTIAL, SECRET_EXEC_MAX_AGE, SECRET_FAILURE_PAUSE, SECRET_RECHECK,
    TOKEN_RENEW_BEFORE,
};

/// Holds what was read and minted. One per policy generation; app and reload use `Store::default()`.
#[derive(Debug, Default)]
pub struct Store {
    slots: Mutex<HashMap<Arc<str>, Arc<Slot>>>,
}

/// One credential. Static kinds have one entry, `jwt` one per caller.
#[derive(Debug)]
struct Slot {
    entries: Mutex<LruCache<Option<Arc<str>>, Entry>>,
    /// Single flight: whoever holds it reads or mints; the others wait and find the result (ATTACKS E27).
    working: tokio::sync::Mutex<Option<Failed>>,
}

#[derive(Debug, Clone)]
struct Entry {
    material: Arc<Material>,
    stamp: Stamp,
    checked: Instant,
    read: Instant,
    /// For minted tokens: when to mint the next one.
    renew: Option<Instant>,
}

/// A failure is not tried again at once by everybody who waits.
#[derive(Debug)]
struct Failed {
    at: Instant,
    stop: Stop,
}

impl Store {
    /// What to attach for `caller`.
    ///
    /// # Errors
    /// `credential_unavailable`; the detail names the reference, never the secret.
    pub async fn material(
        &self,
        name: &Arc<str>,
        view: &CredentialView,
        caller: Option<&Arc<str>>,
        now_unix: i64,
    ) -> Result<Arc<Material>, Stop> {
        let slot = self.slot(name);
        let key = if matches!(view, CredentialView::Jwt { .. }) { caller.cloned() } else { None };
        if let Some(found) = slot.usable(key.as_ref(), view) {
            return Ok(found);
        }
        let mut working = slot.working.lock().await;
        if let Some(found) = slot.usable(key.as_ref(), view) {
            return Ok(found);
        }
        if let Some(failed) = working.as_ref().filter(|failed| failed.at.elapsed() < SECRET_FAILURE_PAUSE) {
            return Err(failed.stop.clone());
        }
        match make(name, view, key.as_deref(), now_unix).await {
            Ok(mut entry) => {
                *working = None;
                slot.keep(key, &mut entry);
                Ok(entry.material)
            }
            Err(detail) => {
                let stop =
                    Stop::with(Reason::CredentialUnavailable, format!("credential `{name}`: {detail}"));
                *working = Some(Failed { at: Instant::now(), stop: stop.clone() });
                Err(stop)
            }
        }
    }

    fn slot(&self, name: &Arc<str>) -> Arc<Slot> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = slots.get(name) {
            return Arc::clone(slot);
        }
        let entries = NonZeroUsize::new(MINTED_TOKENS_PER_CREDENTIAL).unwrap_or(NonZeroUsize::MIN);
        let slot = Arc::new(Slot {
            entries: Mutex::new(LruCache::new(entries)),
            working: tokio::sync::Mutex::new(None),
        });
        slots.insert(Arc::clone(name), Arc::clone(&slot));
        slot
    }
}

impl Slot {
    /// What is at hand and still good. Looks at the source once a second at most.
    fn usable(&self, key: Option<&Arc<str>>, view: &CredentialView) -> Option<Arc<Material>> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = entries.get_mut(&key.cloned())?;
        let now = Instant::now();
        if entry.renew.is_some_and(|renew| now >= renew) {
            return None;
        }
        if now.duration_since(entry.checked) >= SECRET_RECHECK {
            let aged = entry.stamp == Stamp::Ages && now.duration_since(entry.read) >= SECRET_EXEC_MAX_AGE;
            if aged || reference(view).and_then(source::stamp) != Some(entry.stamp) {
                return None;
            }
            entry.checked = now;
        }
        Some(Arc::clone(&entry.material))
    }

    /// Keeps a new entry. The identity stays where the secret behind it is the same, so that upstream connections are
    /// not thrown away with every renewed token.
    fn keep(&self, key: Option<Arc<str>>, entry: &mut Entry) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(old) = entries.peek(&key)
            && old.stamp == entry.stamp
            && (entry.renew.is_some() || old.material.attach.same_secret(&entry.material.attach))
            && let Some(material) = Arc::get_mut(&mut entry.material)
        {
            material.identity = old.material.identity;
        }
        entries.put(key, entry.clone());
    }
}

/// `None` for kinds that [`super::minted`] serves.
fn reference(view: &CredentialView) -> Option<&SecretReference> {
    Some(match view {
        CredentialView::Bearer { token } => token,
        CredentialView::Header { value, .. } | CredentialView::Query { value, .. } => value,
        CredentialView::Basic { password, .. } => password,
        CredentialView::Jwt { key, .. } => key,
        _ => return None,
    })
}

async fn make(
    name: &Arc<str>,
    view: &CredentialView,
    caller: Option<&str>,
    now_unix: i64,
) -> Result<Entry, String> {
    let read = Instant::now();
    let reference = reference(view).ok_or("it is not read from one place")?;
    let (secret, stamp) = source::read(reference).await.map_err(|error| error.to_string())?;
    let mut renew = None;
    let (attach, scrubber) = match view {
        CredentialView::Bearer { .. } => bearer(&secret)?,
        CredentialView::Header { name, .. } => header(name, &secret)?,
        CredentialView::Basic { username, .. } => basic(username, &secret)?,
        CredentialView::Query { parameter, .. } => query(parameter, &secret)?,
        CredentialView::Jwt { .. } => {
            let shape = jwt_shape(view).ok_or("it is no jwt")?;
            let token = jwt::sign(shape, &secret, caller, now_unix).map_err(|error| error.to_string())?;
            let lifetime = Duration::from_secs(shape.ttl_seconds);
            renew = read.checked_add(lifetime.saturating_sub(TOKEN_RENEW_BEFORE.min(lifetime / 2)));
            bearer(&token)?
        }
        _ => return Err("it is minted".to_owned()),
    };
    let material = Arc::new(Material {
        name: Arc::clone(name),
        identity: next_identity(),
        attach,
        scrubber: Arc::new(scrubber),
    });
    Ok(Entry { material, stamp, checked: read, read, renew })
}

fn jwt_shape(view: &CredentialView) -> Option<JwtShape<'_>> {
    let CredentialView::Jwt { algorithm, key: _, issuer, audience, key_id, scope, ttl_seconds } = view else {
        return None;
    };
    Some(JwtShape {
        algorithm,
        issuer: issuer.as_deref(),
        audience: audience.as_deref(),
        key_id: key_id.as_deref(),
        scope: scope.as_deref(),
        ttl_seconds: *ttl_seconds,
    })
}

pub(super) fn bearer(token: &Secret) -> Result<(Attach, Scrubber), String> {
    if !token.expose().iter().all(u8::is_ascii_graphic) {
        return Err("the token has bytes that are not visible ASCII".to_owned());
    }
    let value = Secret::new([b"Bearer ", token.expose()].concat());
    Ok((Attach::Header { name: "authorization".into(), value }, Scrubber::new(&[token.expose()])))
}

pub(super) fn header(name: &str, secret: &Secret) -> Result<(Attach, Scrubber), String> {
    let bytes = secret.expose();
    let edge = |byte: Option<&u8>| byte.is_none_or(|byte| *byte == b' ');
    if edge(bytes.first()) || edge(bytes.last()) || !bytes.iter().all(|byte| matches!(byte, b' '..=b'~')) {
        return Err("the value has bytes that are not visible ASCII".to_owned());
    }
    let value = Secret::new(bytes.to_vec());
    // A value such as `token abc` is scrubbed as a whole and word by word.
    let words = bytes.split(|byte| *byte == b' ').filter(|word| word.len() >= 8);
    let scrubbed: Vec<&[u8]> = std::iter::once(bytes).chain(words).collect();
    Ok((Attach::Header { name: name.to_ascii_lowercase().into(), value }, Scrubber::new(&scrubbed)))
}

fn basic(username: &str, password: &Secret) -> Result<(Attach, Scrubber), String> {
    // RFC 7617 2: no colon in the user's name, no control characters in either.
    if username.contains(':') || username.chars().any(char::is_control) {
        return Err("the user name has a colon or a control character".to_owned());
    }
    if password.expose().iter().any(u8::is_ascii_control) {
        return Err("the password has a control character".to_owned());
    }
    let pair = Secret::new([username.as_bytes(), b":", password.expose()].concat());
    let encoded = Secret::new(base64::engine::general_purpose::STANDARD.encode(pair.expose()).into_bytes());
    let value = Secret::new([b"Basic ", encoded.expose()].concat());
    let scrubber = Scrubber::new(&[password.expose(), encoded.expose()]);
    Ok((Attach::Header { name: "authorization".into(), value }, scrubber))
}

fn query(parameter: &str, secret: &Secret) -> Result<(Attach, Scrubber), String> {
    if secret.expose().iter().any(u8::is_ascii_control) {
        return Err("the value has a control character".to_owned());
    }
    let encoded = percent_encoding::percent_encode(secret.expose(), super::scrub::UNRESERVED).to_string();
    let value = Secret::new(encoded.into_bytes());
    let scrubber = Scrubber::new(&[secret.expose()]);
    Ok((Attach::Query { parameter: parameter.into(), value }, scrubber))
}
