//! A quote of a TPM 2.0 beside a signature: the key of a chip that cannot be copied says which envelope it saw, and what the host
//! was started with. The chip is asked by the well-kept programs of the TPM2 software stack, since a process that signs must not link
//! a stack of its own; what they bring back is verified here, and needs no chip.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1, RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey, VerificationAlgorithm,
};
use freeboard_wire::digest::{hex, sha256_hex};
use freeboard_wire::runs::Quote;
use sha2::{Digest as _, Sha256};
use tokio::process::Command;
use tokio::sync::Mutex;
use x509_parser::prelude::{FromDer as _, SubjectPublicKeyInfo};

use super::key::{KeyError, read_public};

/// The program that asks the chip for a quote (Debian package `tpm2-tools`).
const QUOTE_PROGRAM: &str = "tpm2_quote";
/// `TPM_GENERATED_VALUE`: nothing that a key signs for others begins so (TPM 2.0 library, part 2, 6.2).
const GENERATED: u32 = 0xff54_4347;
/// `TPM_ST_ATTEST_QUOTE` (part 2, 6.9).
const QUOTED: u16 = 0x8018;
/// `TPM_ALG_SHA256` (part 2, 6.3).
const SHA256: u16 = 0x000b;
/// Bytes of `TPMS_CLOCK_INFO` (part 2, 10.11.1) and of the version of the firmware behind it.
const CLOCK_AND_FIRMWARE_BYTES: usize = 17 + 8;
/// Registers of a bank: what the PC Client profile has.
pub const REGISTERS: u8 = 24;

/// Why there is no quote.
#[derive(Debug, thiserror::Error)]
pub enum QuoteError {
    #[error("cannot ask the TPM by `{QUOTE_PROGRAM}`; the package tpm2-tools has it")]
    Program(#[source] io::Error),
    #[error("the TPM gives no quote: {0}")]
    Refused(String),
    #[error("the quote is not for what was asked: {0}")]
    Wrong(#[from] NotQuoted),
}

/// Why a quote does not count.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotQuoted {
    #[error("there is none")]
    Missing,
    #[error("its signature is not of this key")]
    Signature,
    #[error("it is no quote of a TPM")]
    Form,
    #[error("it is about something else")]
    Other,
    #[error("it is not about the registers that stand beside it")]
    Registers,
    #[error("register {register} is {found}")]
    Register { register: u8, found: String },
}

/// A key in a TPM, and the registers that are quoted with it.
#[derive(Debug)]
pub struct Quoter {
    /// Handle or context file, as `tpm2_quote -c` takes it.
    key: String,
    registers: Vec<u8>,
    /// A chip answers one question at a time.
    turn: Mutex<()>,
}

impl Quoter {
    pub fn new(key: String, registers: &[u8]) -> Self {
        let mut registers = registers.to_vec();
        registers.sort_unstable();
        registers.dedup();
        Self { key, registers, turn: Mutex::new(()) }
    }

    /// Has the TPM quote the registers for a message.
    pub async fn quote(&self, message: &[u8]) -> Result<Quote, QuoteError> {
        let folder = tempfile::tempdir().map_err(QuoteError::Program)?;
        let at = |name: &str| folder.path().join(name);
        let registers = self.registers.iter().map(u8::to_string).collect::<Vec<_>>().join(",");
        let turn = self.turn.lock().await;
        let mut command = Command::new(QUOTE_PROGRAM);
        command.args(["-Q", "-c", &self.key, "-l", &format!("sha256:{registers}"), "-g", "sha256"]);
        command.args(["-q", &sha256_hex(message), "-f", "plain", "--pcrs_format=values"]);
        command.arg("-m").arg(at("attested")).arg("-s").arg(at("sig")).arg("-o").arg(at("registers"));
        let output = command.stdin(Stdio::null()).kill_on_drop(true).output().await;
        drop(turn);
        let output = output.map_err(QuoteError::Program)?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(QuoteError::Refused(said.trim().replace('\n', "; ")));
        }
        let read = |name| std::fs::read(at(name)).map_err(QuoteError::Program);
        let values = read("registers")?;
        let values = values.chunks(32).map(hex);
        let quote = Quote {
            attested: read("attested")?,
            sig: read("sig")?,
            registers: self.registers.iter().copied().zip(values).collect(),
        };
        about(&quote, message)?;
        Ok(quote)
    }
}

/// Which registers are quoted where nothing is said: firmware, its settings, boot loader and secure boot.
pub const DEFAULT_REGISTERS: [u8; 8] = [0, 1, 2, 3, 4, 5, 6, 7];

/// The public half of a key in a TPM: ECDSA with P-256, or RSA (PKCS #1 v1.5), both with SHA-256.
pub struct QuoteKey {
    algorithm: &'static dyn VerificationAlgorithm,
    point_or_numbers: Vec<u8>,
}

impl std::fmt::Debug for QuoteKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("QuoteKey").field("algorithm", &self.algorithm).finish_non_exhaustive()
    }
}

impl QuoteKey {
    /// Of a file as `tpm2_createak -f pem` writes it.
    pub fn read(path: &Path) -> Result<Self, KeyError> {
        let spki = read_public(path)?;
        Self::of_spki(&spki).ok_or_else(|| KeyError::QuoteKey(PathBuf::from(path)))
    }

    fn of_spki(spki: &[u8]) -> Option<Self> {
        let (_, info) = SubjectPublicKeyInfo::from_der(spki).ok()?;
        let algorithm: &'static dyn VerificationAlgorithm =
            match info.algorithm.algorithm.to_id_string().as_str() {
                "1.2.840.10045.2.1" => &ECDSA_P256_SHA256_ASN1,
                "1.2.840.113549.1.1.1" => &RSA_PKCS1_2048_8192_SHA256,
                _ => return None,
            };
        Some(Self { algorithm, point_or_numbers: info.subject_public_key.data.to_vec() })
    }

    /// Whether the TPM of this key quoted the message, with these values of registers among those quoted.
    pub fn verify(
        &self,
        quote: Option<&Quote>,
        message: &[u8],
        expected: &BTreeMap<u8, String>,
    ) -> Result<(), NotQuoted> {
        let quote = quote.ok_or(NotQuoted::Missing)?;
        // SECURITY: the values of registers beside a quote are anybody's words until the signed digest of them agrees.
        // Guarded by a_quote_that_was_changed_does_not_verify.
        UnparsedPublicKey::new(self.algorithm, &self.point_or_numbers)
            .verify(&quote.attested, &quote.sig)
            .map_err(|_| NotQuoted::Signature)?;
        about(quote, message)?;
        for (register, value) in expected {
            match quote.registers.get(register) {
                Some(found) if found.eq_ignore_ascii_case(value) => {}
                found => {
                    let found = found.map_or("not quoted", String::as_str).to_owned();
                    return Err(NotQuoted::Register { register: *register, found });
                }
            }
        }
        Ok(())
    }
}

/// Whether what the TPM signed is a quote for this message, of the registers beside it.
fn about(quote: &Quote, message: &[u8]) -> Result<(), NotQuoted> {
    let attested = Attested::parse(&quote.attested).ok_or(NotQuoted::Form)?;
    if attested.qualifying != Sha256::digest(message).as_slice() {
        return Err(NotQuoted::Other);
    }
    let named: Vec<u8> = quote.registers.keys().copied().collect();
    let mut values = Sha256::new();
    for value in quote.registers.values() {
        values.update(unhex(value).ok_or(NotQuoted::Registers)?);
    }
    let agree = attested.registers == named && attested.digest == values.finalize().as_slice();
    if agree { Ok(()) } else { Err(NotQuoted::Registers) }
}

/// `TPMS_ATTEST` with `TPMS_QUOTE_INFO` (part 2, 10.12.8 and 10.12.1), as far as it says something here.
struct Attested<'a> {
    /// What the asker wanted in it.
    qualifying: &'a [u8],
    registers: Vec<u8>,
    /// Of the values of the registers.
    digest: &'a [u8],
}

impl<'a> Attested<'a> {
    fn parse(bytes: &'a [u8]) -> Option<Self> {
        let mut rest = Reader(bytes);
        if rest.u32()? != GENERATED || rest.u16()? != QUOTED {
            return None;
        }
        let _name_of_the_key = rest.sized()?;
        let qualifying = rest.sized()?;
        rest.take(CLOCK_AND_FIRMWARE_BYTES)?;
        // One bank.
        if rest.u32()? != 1 || rest.u16()? != SHA256 {
            return None;
        }
        let bits = usize::from(rest.u8()?);
        let bits = rest.take(bits)?;
        let chosen = |register: &u8| {
            bits.get(usize::from(register / 8)).is_some_and(|byte| byte >> (register % 8) & 1 == 1)
        };
        let most = u8::try_from(bits.len().checked_mul(8)?).ok()?;
        let registers = (0..most).filter(chosen).collect();
        let digest = rest.sized()?;
        rest.0.is_empty().then_some(Self { qualifying, registers, digest })
    }
}

/// Numbers of a TPM are big-endian; what has a length has it before itself, in two bytes.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }

    fn u16(&mut self) -> Option<u16> {
        Some(u16::from_be_bytes(self.take(2)?.try_into().ok()?))
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_be_bytes(self.take(4)?.try_into().ok()?))
    }

    fn sized(&mut self) -> Option<&'a [u8]> {
        let length = self.u16()?;
        self.take(usize::from(length))
    }
}

/// 32 bytes of 64 hex digits.
fn unhex(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if text.len() != 64 || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(index * 2..index * 2 + 2)?, 16).ok()?;
    }
    Some(bytes)
}
