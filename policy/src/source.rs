//! Policy text as handed in: bytes to text, and byte offsets to lines and columns.

use std::sync::Arc;

use crate::diagnostic::{Code, Diagnostic, Place};
use crate::limits::FILE_MAX_BYTES;

const POLICY_SUFFIX: &str = ".toml";
const CASES_SUFFIX: &str = ".test.toml";

/// One file of a policy folder. `name` is its path below the folder, as diagnostics show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceFile {
    pub name: String,
    pub text: String,
}

impl SourceFile {
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Self {
        Self { name: name.into(), text: text.into() }
    }

    /// Takes the bytes of a file. Policy files are UTF-8; a byte order mark at the start is dropped.
    ///
    /// # Errors
    /// A diagnostic for a file that is too large, UTF-16 or not UTF-8 (ATTACKS G31).
    pub fn decode(name: &str, bytes: &[u8]) -> Result<Self, Box<Diagnostic>> {
        let refuse = |message: &str, help: &str| {
            let place = Place::start_of(name);
            Err(Box::new(Diagnostic::error(Code::Encoding, message).at(place).help(help)))
        };
        if bytes.len() > FILE_MAX_BYTES {
            return refuse("the file is larger than 4 MiB", "split it into several files of the folder");
        }
        if matches!(bytes, [0xff, 0xfe, ..] | [0xfe, 0xff, ..] | [0, _, ..] | [_, 0, ..]) {
            return refuse("the file is UTF-16", "save it as UTF-8");
        }
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(Self::new(name, text.strip_prefix('\u{feff}').unwrap_or(text))),
            Err(error) => {
                let line =
                    bytes.get(..error.valid_up_to()).unwrap_or_default().split(|byte| *byte == b'\n').count();
                refuse(&format!("the file is not UTF-8: line {line} has a bad byte"), "save it as UTF-8")
            }
        }
    }

    /// Whether a file of a policy folder holds policy: `*.toml`, but neither `*.test.toml` nor a hidden file.
    pub fn is_policy(name: &str) -> bool {
        let base = base_name(name);
        base.ends_with(POLICY_SUFFIX) && !base.ends_with(CASES_SUFFIX) && !base.starts_with('.')
    }

    /// Whether a file of a policy folder holds cases for `freeboard policy test`: `*.test.toml`.
    pub fn is_cases(name: &str) -> bool {
        let base = base_name(name);
        base.ends_with(CASES_SUFFIX) && !base.starts_with('.')
    }
}

fn base_name(name: &str) -> &str {
    name.rsplit(['/', '\\']).next().unwrap_or(name)
}

/// A file with its line starts, for turning spans into places.
#[derive(Debug)]
pub(crate) struct Located<'a> {
    pub(crate) name: Arc<str>,
    pub(crate) text: &'a str,
    line_starts: Vec<usize>,
}

impl<'a> Located<'a> {
    pub(crate) fn new(file: &'a SourceFile) -> Self {
        let text = file.text.strip_prefix('\u{feff}').unwrap_or(&file.text);
        let after_breaks = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at + 1);
        Self {
            name: Arc::from(file.name.as_str()),
            text,
            line_starts: std::iter::once(0).chain(after_breaks).collect(),
        }
    }

    /// The place of a byte range; a range over several lines is cut at the end of its first line.
    pub(crate) fn place(&self, span: std::ops::Range<usize>) -> Place {
        let start = span.start.min(self.text.len());
        let index = self.line_starts.partition_point(|at| *at <= start).saturating_sub(1);
        let line_start = self.line_starts.get(index).copied().unwrap_or(0);
        let line_end = self.line_starts.get(index + 1).copied().unwrap_or(self.text.len());
        let line = self.text.get(line_start..line_end).unwrap_or_default().trim_end_matches(['\n', '\r']);
        let before = self.text.get(line_start..start).unwrap_or_default();
        let marked = self.text.get(start..span.end.min(line_start + line.len())).unwrap_or_default();
        Place {
            file: Arc::clone(&self.name),
            line: number(index + 1),
            column: number(before.chars().count() + 1),
            width: number(marked.chars().count().max(1)),
            text: Arc::from(line),
        }
    }
}

fn number(value: usize) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}
