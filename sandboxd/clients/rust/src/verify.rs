//! Whether an answer counts.

use freeboard_wire::TIERS;
use freeboard_wire::digest::sha256_hex;
use freeboard_wire::runs::{Executed, Run, record_digest, result_digest};

use super::Error;

/// The run, when it has a result whose record is that of `sent` and of the result, at a tier that `floor` accepts.
pub fn check(run: Run, sent: &[u8], floor: &str) -> Result<Run, Error> {
    let ending = run.ending.map_or("not over", freeboard_wire::runs::Ending::word);
    if run.executed == Executed::No {
        return Err(match run.refusal {
            Some(refusal) => {
                Error::Refused { code: refusal.code, reason: refusal.reason, message: refusal.message }
            }
            None => Error::Refused {
                code: "canceled".to_owned(),
                reason: String::new(),
                message: format!("the run is {ending}"),
            },
        });
    }
    let problem = match (&run.record, &run.result, run.ending) {
        (Some(record), Some(result), Some(ending)) => {
            if record.run != run.run {
                Some("the record is of another run".to_owned())
            } else if record.request_sha256 != sha256_hex(sent) {
                Some("the record is of another request".to_owned())
            } else if record.result_sha256 != result_digest(record.version, ending, result) {
                Some("the result is not the one of the record".to_owned())
            } else if record.record_sha256 != record_digest(record) {
                Some("the record does not match its own digest".to_owned())
            } else if !floor.is_empty() && rank(&record.isolation) < rank(floor) {
                Some(format!("it ran at tier {}, below {floor}", record.isolation))
            } else {
                None
            }
        }
        _ => Some(
            run.refusal
                .as_ref()
                .map_or_else(|| format!("the run is {ending}"), |refusal| refusal.message.clone()),
        ),
    };
    match problem {
        None => Ok(run),
        Some(message) => Err(Error::Failed { message, run: Some(Box::new(run)) }),
    }
}

/// Weakest first; a tier that is not known is below all.
fn rank(tier: &str) -> Option<usize> {
    TIERS.iter().position(|name| *name == tier)
}
