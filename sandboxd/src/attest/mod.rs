//! Run records that are signed: who holds a run's answer can show it to somebody else, who needs only a public key.
//!
//! `statement` says what is signed (in-toto), `envelope` how (DSSE), `key` with what, `tpm` what a chip of the host says beside it;
//! `signer` is the process that holds the key, and the line to it. The daemon never holds it: whoever takes the daemon over can lie about runs from then on, but
//! cannot sign for later, and not for another host.

mod envelope;
mod key;
mod signer;
mod statement;
mod tpm;

pub use envelope::{PAYLOAD_TYPE, seal, verify, verify_quote};
pub use key::{KeyError, PrivateKey, PublicKey, generate};
pub use signer::{Serving, Signer, SignerError};
pub use statement::{PREDICATE_TYPE, Statement, StatementError};
pub use tpm::{DEFAULT_REGISTERS, NotQuoted, QuoteKey, Quoter, REGISTERS};
