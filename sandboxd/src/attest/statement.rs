//! What is signed: an in-toto statement (v1) whose subject is a run's record, by its digest, with what was measured as predicate.

use std::collections::BTreeMap;

use freeboard_wire::runs::{Ending, Fact, Record, Run, record_digest, result_digest};
use serde::{Deserialize, Serialize};

use crate::limits::MAX_STATEMENT_BYTES;

/// The type of the statement.
const STATEMENT_TYPE: &str = "https://in-toto.io/Statement/v1";
/// The type of the predicate.
pub const PREDICATE_TYPE: &str = "urn:freeboard:run:v1";

/// Why an envelope or a statement does not count.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StatementError {
    #[error("no signature is of this key")]
    Signature,
    #[error("{0}")]
    Form(String),
    #[error("the record does not match its own digest")]
    Record,
    #[error("the statement is about another run")]
    OtherRun,
    #[error("the result is not the one of the record")]
    Result,
    #[error("the run has no record: nothing ran, or it is not known what")]
    NoRecord,
}

/// A statement about one run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Statement {
    #[serde(rename = "_type")]
    kind: String,
    subject: Vec<Subject>,
    #[serde(rename = "predicateType")]
    predicate_type: String,
    pub predicate: Predicate,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Subject {
    name: String,
    digest: BTreeMap<String, String>,
}

/// What is said of the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Predicate {
    pub ending: Ending,
    pub record: Record,
    /// What was measured before release; the result's digest in the record covers it.
    pub evidence: Vec<Fact>,
}

impl Statement {
    /// Of a run that has ended with a record.
    ///
    /// # Errors
    /// It has none.
    pub fn of(run: &Run) -> Result<Self, StatementError> {
        let (Some(ending), Some(record), Some(result)) = (run.ending, &run.record, &run.result) else {
            return Err(StatementError::NoRecord);
        };
        let digest = BTreeMap::from([("sha256".to_owned(), record.record_sha256.clone())]);
        let statement = Self {
            kind: STATEMENT_TYPE.to_owned(),
            subject: vec![Subject { name: format!("run:{}", record.run), digest }],
            predicate_type: PREDICATE_TYPE.to_owned(),
            predicate: Predicate { ending, record: record.clone(), evidence: result.evidence.clone() },
        };
        statement.check()?;
        statement.check_run(run)?;
        Ok(statement)
    }

    /// Reads one and checks that it is about the record that it holds: nothing else is signed, and nothing else counts.
    pub(super) fn parse(payload: &[u8]) -> Result<Self, StatementError> {
        if payload.len() > MAX_STATEMENT_BYTES {
            return Err(StatementError::Form(format!("it has more than {MAX_STATEMENT_BYTES} bytes")));
        }
        let statement: Self = serde_json::from_slice(payload)
            .map_err(|error| StatementError::Form(format!("it is no statement about a run: {error}")))?;
        statement.check()?;
        Ok(statement)
    }

    fn check(&self) -> Result<(), StatementError> {
        if self.kind != STATEMENT_TYPE || self.predicate_type != PREDICATE_TYPE {
            return Err(StatementError::Form("it is no statement about a run".to_owned()));
        }
        let record = &self.predicate.record;
        let digest = record_digest(record);
        let [subject] = self.subject.as_slice() else {
            return Err(StatementError::Form("it has not exactly one subject".to_owned()));
        };
        let named = subject.digest.len() == 1 && subject.digest.get("sha256") == Some(&digest);
        if digest != record.record_sha256 || !named {
            return Err(StatementError::Record);
        }
        if subject.name == format!("run:{}", record.run) { Ok(()) } else { Err(StatementError::OtherRun) }
    }

    /// Whether an answer is the one that the statement is about.
    pub fn check_run(&self, run: &Run) -> Result<(), StatementError> {
        let (Some(ending), Some(record), Some(result)) = (run.ending, &run.record, &run.result) else {
            return Err(StatementError::NoRecord);
        };
        let predicate = &self.predicate;
        if *record != predicate.record || run.run != record.run || ending != predicate.ending {
            return Err(StatementError::OtherRun);
        }
        let covered = record.result_sha256 == result_digest(record.version, ending, result);
        if covered && result.evidence == predicate.evidence { Ok(()) } else { Err(StatementError::Result) }
    }

    /// As it is signed.
    pub fn to_json(&self) -> Result<Vec<u8>, StatementError> {
        serde_json::to_vec(self).map_err(|error| StatementError::Form(error.to_string()))
    }
}
