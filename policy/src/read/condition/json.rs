//! `json = { "/pointer" = { … } }`.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeArray, DeValue};

use super::super::table::{Fields, Reader};
use super::{bounded, pattern, word};
use crate::condition::json::value::Number;
use crate::condition::json::{JsonTest, JsonWant, Kind, Pointer, Scalar};
use crate::diagnostic::Code;
use crate::draft::Effect;
use crate::limits::CONDITIONS_MAX;

pub(crate) const JSON_FIELDS: &[&str] =
    &["type", "enum", "pattern", "min", "max", "max_length", "max_items", "members", "absent", "optional"];

pub(super) fn read(reader: &mut Reader<'_, '_>, fields: &Fields<'_, '_>, effect: Effect) -> Vec<JsonTest> {
    table(reader, fields, "json", effect)
}

/// A table of pointers, under whatever key.
pub(super) fn table(
    reader: &mut Reader<'_, '_>,
    fields: &Fields<'_, '_>,
    key: &str,
    effect: Effect,
) -> Vec<JsonTest> {
    let Some(table) = fields.table(reader, key) else { return Vec::new() };
    let span = fields.get(key).map_or(0..0, Spanned::span);
    if !bounded(reader, table, key, &span) {
        return Vec::new();
    }
    let mut tests = Vec::new();
    for (name, value) in table {
        let pointer = match Pointer::parse(name.get_ref()) {
            Ok(pointer) => pointer,
            Err(why) => {
                let message = format!("`{}` is not a pointer: {why}", name.get_ref().escape_debug());
                let help = "for example `\"/labels/*/name\"` (RFC 6901; `*` is every element of a list)";
                reader.error(Code::BadCondition, name.span(), message, help);
                continue;
            }
        };
        tests.extend(want(reader, value, effect).map(|want| JsonTest { pointer, want }));
    }
    tests.sort_by_key(|test| test.pointer.to_string());
    tests
}

fn want(reader: &mut Reader<'_, '_>, value: &Spanned<DeValue<'_>>, effect: Effect) -> Option<JsonWant> {
    let table = match value.get_ref() {
        DeValue::Table(table) => table,
        DeValue::Array(items) => {
            return Some(JsonWant { one_of: scalars(reader, items, &value.span())?, ..JsonWant::default() });
        }
        _ => {
            let one_of = vec![scalar(reader, value)?];
            return Some(JsonWant { one_of, ..JsonWant::default() });
        }
    };
    let before = reader.error_count();
    let fields = Fields::new(reader, table, value.span(), "a JSON condition", JSON_FIELDS);
    let want = JsonWant {
        absent: fields.flag(reader, "absent"),
        optional: fields.flag(reader, "optional"),
        kind: kind(reader, &fields),
        one_of: one_of(reader, &fields),
        pattern: fields.get("pattern").and_then(|_| pattern(reader, &fields, "pattern")),
        min: number(reader, &fields, "min"),
        max: number(reader, &fields, "max"),
        max_length: fields.count(reader, "max_length"),
        max_items: fields.count(reader, "max_items"),
        members: members(reader, &fields),
    };
    if let Some(why) = contradiction(&want, table.len(), effect) {
        let help = "see \"Conditions on a JSON body\" in the guide; leave out what does not apply";
        reader.error(Code::BadCondition, value.span(), why, help);
    }
    (before == reader.error_count()).then_some(want)
}

fn contradiction(want: &JsonWant, fields: usize, effect: Effect) -> Option<&'static str> {
    let kind_is = |kinds: &[Kind]| want.kind.is_none_or(|kind| kinds.contains(&kind));
    if want.absent && fields > 1 {
        return Some("what is absent has no value: `absent` stands alone");
    }
    if want.optional && effect == Effect::Deny {
        return Some("a deny rule looks at what is there: `optional` has no meaning in it");
    }
    if (want.min.is_some() || want.max.is_some()) && !kind_is(&[Kind::Integer, Kind::Number]) {
        return Some("only numbers have `min` and `max`");
    }
    if let (Some(min), Some(max)) = (want.min, want.max)
        && !max.at_least(min)
    {
        return Some("`min` is above `max`: no number is between them");
    }
    if (want.pattern.is_some() || want.max_length.is_some()) && !kind_is(&[Kind::String]) {
        return Some("only texts have `pattern` and `max_length`");
    }
    if want.max_items.is_some() && !kind_is(&[Kind::Array, Kind::Object]) {
        return Some("only lists and objects have `max_items`");
    }
    if !want.members.is_empty() && !kind_is(&[Kind::Object]) {
        return Some("only objects have `members`");
    }
    None
}

fn kind(reader: &mut Reader<'_, '_>, fields: &Fields<'_, '_>) -> Option<Kind> {
    let text = fields.text(reader, "type")?;
    let span = fields.get("type").map_or(0..0, Spanned::span);
    let words = Kind::ALL.map(Kind::word);
    word(reader, &text.value, span, "a type of JSON", &words).and_then(Kind::from_word)
}

fn one_of(reader: &mut Reader<'_, '_>, fields: &Fields<'_, '_>) -> Vec<Scalar> {
    match fields.get("enum").map(|value| (value.span(), value.get_ref())) {
        None => Vec::new(),
        Some((span, DeValue::Array(items))) => scalars(reader, items, &span).unwrap_or_default(),
        Some((span, other)) => {
            reader.wrong_type(span, "`enum`", "a list", other);
            Vec::new()
        }
    }
}

fn scalars(reader: &mut Reader<'_, '_>, items: &DeArray<'_>, span: &Range<usize>) -> Option<Vec<Scalar>> {
    if items.is_empty() || items.len() > CONDITIONS_MAX {
        let message = format!("the list has no entry, or more than {CONDITIONS_MAX}");
        reader.error(Code::EmptyList, span.clone(), message, "an empty list allows nothing: list the values");
        return None;
    }
    let mut scalars: Vec<Scalar> = Vec::new();
    for item in items {
        let scalar = scalar(reader, item)?;
        if scalars.contains(&scalar) {
            let message = format!("{scalar} is listed twice");
            reader.error(Code::Repeated, item.span(), message, "list each value once");
            return None;
        }
        scalars.push(scalar);
    }
    Some(scalars)
}

/// A value as TOML writes it; TOML has no null: `type = "null"` says it.
fn scalar(reader: &mut Reader<'_, '_>, value: &Spanned<DeValue<'_>>) -> Option<Scalar> {
    match value.get_ref() {
        DeValue::String(text) => Some(Scalar::Text(text.as_ref().into())),
        DeValue::Boolean(flag) => Some(Scalar::Bool(*flag)),
        DeValue::Integer(_) | DeValue::Float(_) => to_number(reader, value).map(Scalar::Number),
        other => {
            reader.wrong_type(value.span(), "a value", "a text, a number, or true or false", other);
            None
        }
    }
}

fn number(reader: &mut Reader<'_, '_>, fields: &Fields<'_, '_>, key: &str) -> Option<Number> {
    let value = fields.get(key)?;
    match value.get_ref() {
        DeValue::Integer(_) | DeValue::Float(_) => to_number(reader, value),
        other => {
            reader.wrong_type(value.span(), &format!("`{key}`"), "a number", other);
            None
        }
    }
}

fn to_number(reader: &mut Reader<'_, '_>, value: &Spanned<DeValue<'_>>) -> Option<Number> {
    let number = match value.get_ref() {
        DeValue::Integer(integer) => i64::from_str_radix(integer.as_str(), integer.radix())
            .ok()
            .map(|whole| Number::Whole(whole.into())),
        DeValue::Float(float) => {
            float.as_str().parse::<f64>().ok().filter(|float| float.is_finite()).map(Number::Float)
        }
        _ => None,
    };
    if number.is_none() {
        reader.error(
            Code::BadCondition,
            value.span(),
            "not a number that JSON has",
            "a whole number of 64 bits, or a fraction",
        );
    }
    number
}

fn members(reader: &mut Reader<'_, '_>, fields: &Fields<'_, '_>) -> Vec<Box<str>> {
    let texts = fields.texts(reader, "members").unwrap_or_default();
    texts.into_iter().map(|(text, _)| text.into()).collect()
}
