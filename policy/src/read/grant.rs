//! `[grant.NAME]`: who may call which routes, behind which boundary, how long and how much.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::condition::{self, CONDITION_FIELDS};
use super::table::{Fields, Reader, shared};
use crate::diagnostic::{Code, Diagnostic, Severity};
use crate::draft::{At, Budget, DraftGrant, DraftGroup, DraftRoute, DraftRule, Effect, GrantDefaults};
use crate::limits::ROUTES_MAX;
use crate::model::{GrantView, Window};
use crate::route::line;
use crate::suggest::nearest;
use crate::units::{duration_seconds, end_of_day_unix, size_bytes};
use crate::{RuleId, Tier};

pub(crate) const GRANT_FIELDS: &[&str] = &[
    "callers",
    "groups",
    "extends",
    "floor",
    "ttl",
    "not_before",
    "expires",
    "schedule",
    "sessions",
    "budget",
    "allow",
    "deny",
];
pub(crate) const GROUP_FIELDS: &[&str] = &["callers"];
pub(crate) const DEFAULTS_FIELDS: &[&str] = &["floor", "ttl", "budget"];
pub(crate) const BUDGET_FIELDS: &[&str] =
    &["calls", "per_minute", "caller_per_minute", "concurrent", "request_bytes", "response_bytes"];
/// Fields of a rule beside `CONDITION_FIELDS`.
pub(crate) const RULE_FIELDS: &[&str] = &["api", "routes", "websocket"];

const SECONDS_PER_DAY: i64 = 86_400;
const DURATION_HELP: &str = "a whole number above 0 and `s`, `m`, `h` or `d`, for example `\"15m\"`";
const SIZE_HELP: &str = "a whole number above 0 and `B`, `KiB`, `MiB` or `GiB`, for example `\"1MiB\"`";

pub(super) fn read(
    reader: &mut Reader<'_, '_>,
    name: At<Arc<str>>,
    key: &Spanned<Cow<'_, str>>,
    table: &DeTable<'_>,
) -> Option<()> {
    let fields = Fields::new(reader, table, key.span(), "a grant", GRANT_FIELDS);
    let groups = references(reader, &fields, "groups");
    let callers = match fields.get("callers") {
        None if !groups.is_empty() => Some(Vec::new()),
        _ => callers(reader, &fields),
    };
    let extends = fields.text(reader, "extends").map(shared);
    let floor = floor(reader, &fields);
    let ttl_seconds = fields.measured(reader, "ttl", duration_seconds, DURATION_HELP);
    let expires_unix = day(reader, &fields, "expires", "the last day on which the grant works");
    let not_before = day(reader, &fields, "not_before", "the first day on which the grant works");
    let budget = budget(reader, &fields);
    let view = GrantView {
        name: Arc::clone(&name.value),
        floor,
        ttl_seconds,
        expires_unix,
        // A day ends when the next one begins.
        not_before_unix: not_before.map(|end| end - SECONDS_PER_DAY),
        schedule: schedule(reader, &fields),
        sessions: fields.flag(reader, "sessions"),
        calls: budget.calls,
        per_minute: budget.per_minute,
        caller_per_minute: budget.caller_per_minute,
        concurrent: budget.concurrent,
        request_bytes: budget.request_bytes,
        response_bytes: budget.response_bytes,
    };
    if let (Some(start), Some(end)) = (view.not_before_unix, view.expires_unix)
        && start >= end
    {
        let span = fields.get("not_before").map_or(0..0, Spanned::span);
        reader.error(Code::BadValue, span, "the grant ends before it begins", "the last day is `expires`");
    }
    let mut rules = rules(reader, &fields, &name.value, Effect::Allow);
    rules.extend(self::rules(reader, &fields, &name.value, Effect::Deny));
    if fields.get("allow").is_none() && extends.is_none() {
        let help = "add `[[grant.NAME.allow]]` with `api` and `routes`, or remove the grant";
        reader.warning(Code::NothingAllowed, key.span(), "the grant allows nothing", help);
    }
    reader.draft.grants.push(DraftGrant { name, callers: callers?, groups, extends, view, rules });
    Some(())
}

/// `[group.NAME]`
pub(super) fn group(
    reader: &mut Reader<'_, '_>,
    name: At<Arc<str>>,
    key: &Spanned<Cow<'_, str>>,
    table: &DeTable<'_>,
) -> Option<()> {
    let fields = Fields::new(reader, table, key.span(), "a group", GROUP_FIELDS);
    let callers = callers(reader, &fields)?;
    reader.draft.groups.push(DraftGroup { name, callers });
    Some(())
}

/// `[defaults]`
pub(super) fn defaults(reader: &mut Reader<'_, '_>, file: &Fields<'_, '_>) {
    let Some(table) = file.table(reader, "defaults") else { return };
    let span = file.get("defaults").map_or(0..0, Spanned::span);
    let place = reader.place(span.clone());
    let fields = Fields::new(reader, table, span, "`defaults`", DEFAULTS_FIELDS);
    let value = GrantDefaults {
        floor: floor(reader, &fields),
        ttl_seconds: fields.measured(reader, "ttl", duration_seconds, DURATION_HELP),
        budget: budget(reader, &fields),
    };
    reader.draft.defaults.push(At { value, place });
}

/// Names of other definitions.
fn references(reader: &mut Reader<'_, '_>, fields: &Fields<'_, '_>, key: &str) -> Vec<At<Arc<str>>> {
    let texts = fields.texts(reader, key).unwrap_or_default();
    texts.into_iter().map(|(text, span)| At { value: Arc::from(text), place: reader.place(span) }).collect()
}

fn schedule(reader: &mut Reader<'_, '_>, fields: &Fields<'_, '_>) -> Vec<Window> {
    let mut windows = Vec::new();
    for (text, span) in fields.texts(reader, "schedule").unwrap_or_default() {
        match Window::parse(text) {
            Some(window) => windows.push(window),
            None => {
                let message = format!("`{}` is not a time of the week", text.escape_debug());
                let help =
                    "write `Mon-Fri 08:00-18:00` or `Sat,Sun 00:00-24:00`, in UTC; over midnight it is two";
                reader.error(Code::BadValue, span, message, help);
            }
        }
    }
    windows
}

fn callers(reader: &mut Reader<'_, '_>, fields: &Fields<'_, '_>) -> Option<Vec<Arc<str>>> {
    let texts = fields.required_texts(reader, "callers", "callers = [\"NAME\"]")?;
    let mut callers = Vec::new();
    for (text, span) in texts {
        if text == "*" {
            let help =
                "name the callers; `*` is every caller that sandboxd authenticates, also ones added later";
            reader.warning(Code::WildcardCaller, span, "every authenticated caller may use the grant", help);
        } else if !is_caller(text) {
            let message = format!("`{}` is not a caller name", text.escape_debug());
            reader.error(
                Code::BadName,
                span,
                message,
                "callers are named as in the callers file of sandboxd, or `*` for all",
            );
            continue;
        }
        callers.push(Arc::from(text));
    }
    callers.sort_unstable();
    Some(callers)
}

/// Caller names may be addresses or paths of an identity provider; only what would break a log line is refused.
fn is_caller(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= 256
        && !text.contains('*')
        && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b',')
}

fn floor(reader: &mut Reader<'_, '_>, fields: &Fields<'_, '_>) -> Option<Tier> {
    let text = fields.text(reader, "floor")?;
    let tier = Tier::from_word(&text.value);
    if tier.is_none() {
        let words = Tier::ALL.map(Tier::word);
        let help = match nearest(&text.value, words) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("tiers, weakest first: {}", words.join(", ")),
        };
        let message = format!("`{}` is not a tier", text.value.escape_debug());
        reader.push(Diagnostic::error(Code::BadValue, message).at(text.place).help(help));
    }
    tier
}

/// The end of a day, in seconds since 1970 UTC.
fn day(reader: &mut Reader<'_, '_>, fields: &Fields<'_, '_>, key: &str, what: &str) -> Option<i64> {
    let value = fields.get(key)?;
    let DeValue::Datetime(found) = value.get_ref() else {
        reader.wrong_type(value.span(), &format!("`{key}`"), "a date", value.get_ref());
        return None;
    };
    match (found.date, found.time) {
        (Some(date), None) => Some(end_of_day_unix(date.year, date.month, date.day)),
        _ => {
            let help = format!("write {what}, for example `2027-01-31` (days begin and end at midnight UTC)");
            reader.error(Code::BadValue, value.span(), format!("`{key}` has a time"), &help);
            None
        }
    }
}

fn budget(reader: &mut Reader<'_, '_>, fields: &Fields<'_, '_>) -> Budget {
    let Some(table) = fields.table(reader, "budget") else { return Budget::default() };
    let header = fields.get("budget").map_or(0..0, Spanned::span);
    let budget = Fields::new(reader, table, header, "a budget", BUDGET_FIELDS);
    Budget {
        calls: budget.count(reader, "calls"),
        per_minute: budget.count(reader, "per_minute"),
        caller_per_minute: budget.count(reader, "caller_per_minute"),
        concurrent: budget.count(reader, "concurrent"),
        request_bytes: budget.measured(reader, "request_bytes", size_bytes, SIZE_HELP),
        response_bytes: budget.measured(reader, "response_bytes", size_bytes, SIZE_HELP),
    }
}

fn rules(
    reader: &mut Reader<'_, '_>,
    fields: &Fields<'_, '_>,
    grant: &str,
    effect: Effect,
) -> Vec<DraftRule> {
    let key = effect.word();
    let Some(value) = fields.get(key) else { return Vec::new() };
    let DeValue::Array(items) = value.get_ref() else {
        let help = format!("rules are lists of tables: `[[grant.{grant}.{key}]]` with two brackets");
        reader.error(Code::WrongType, value.span(), format!("`{key}` is not a list of tables"), &help);
        return Vec::new();
    };
    if items.is_empty() {
        reader.error(
            Code::EmptyList,
            value.span(),
            format!("`{key}` is empty"),
            "leave it out: what no rule allows is denied",
        );
    }
    let mut rules = Vec::new();
    for (index, item) in items.iter().enumerate() {
        match item.get_ref() {
            DeValue::Table(table) => {
                let header = item.span();
                rules.extend(rule(reader, table, header, effect, &format!("{grant}.{key}[{index}]")));
            }
            other => reader.wrong_type(item.span(), &format!("an entry of `{key}`"), "a table", other),
        }
    }
    rules
}

fn rule(
    reader: &mut Reader<'_, '_>,
    table: &DeTable<'_>,
    header: Range<usize>,
    effect: Effect,
    id: &str,
) -> Option<DraftRule> {
    let known = [RULE_FIELDS, CONDITION_FIELDS].concat();
    let place = reader.place(header.clone());
    let fields = Fields::new(reader, table, header, "a rule", &known);
    let api = fields.required_text(reader, "api", "api = \"NAME\"").map(shared);
    let websocket = fields.flag(reader, "websocket");
    if websocket && effect == Effect::Deny {
        let span = fields.get("websocket").map_or(0..0, Spanned::span);
        reader.error(Code::BadValue, span, "a deny rule covers websockets anyway", "leave `websocket` out");
    }
    let before = reader.error_count();
    let terms = condition::read(reader, &fields, effect, websocket);
    let broken = reader.error_count() > before;
    // Without routes it may be about connections: whether its API has those is checked once all files are read.
    let texts = match fields.get("routes") {
        Some(_) => fields.texts(reader, "routes")?,
        None => Vec::new(),
    };
    let mut routes = Vec::new();
    for (index, (text, span)) in texts.into_iter().enumerate() {
        let id = RuleId(Arc::from(format!("{id}.routes[{index}]")));
        routes.extend(route(reader, text, span, id));
    }
    // A rule whose conditions cannot be read would look wider than it is meant to be.
    (!broken).then_some(DraftRule {
        effect,
        api: api?,
        websocket,
        terms,
        lost_routes: routes.is_empty() && fields.get("routes").is_some(),
        routes,
        id: id.into(),
        place,
    })
}

fn route(reader: &mut Reader<'_, '_>, text: &str, span: Range<usize>, id: RuleId) -> Option<DraftRoute> {
    reader.draft.routes += 1;
    if reader.draft.routes == ROUTES_MAX + 1 {
        reader.error(
            Code::TooLarge,
            span.clone(),
            format!("more than {ROUTES_MAX} routes"),
            "use `*` and `**`",
        );
    }
    let (line, problems) = line::parse(text);
    for problem in problems {
        let place = reader.place(inside(reader.file.text, &span, text, problem.span));
        let mut diagnostic = match problem.severity {
            Severity::Error => Diagnostic::error(problem.code, problem.message),
            Severity::Warning => Diagnostic::warning(problem.code, problem.message),
        };
        diagnostic.help = problem.help;
        reader.push(diagnostic.at(place));
    }
    let place = reader.place(span);
    line.map(|line| DraftRoute { id, line, place })
}

/// A range inside a quoted text as a range of the file, where the text stands there as it is (no escapes).
fn inside(file: &str, quoted: &Range<usize>, text: &str, part: Range<usize>) -> Range<usize> {
    let start = quoted.start + 1;
    match file.get(start..start + text.len()) {
        Some(found) if found == text => start + part.start..start + part.end.max(part.start + 1),
        _ => quoted.clone(),
    }
}
