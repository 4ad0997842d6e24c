//! `placeholder` of an API: what guests get in place of its credential.

use super::table::Fields;
use super::table::Reader;
use crate::diagnostic::{Code, Diagnostic};
use crate::model::PlaceholderView;

pub(crate) const PLACEHOLDER_FIELDS: &[&str] = &["variable", "value"];

/// Fewer random letters could be met by chance, or guessed.
const STARS_MIN: usize = 12;
const VALUE_MAX_BYTES: usize = 512;

/// Variables that change what a program runs or trusts are not for a policy to set.
const RESERVED: &[&str] = &["PATH", "HOME", "PWD", "SHELL", "IFS", "ENV", "TMPDIR", "USER", "LOGNAME"];
const RESERVED_PREFIXES: &[&str] =
    &["LD_", "DYLD_", "GLIBC_", "MALLOC_", "BASH_", "PYTHON", "NODE_", "PERL", "RUBY", "GIT_"];

pub(super) fn read(reader: &mut Reader<'_, '_>, fields: &Fields<'_, '_>) -> Option<PlaceholderView> {
    let header = fields.get("placeholder")?.span();
    let table = fields.table(reader, "placeholder")?;
    if fields.get("credential").is_none() {
        let help = "a placeholder stands for a credential that the broker attaches: add `credential`";
        reader.error(Code::MissingField, header.clone(), "a placeholder without a credential", help);
    }
    let inner = Fields::new(reader, table, header, "`placeholder`", PLACEHOLDER_FIELDS);
    let variable = inner.required_text(reader, "variable", "variable = \"SLACK_BOT_TOKEN\"");
    let value = inner.required_text(reader, "value", "value = \"xoxb-****************\"");
    let variable = variable.filter(|variable| {
        let name = variable.value.as_str();
        let plain = name.starts_with(|c: char| c.is_ascii_uppercase())
            && name.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_');
        let reserved =
            RESERVED.contains(&name) || RESERVED_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
        if !plain || reserved {
            let message = format!("`{}` cannot be the variable of a placeholder", name.escape_debug());
            let help = "use the name that the program looks for, in capitals; variables that steer programs are not set";
            reader.push(Diagnostic::error(Code::BadValue, message).at(variable.place.clone()).help(help));
        }
        plain && !reserved
    });
    let value = value.filter(|value| {
        let text = value.value.as_str();
        let stars = text.bytes().filter(|byte| *byte == b'*').count();
        let fine = stars >= STARS_MIN
            && text.len() <= VALUE_MAX_BYTES
            && text.bytes().all(|byte| byte.is_ascii_graphic());
        if !fine {
            let help =
                "visible ASCII with at least twelve `*`, each of which becomes a random letter or digit";
            let message = "the value of a placeholder has no room for chance";
            reader.push(Diagnostic::error(Code::BadValue, message).at(value.place.clone()).help(help));
        }
        fine
    });
    Some(PlaceholderView { variable: variable?.value, form: value?.value })
}
