//! proto3 JSON, strictly: bytes to message and back.
//!
//! Read as a stream, so that memory stays in proportion to the message and not to the text. Duplicate keys, lone
//! surrogates, values out of range and wrong types are refused; unknown members are skipped, but checked as well.

use std::collections::HashSet;
use std::fmt;
use std::marker::PhantomData;

use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};

use crate::limits::{MAX_OBJECT_MEMBERS, MAX_REPEATED_MESSAGES};
use crate::word::Word;

/// Why a body does not decode.
#[derive(Debug, thiserror::Error)]
#[error("the body does not decode: {0}")]
pub struct DecodeError(#[from] serde_json::Error);

/// Reads one message from a JSON object that is the whole of `body`.
pub fn from_json<M: JsonMessage>(body: &[u8]) -> Result<M, DecodeError> {
    Ok(serde_json::from_slice::<Reader<M>>(body).map(|Reader(message)| message)?)
}

/// Writes one message, names in lowerCamelCase, zero values left out, nested messages always kept.
pub fn to_json<M: JsonMessage>(message: &M) -> Vec<u8> {
    // Writing into a Vec fails only for maps with keys that are no strings; there are none.
    serde_json::to_vec(&Writer(message)).unwrap_or_default()
}

/// A message with a JSON form; implemented by `messages!` in message.rs only.
pub trait JsonMessage: Sized + Default {
    /// lowerCamelCase and snake_case name of each field.
    const NAMES: &'static [(&'static str, &'static str)];
    /// Reads the next value of `map` into the field; `false` for null, which changes nothing.
    fn read_field<'de, A: MapAccess<'de>>(&mut self, camel: &str, map: &mut A) -> Result<bool, A::Error>;
    fn write_fields<S: SerializeMap>(&self, map: &mut S) -> Result<(), S::Error>;
}

/// A value with a JSON form.
pub trait Field: Sized {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error>;
    /// Zero values are not written.
    fn is_zero(&self) -> bool;
    fn write<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error>;
}

pub(crate) fn read_plain<'de, T: Field, A: MapAccess<'de>>(
    field: &mut T,
    map: &mut A,
) -> Result<bool, A::Error> {
    let Some(Reader(value)) = map.next_value::<Option<Reader<T>>>()? else { return Ok(false) };
    *field = value;
    Ok(true)
}

pub(crate) fn read_word<'de, E: Word, A: MapAccess<'de>>(
    field: &mut i32,
    map: &mut A,
) -> Result<bool, A::Error> {
    let Some(WordReader(value, _)) = map.next_value::<Option<WordReader<E>>>()? else { return Ok(false) };
    *field = value;
    Ok(true)
}

pub(crate) fn write_plain<T: Field, S: SerializeMap>(
    field: &T,
    name: &'static str,
    map: &mut S,
) -> Result<(), S::Error> {
    if field.is_zero() { Ok(()) } else { map.serialize_entry(name, &Writer(field)) }
}

pub(crate) fn write_word<E: Word, S: SerializeMap>(
    field: i32,
    name: &'static str,
    map: &mut S,
) -> Result<(), S::Error> {
    if field == 0 {
        return Ok(());
    }
    match E::names().iter().find(|(_, number)| *number == field) {
        Some((word, _)) => map.serialize_entry(name, word),
        None => map.serialize_entry(name, &field),
    }
}

struct Reader<T>(T);
struct Writer<'a, T>(&'a T);

impl<'de, T: Field> Deserialize<'de> for Reader<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::read(deserializer).map(Self)
    }
}

impl<T: Field> Serialize for Writer<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.write(serializer)
    }
}

// Messages

impl<M: JsonMessage> Field for M {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(MessageVisitor(PhantomData))
    }
    fn is_zero(&self) -> bool {
        false
    }
    fn write<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        self.write_fields(&mut map)?;
        map.end()
    }
}

struct MessageVisitor<M>(PhantomData<M>);

impl<'de, M: JsonMessage> Visitor<'de> for MessageVisitor<M> {
    type Value = M;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<M, A::Error> {
        let mut message = M::default();
        let mut keys = Keys::default();
        // Camel names that were read and not null: a snake_case twin no longer counts then, in either order.
        let mut settled: Vec<&'static str> = Vec::new();
        while let Some(key) = map.next_key::<String>()? {
            keys.add(&key)?;
            match M::NAMES.iter().find(|(camel, snake)| key == *camel || key == *snake) {
                Some((camel, _)) if key == *camel => {
                    if message.read_field(camel, &mut map)? {
                        settled.push(camel);
                    }
                }
                Some((camel, _)) if !settled.contains(camel) => {
                    message.read_field(camel, &mut map)?;
                }
                _ => {
                    map.next_value::<Skipped>()?;
                }
            }
        }
        Ok(message)
    }
}

/// The keys of one object so far.
#[derive(Default)]
struct Keys(HashSet<String>);

impl Keys {
    fn add<E: serde::de::Error>(&mut self, key: &str) -> Result<(), E> {
        if self.0.len() >= MAX_OBJECT_MEMBERS {
            return Err(E::custom(format_args!("an object has more than {MAX_OBJECT_MEMBERS} members")));
        }
        if !self.0.insert(key.to_owned()) {
            return Err(E::custom(format_args!("duplicate key `{}`", key.escape_debug())));
        }
        Ok(())
    }
}

/// Any value, checked for duplicate keys and broken strings, and dropped.
struct Skipped;

impl<'de> Deserialize<'de> for Skipped {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SkippedVisitor)
    }
}

struct SkippedVisitor;

impl<'de> Visitor<'de> for SkippedVisitor {
    type Value = Skipped;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }
    fn visit_bool<E>(self, _: bool) -> Result<Skipped, E> {
        Ok(Skipped)
    }
    fn visit_i64<E>(self, _: i64) -> Result<Skipped, E> {
        Ok(Skipped)
    }
    fn visit_u64<E>(self, _: u64) -> Result<Skipped, E> {
        Ok(Skipped)
    }
    fn visit_f64<E>(self, _: f64) -> Result<Skipped, E> {
        Ok(Skipped)
    }
    fn visit_str<E>(self, _: &str) -> Result<Skipped, E> {
        Ok(Skipped)
    }
    fn visit_unit<E>(self) -> Result<Skipped, E> {
        Ok(Skipped)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<Skipped, A::Error> {
        while entries.next_element::<Skipped>()?.is_some() {}
        Ok(Skipped)
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Skipped, A::Error> {
        let mut keys = Keys::default();
        while let Some(key) = map.next_key::<String>()? {
            keys.add(&key)?;
            map.next_value::<Skipped>()?;
        }
        Ok(Skipped)
    }
}

impl<M: JsonMessage> Field for Option<M> {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        M::read(deserializer).map(Some)
    }
    fn is_zero(&self) -> bool {
        self.is_none()
    }
    fn write<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Some(message) => message.write(serializer),
            None => serializer.serialize_unit(),
        }
    }
}

// Lists

/// An element of a repeated field. Bytes are no list, which is why this is not simply `Field`.
pub trait Element: Field {
    const MOST: usize;
}

impl<M: JsonMessage> Element for M {
    const MOST: usize = MAX_REPEATED_MESSAGES;
}

impl Element for String {
    const MOST: usize = MAX_REPEATED_MESSAGES;
}

impl Element for f64 {
    /// A double takes two bytes of text at least and eight of memory; the cap on bodies bounds it well enough.
    const MOST: usize = usize::MAX;
}

impl<T: Element> Field for Vec<T> {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(ListVisitor(PhantomData))
    }
    fn is_zero(&self) -> bool {
        self.is_empty()
    }
    fn write<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(Some(self.len()))?;
        for entry in self {
            list.serialize_element(&Writer(entry))?;
        }
        list.end()
    }
}

struct ListVisitor<T>(PhantomData<T>);

impl<'de, T: Element> Visitor<'de> for ListVisitor<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<Vec<T>, A::Error> {
        let mut list = Vec::new();
        while let Some(Reader(entry)) = entries.next_element::<Reader<T>>()? {
            if list.len() >= T::MOST {
                return Err(A::Error::custom(format_args!("an array has more than {} entries", T::MOST)));
            }
            list.push(entry);
        }
        Ok(list)
    }
}

// Scalars

impl Field for String {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::deserialize(deserializer)
    }
    fn is_zero(&self) -> bool {
        self.is_empty()
    }
    fn write<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self)
    }
}

impl Field for bool {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::deserialize(deserializer)
    }
    fn is_zero(&self) -> bool {
        !self
    }
    fn write<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bool(*self)
    }
}

const LENIENT_PADDING: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
const STANDARD: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, LENIENT_PADDING);
const URL_SAFE: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, LENIENT_PADDING);

/// Base64, standard or URL-safe, padded or not.
pub(crate) fn decode_base64(text: &str) -> Option<Vec<u8>> {
    let engine = if text.contains(['-', '_']) { &URL_SAFE } else { &STANDARD };
    engine.decode(text).ok()
}

impl Field for Vec<u8> {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        decode_base64(&text).ok_or_else(|| D::Error::custom("a value is not base64"))
    }
    fn is_zero(&self) -> bool {
        self.is_empty()
    }
    fn write<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(self))
    }
}

/// A whole number from a JSON number, an integral float or a decimal string.
struct IntegerVisitor<T>(PhantomData<T>);

impl<T: TryFrom<i128>> IntegerVisitor<T> {
    fn narrow<E: serde::de::Error>(value: i128) -> Result<T, E> {
        T::try_from(value).map_err(|_| E::custom(format_args!("the number {value} is out of range")))
    }
}

impl<T: TryFrom<i128>> Visitor<'_> for IntegerVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number")
    }
    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<T, E> {
        Self::narrow(value.into())
    }
    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<T, E> {
        Self::narrow(value.into())
    }
    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<T, E> {
        // 2^64: no integer type of the protocol reaches further, and a cast of less is exact.
        const BEYOND: f64 = 18_446_744_073_709_551_616.0;
        if value.fract() != 0.0 || value.abs() > BEYOND {
            return Err(E::custom("a number is not whole or out of range"));
        }
        #[expect(clippy::cast_possible_truncation, reason = "whole and at most 2^64, checked above")]
        Self::narrow(value as i128)
    }
    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
        let digits = text.strip_prefix('-').unwrap_or(text);
        let decimal = !digits.is_empty() && digits.len() <= 20 && digits.bytes().all(|b| b.is_ascii_digit());
        let value = decimal.then(|| text.parse::<i128>().ok()).flatten();
        Self::narrow(value.ok_or_else(|| E::custom("a string is not a decimal number"))?)
    }
}

macro_rules! integers {
    ($($kind:ty => $write:ident;)+) => { $(
        impl Field for $kind {
            fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_any(IntegerVisitor(PhantomData))
            }
            fn is_zero(&self) -> bool {
                *self == 0
            }
            fn write<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.$write(self)
            }
        }
    )+ };
}

/// 64-bit integers are decimal strings in proto3 JSON: a reader with doubles would round them.
trait AsText: Serializer {
    fn text<T: fmt::Display>(self, value: &T) -> Result<Self::Ok, Self::Error>;
    fn number<T: Serialize>(self, value: &T) -> Result<Self::Ok, Self::Error>;
}

impl<S: Serializer> AsText for S {
    fn text<T: fmt::Display>(self, value: &T) -> Result<S::Ok, S::Error> {
        self.collect_str(value)
    }
    fn number<T: Serialize>(self, value: &T) -> Result<S::Ok, S::Error> {
        value.serialize(self)
    }
}

integers! {
    i32 => number;
    u32 => number;
    i64 => text;
    u64 => text;
}

struct DoubleVisitor;

impl Visitor<'_> for DoubleVisitor {
    type Value = f64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number")
    }
    #[expect(
        clippy::cast_precision_loss,
        reason = "JSON numbers are doubles here; rounding is what is asked for"
    )]
    fn visit_i64<E>(self, value: i64) -> Result<f64, E> {
        Ok(value as f64)
    }
    #[expect(
        clippy::cast_precision_loss,
        reason = "JSON numbers are doubles here; rounding is what is asked for"
    )]
    fn visit_u64<E>(self, value: u64) -> Result<f64, E> {
        Ok(value as f64)
    }
    fn visit_f64<E>(self, value: f64) -> Result<f64, E> {
        Ok(value)
    }
    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<f64, E> {
        match text {
            "NaN" => Ok(f64::NAN),
            "Infinity" => Ok(f64::INFINITY),
            "-Infinity" => Ok(f64::NEG_INFINITY),
            // A number in quotes follows the grammar of JSON numbers; Rust's own would also take `inf` and `+1`.
            _ => serde_json::from_str(text).map_err(|_| E::custom("a string is not a number")),
        }
    }
}

impl Field for f64 {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(DoubleVisitor)
    }
    fn is_zero(&self) -> bool {
        // Negative zero is written: its sign is part of the digest.
        self.to_bits() == 0
    }
    fn write<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match *self {
            value if value.is_nan() => serializer.serialize_str("NaN"),
            f64::INFINITY => serializer.serialize_str("Infinity"),
            f64::NEG_INFINITY => serializer.serialize_str("-Infinity"),
            value => serializer.serialize_f64(value),
        }
    }
}

/// An enumeration by name or by number.
struct WordReader<E>(i32, PhantomData<E>);

impl<'de, E: Word> Deserialize<'de> for WordReader<E> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(WordVisitor::<E>(PhantomData)).map(|number| Self(number, PhantomData))
    }
}

struct WordVisitor<E>(PhantomData<E>);

impl<W: Word> Visitor<'_> for WordVisitor<W> {
    type Value = i32;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name or number of an enumeration value")
    }
    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<i32, E> {
        IntegerVisitor(PhantomData).visit_i64(value)
    }
    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<i32, E> {
        IntegerVisitor(PhantomData).visit_u64(value)
    }
    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<i32, E> {
        IntegerVisitor(PhantomData).visit_f64(value)
    }
    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<i32, E> {
        let known = W::names().iter().find(|(name, _)| *name == text);
        known.map(|(_, number)| *number).ok_or_else(|| E::custom("unknown name of an enumeration value"))
    }
}
