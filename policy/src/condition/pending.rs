//! A request whose body decides: what is held for it, and the answer once it is there.

use std::sync::Arc;

use super::coding::BodyCoding;
use super::{Check, Facts, Inspection, Miss, Terms};
use crate::draft::Effect;
use crate::{Permit, Reason, Refusal, RuleId};

/// A body as the caller holds it, decoded.
#[derive(Debug, Clone, Copy)]
pub enum HeldBody<'a> {
    /// All of it; an empty one for a request that has none.
    Whole(&'a [u8]),
    /// Its first bytes, after [`PendingBody::is_enough`] said that they are enough. The rest follows as it comes.
    Beginning(&'a [u8]),
    /// It is longer than [`PendingBody::limit_bytes`], as it came or decoded.
    TooLarge,
    /// It ends before its coding does.
    Truncated,
    /// It is not in the coding that its head names.
    Undecodable,
}

/// The head passes, and the body decides. Hold the body, up to the limit, and hand it to [`PendingBody::inspect`]: nothing
/// else makes a permit of it, and nothing of the request goes upstream before.
#[derive(Debug)]
#[must_use]
pub struct PendingBody {
    pub(crate) denies: Vec<(RuleId, Arc<Terms>)>,
    /// In the order in which they are tried; the first whose terms hold decides.
    pub(crate) candidates: Vec<Candidate>,
    /// Why the coding cannot be undone, where it cannot.
    pub(crate) coding: Result<BodyCoding, Miss>,
    pub(crate) facts: Facts,
}

/// An allow rule that matches as far as the head goes.
#[derive(Debug)]
pub(crate) struct Candidate {
    pub(crate) permit: Permit,
    /// `None`: the head was enough.
    pub(crate) terms: Option<Arc<Terms>>,
}

impl PendingBody {
    /// Bytes, as they came and decoded, that are worth holding. One more is [`HeldBody::TooLarge`].
    pub fn limit_bytes(&self) -> u64 {
        self.terms().map(|terms| terms.inspect_limit()).max().unwrap_or(0)
    }

    /// How the body is to be decoded before it is handed over; `None` where nobody can, and holding it is no use.
    pub fn coding(&self) -> Option<BodyCoding> {
        self.coding.as_ref().ok().copied()
    }

    fn terms(&self) -> impl Iterator<Item = &Arc<Terms>> {
        let denies = self.denies.iter().map(|(_, terms)| terms);
        denies.chain(self.candidates.iter().filter_map(|candidate| candidate.terms.as_ref()))
    }

    /// Whether a body larger than the limit may do all the same: the rules look at its beginning only.
    pub fn judges_beginnings(&self) -> bool {
        self.coding == Ok(BodyCoding::Identity) && self.terms().all(|terms| terms.body.judges_beginnings())
    }

    /// Whether these first bytes are all that the rules look at. Hand them over as [`HeldBody::Beginning`] then.
    pub fn is_enough(&self, bytes: &[u8]) -> bool {
        self.judges_beginnings() && self.terms().all(|terms| terms.body.is_enough(bytes))
    }

    /// Decides on the body. Deny wins, and a body that cannot be read is refused wherever a deny rule wants to look at it.
    ///
    /// # Errors
    /// The deny rule that matches, or why no allow rule does.
    pub fn inspect(self, body: HeldBody<'_>) -> Result<Permit, Refusal> {
        let bytes = match (self.coding, body) {
            (Err(miss), _) => Err(miss),
            (Ok(_), HeldBody::Whole(bytes) | HeldBody::Beginning(bytes)) => Ok(bytes),
            (Ok(_), HeldBody::TooLarge) => {
                Err(Miss::new(Reason::InspectionTooLarge, "the body is larger than what is held"))
            }
            (Ok(_), HeldBody::Truncated) => {
                Err(Miss::new(Reason::InspectionTruncated, "the encoded body ends too early"))
            }
            (Ok(_), HeldBody::Undecodable) => {
                Err(Miss::new(Reason::InspectionEncoding, "the body is not in the encoding that it names"))
            }
        };
        let inspection = match body {
            HeldBody::Beginning(_) => Inspection::of_beginning(&self.facts, bytes),
            _ => Inspection::new(&self.facts, bytes),
        };
        for (rule, terms) in self.denies {
            match terms.body(Effect::Deny, &inspection) {
                Check::Fails(_) => {}
                Check::Holds => return Err(Refusal::by(Reason::DeniedByRule, rule)),
                // SECURITY: what a deny rule cannot look at is not let through unseen. Guarded by
                // `tests/conditions.rs`.
                Check::Unclear(miss) => {
                    return Err(Refusal { rule: Some(rule), ..Refusal::from(miss) });
                }
                Check::NeedsBody => return Err(Reason::Internal.into()),
            }
        }
        let (mut fails, mut unclear) = (None, None);
        for Candidate { permit, terms } in self.candidates {
            let Some(terms) = terms else {
                // The head was enough for this rule, but a body that no rule can read does not pass as if none had looked.
                match unclear {
                    None => return Ok(permit),
                    Some(_) => break,
                }
            };
            match terms.body(Effect::Allow, &inspection) {
                Check::Holds => return Ok(permit),
                Check::Fails(miss) => fails = fails.or(Some(miss)),
                Check::Unclear(miss) => unclear = unclear.or(Some(miss)),
                Check::NeedsBody => return Err(Reason::Internal.into()),
            }
        }
        Err(unclear.or(fails).map_or_else(|| Reason::Internal.into(), Refusal::from))
    }
}

impl From<Miss> for Refusal {
    fn from(miss: Miss) -> Self {
        Self { reason: miss.reason, rule: None, detail: Some(miss.detail) }
    }
}
