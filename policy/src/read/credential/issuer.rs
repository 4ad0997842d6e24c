//! `…_url`, `trust` and `addresses` of a credential: the endpoint that hands out its tokens.

use super::super::api;
use super::super::table::{Fields, Reader};
use crate::credential::IssuerView;
use crate::diagnostic::{Code, Diagnostic};
use crate::draft::At;
use crate::origin::Origin;

/// Reads the endpoint under `key`; where the field is left out, `default` is the endpoint.
pub(super) fn read(
    reader: &mut Reader<'_, '_>,
    fields: &Fields<'_, '_>,
    key: &str,
    default: Option<&str>,
) -> Option<IssuerView> {
    whole(reader, fields, key, default, Path::Needed)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Path {
    Needed,
    Optional,
}

fn whole(
    reader: &mut Reader<'_, '_>,
    fields: &Fields<'_, '_>,
    key: &str,
    default: Option<&str>,
    path: Path,
) -> Option<IssuerView> {
    let url = match (fields.get(key), default) {
        (None, Some(default)) => Some(At { value: default.to_owned(), place: reader.place(fields.header()) }),
        (None, None) => {
            fields.missing(reader, key, &format!("{key} = \"https://login.example.com/oauth2/token\""));
            None
        }
        (Some(_), _) => fields.text(reader, key),
    };
    let (ca_file, pin_sha256) = api::trust(reader, fields);
    let addresses = api::addresses(reader, fields);
    let (origin, path) = endpoint(reader, key, url?, path)?;
    Some(IssuerView { host: origin.host, port: origin.port, path, ca_file, pin_sha256, addresses })
}

/// Reads an address that other paths are put behind: it may do without a path of its own, and ends without a `/`.
pub(super) fn base(
    reader: &mut Reader<'_, '_>,
    fields: &Fields<'_, '_>,
    key: &str,
    default: Option<&str>,
) -> Option<IssuerView> {
    let mut issuer = whole(reader, fields, key, default, Path::Optional)?;
    while issuer.path.ends_with('/') {
        issuer.path.pop();
    }
    Some(issuer)
}

/// Path of another endpoint of the same issuer; `None` where the field is left out, or wrong and reported.
pub(super) fn sibling(
    reader: &mut Reader<'_, '_>,
    fields: &Fields<'_, '_>,
    key: &str,
    issuer: &IssuerView,
) -> Option<String> {
    let url = fields.text(reader, key)?;
    let place = url.place.clone();
    let (origin, path) = endpoint(reader, key, url, Path::Needed)?;
    if (&origin.host, origin.port) != (&issuer.host, issuer.port) {
        // SECURITY: the client's secret would go to a second host, with the trust that was meant for the first.
        let message = format!("`{key}` is on another origin than the token endpoint");
        let help = format!("both must be below `{}`", crate::origin::url(&issuer.host, issuer.port));
        reader.push(Diagnostic::error(Code::BadOrigin, message).at(place).help(help));
        return None;
    }
    Some(path)
}

/// `https://HOST[:PORT]/PATH[?QUERY]`.
fn endpoint(
    reader: &mut Reader<'_, '_>,
    key: &str,
    url: At<String>,
    wanted: Path,
) -> Option<(Origin, String)> {
    let scheme = "https://".len();
    let slash = url.value.get(scheme..).and_then(|rest| rest.find('/')).map(|at| at + scheme);
    let (origin, path) = url.value.split_at(slash.unwrap_or(url.value.len()));
    let problem = match Origin::parse(origin) {
        Err(error) => Diagnostic::error(error.code, error.message).help(error.help),
        Ok(_) if path.is_empty() && wanted == Path::Needed => {
            let help =
                format!("write the whole address of the endpoint, for example `{origin}/oauth2/token`");
            Diagnostic::error(Code::BadOrigin, format!("`{key}` has no path")).help(help)
        }
        Ok(_)
            if !path.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'#' | b'\\' | b'"')) =>
        {
            let help = "a path has visible ASCII; write anything else as a percent escape, and no fragment";
            Diagnostic::error(Code::BadOrigin, format!("`{key}` has a path that cannot be sent")).help(help)
        }
        Ok(origin) => return Some((origin, path.to_owned())),
    };
    reader.push(problem.at(url.place));
    None
}
