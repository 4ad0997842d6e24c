//! The canonical request: path, query and fields as the service will see them.

use std::collections::BTreeMap;

use freeboard_policy::Reason;
use percent_encoding::{percent_decode_str, percent_encode};

use crate::credential::scrub::UNRESERVED;
use crate::error::Stop;
use crate::request::Fields;

/// Each segment decoded once and encoded anew; twice for everything but S3, which takes a path as it is. The target has no
/// dot segments and no empty ones, so there is nothing to normalise.
pub(super) fn path(path: &str, s3: bool) -> Result<String, Stop> {
    let segments = path.split('/').map(|segment| {
        let decoded: Vec<u8> = percent_decode_str(segment).collect();
        if s3 && decoded.contains(&b'/') {
            // SECURITY: S3 decodes the path before it looks at it: the signature would be for another object.
            return Err(Stop::new(Reason::TargetNotCanonical, "an escaped `/` in a path that S3 decodes"));
        }
        let once = percent_encode(&decoded, UNRESERVED).to_string();
        Ok(if s3 { once } else { percent_encode(once.as_bytes(), UNRESERVED).to_string() })
    });
    Ok(segments.collect::<Result<Vec<_>, _>>()?.join("/"))
}

/// Parameters decoded and encoded anew, in order of name and value.
pub(super) fn query(query: Option<&str>) -> Result<String, Stop> {
    let pairs = query.into_iter().flat_map(|query| query.split('&')).filter(|pair| !pair.is_empty());
    let mut encoded = Vec::new();
    for pair in pairs {
        if pair.contains('+') {
            let detail =
                "a `+` in a query that is signed: some services read it as a space; write %20 or %2B";
            return Err(Stop::new(Reason::TargetNotCanonical, detail));
        }
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let [name, value] = [name, value].map(|part| {
            percent_encode(&percent_decode_str(part).collect::<Vec<u8>>(), UNRESERVED).to_string()
        });
        if name.eq_ignore_ascii_case("x-amz-signature") || name.eq_ignore_ascii_case("x-amz-credential") {
            // A presigned link of the guest's own: two signatures in one request.
            return Err(Stop::new(Reason::QueryNotGranted, "the guest signed the query itself"));
        }
        encoded.push((name, value));
    }
    encoded.sort_unstable();
    let pairs = encoded.into_iter().map(|(name, value)| format!("{name}={value}"));
    Ok(pairs.collect::<Vec<_>>().join("&"))
}

/// The signed fields, one line each and an empty line, and their names. Signed are Host, the type of the content and
/// everything of Amazon's; fields that a proxy on the way might change are not.
pub(super) fn fields(fields: &Fields, authority: &str) -> (Vec<u8>, String) {
    let mut signed: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    signed.insert("host".to_owned(), authority.as_bytes().to_vec());
    for (name, value) in fields.iter() {
        let name = name.to_ascii_lowercase();
        if !name.starts_with("x-amz-") && !matches!(name.as_str(), "content-type" | "content-md5") {
            continue;
        }
        let entry = signed.entry(name).or_default();
        if !entry.is_empty() {
            entry.push(b',');
        }
        entry.extend(one_space(value));
    }
    let names = signed.keys().map(String::as_str).collect::<Vec<_>>().join(";");
    let mut lines = Vec::new();
    for (name, value) in &signed {
        lines.extend_from_slice(name.as_bytes());
        lines.push(b':');
        lines.extend_from_slice(value);
        lines.push(b'\n');
    }
    (lines, names)
}

/// Sequential spaces become one.
fn one_space(value: &[u8]) -> Vec<u8> {
    let mut out = value.trim_ascii().to_vec();
    out.dedup_by(|a, b| *a == b' ' && *b == b' ');
    out
}
