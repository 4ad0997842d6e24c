//! `git = { operation = "push", refs = [...], changes = [...], max_pack = "..." }`.

use toml::Spanned;

use super::super::table::{Fields, Reader};
use super::protocols::opened;
use super::word;
use crate::condition::git::{GitOperation, GitTest, RefChange, RefPattern};
use crate::diagnostic::Code;
use crate::draft::Effect;
use crate::units::size_bytes;

pub(crate) const GIT_FIELDS: &[&str] = &["operation", "refs", "changes", "max_pack", "force"];

pub(super) fn read(reader: &mut Reader<'_, '_>, fields: &Fields<'_, '_>, effect: Effect) -> Option<GitTest> {
    let inner = opened(reader, fields, "git", GIT_FIELDS)?;
    let operation = operation(reader, &inner)?;
    let help = "a size such as `\"32MiB\"`, of the whole push as it is sent";
    let mut test = GitTest {
        operation,
        refs: refs(reader, &inner),
        changes: changes(reader, &inner),
        max_pack_bytes: inner.measured(reader, "max_pack", size_bytes, help),
    };
    match (operation, effect) {
        (GitOperation::Fetch, _) => {
            for key in ["refs", "changes", "max_pack", "force"] {
                let why = "a fetch asks for object ids, and only the server knows what refs they belong to";
                refuse(reader, &inner, key, why);
            }
        }
        (GitOperation::Push, Effect::Deny) => {
            for key in ["max_pack", "force"] {
                refuse(reader, &inner, key, "a deny rule looks at what a push names");
            }
        }
        (GitOperation::Push, Effect::Allow) => {
            if inner.get("refs").is_none() {
                inner.missing(reader, "refs", "refs = [\"refs/heads/bot/**\"]");
            }
            if test.changes.is_empty() {
                test.changes.push(RefChange::Create);
            }
            force(reader, &inner, &test);
        }
    }
    Some(test)
}

/// `force` is taken only where the lines of a push can prove it.
fn force(reader: &mut Reader<'_, '_>, fields: &Fields<'_, '_>, test: &GitTest) {
    let Some(value) = fields.get("force") else { return };
    let force = fields.flag(reader, "force");
    if force != test.changes.contains(&RefChange::Update) {
        let message = if force {
            "`force` needs `\"update\"` among the changes"
        } else {
            "whether a push is by force cannot be seen in it: `update` lets a ref be moved anywhere"
        };
        let help = "allow `changes = [\"create\"]` only, or let the server refuse what is no fast-forward \
                    (receive.denyNonFastForwards, protected branches) and leave `force` out";
        reader.error(Code::BadCondition, value.span(), message, help);
    }
}

fn refuse(reader: &mut Reader<'_, '_>, fields: &Fields<'_, '_>, key: &str, why: &str) {
    if let Some(value) = fields.get(key) {
        let message = format!("`{key}` cannot be enforced here: {why}");
        reader.error(Code::BadCondition, value.span(), message, &format!("leave `{key}` out"));
    }
}

fn operation(reader: &mut Reader<'_, '_>, fields: &Fields<'_, '_>) -> Option<GitOperation> {
    let text = fields.required_text(reader, "operation", "operation = \"fetch\"")?;
    let span = fields.get("operation").map_or(0..0, Spanned::span);
    let words = GitOperation::ALL.map(GitOperation::word);
    word(reader, &text.value, span, "an operation of git", &words).and_then(GitOperation::from_word)
}

fn refs(reader: &mut Reader<'_, '_>, fields: &Fields<'_, '_>) -> Vec<RefPattern> {
    let mut patterns = Vec::new();
    for (text, span) in fields.texts(reader, "refs").unwrap_or_default() {
        match RefPattern::parse(text) {
            Ok(pattern) => patterns.push(pattern),
            Err(why) => {
                let message = format!("`{}` is not a pattern of refs", text.escape_debug());
                reader.error(Code::BadCondition, span, message, why);
            }
        }
    }
    patterns
}

fn changes(reader: &mut Reader<'_, '_>, fields: &Fields<'_, '_>) -> Vec<RefChange> {
    let words = RefChange::ALL.map(RefChange::word);
    let texts = fields.texts(reader, "changes").unwrap_or_default();
    let found =
        texts.into_iter().filter_map(|(text, span)| word(reader, text, span, "a change of a ref", &words));
    found.filter_map(RefChange::from_word).collect()
}
