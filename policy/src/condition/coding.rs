//! How a request body is encoded (RFC 9110 8.4), as far as it can be undone with a bound.

use super::Miss;
use super::fields::HeaderFields;
use crate::Reason;

/// The codings that a body is inspected through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyCoding {
    Identity,
    /// RFC 1952.
    Gzip,
    /// RFC 1950 inside (the zlib format), as RFC 9110 8.4.1.2 says; raw deflate is refused.
    Deflate,
}

/// The coding of a request body.
///
/// # Errors
/// Why nobody can look through it.
pub(crate) fn of(fields: &dyn HeaderFields) -> Result<BodyCoding, Miss> {
    let (mut count, mut found) = (0, Ok(BodyCoding::Identity));
    fields.each_value("content-encoding", &mut |value| {
        count += 1;
        found = one(value);
    });
    if count > 1 { Err(nested()) } else { found }
}

fn one(value: &[u8]) -> Result<BodyCoding, Miss> {
    let value = value.trim_ascii().to_ascii_lowercase();
    match value.as_slice() {
        b"identity" => Ok(BodyCoding::Identity),
        b"gzip" | b"x-gzip" => Ok(BodyCoding::Gzip),
        b"deflate" => Ok(BodyCoding::Deflate),
        _ if value.contains(&b',') => Err(nested()),
        _ => Err(Miss::new(Reason::InspectionEncoding, "a content encoding other than gzip and deflate")),
    }
}

fn nested() -> Miss {
    Miss::new(Reason::InspectionNestedEncoding, "more than one content encoding")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_known_coding_is_looked_through() {
        let of_values = |values: &[&str]| {
            let fields: Vec<(String, String)> =
                values.iter().map(|value| ("Content-Encoding".to_owned(), (*value).to_owned())).collect();
            of(&fields).map_err(|miss| miss.reason)
        };
        assert_eq!(of_values(&[]), Ok(BodyCoding::Identity));
        assert_eq!(of_values(&["GZIP"]), Ok(BodyCoding::Gzip));
        assert_eq!(of_values(&["deflate"]), Ok(BodyCoding::Deflate));
        assert_eq!(of_values(&["br"]), Err(Reason::InspectionEncoding));
        assert_eq!(of_values(&[""]), Err(Reason::InspectionEncoding));
        assert_eq!(of_values(&["gzip, gzip"]), Err(Reason::InspectionNestedEncoding));
        assert_eq!(of_values(&["gzip", "identity"]), Err(Reason::InspectionNestedEncoding));
    }
}
