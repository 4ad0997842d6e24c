//! `github-app` and `gcp-service-account`: tokens for an assertion that is signed with a private key.

use toml::de::DeValue;

use super::super::table::{Fields, Reader};
use super::{issuer, plain, secret, word};
use crate::credential::{GcpView, GithubAppView};
use crate::diagnostic::Code;
use crate::model::CredentialView;
use crate::units::duration_seconds;

pub(crate) const GITHUB_FIELDS: &[&str] = &[
    "kind",
    "app_id",
    "private_key",
    "installation_id",
    "repositories",
    "permissions",
    "ttl",
    "api_url",
    "trust",
    "addresses",
];
pub(crate) const GCP_FIELDS: &[&str] =
    &["kind", "key", "scopes", "subject", "token_url", "trust", "addresses"];

/// GitHub's tokens live an hour, whatever is asked for.
const GITHUB_TTL_MAX_SECONDS: u64 = 3600;
/// At most as many repositories as GitHub takes in one request.
const REPOSITORIES_MAX: usize = 500;

pub(super) fn github(reader: &mut Reader<'_, '_>, fields: &Fields<'_, '_>) -> Option<CredentialView> {
    let digits_or_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'.';
    let app_id = match fields.get("app_id").map(toml::Spanned::get_ref) {
        Some(DeValue::Integer(_)) => fields.count(reader, "app_id").map(|id| id.to_string()),
        _ => word(reader, fields, "app_id", "app_id = 12345", digits_or_name),
    };
    let private_key = secret(reader, fields, "private_key");
    let installation_id = fields.count(reader, "installation_id");
    let repositories = repositories(reader, fields);
    let permissions = permissions(reader, fields);
    let ttl = fields.measured(
        reader,
        "ttl",
        |text| duration_seconds(text).filter(|seconds| (60..=GITHUB_TTL_MAX_SECONDS).contains(seconds)),
        "from a minute to an hour, for example `\"10m\"`",
    );
    let issuer = issuer::base(reader, fields, "api_url", Some("https://api.github.com"));
    let (owner, repositories) = repositories?;
    Some(CredentialView::GithubApp(Box::new(GithubAppView {
        issuer: issuer?,
        app_id: app_id?,
        private_key: private_key?,
        installation_id,
        owner,
        repositories,
        permissions: permissions?,
        ttl_seconds: ttl.unwrap_or(GITHUB_TTL_MAX_SECONDS),
    })))
}

/// `OWNER/NAME`, all of one owner: an installation belongs to one account.
fn repositories(reader: &mut Reader<'_, '_>, fields: &Fields<'_, '_>) -> Option<(String, Vec<String>)> {
    let texts = fields.required_texts(reader, "repositories", "repositories = [\"acme/widgets\"]")?;
    if let Some((_, span)) = texts.get(REPOSITORIES_MAX) {
        let message = format!("more than {REPOSITORIES_MAX} repositories");
        reader.error(Code::TooLarge, span.clone(), message, "GitHub takes no more in one token");
        return None;
    }
    let name = |text: &str| {
        !text.is_empty()
            && text.len() <= 100
            && !matches!(text, "." | "..")
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
    };
    let mut owner: Option<&str> = None;
    let mut names = Vec::new();
    for (text, span) in texts {
        match text.split_once('/').filter(|(owner, repository)| name(owner) && name(repository)) {
            Some((of, _)) if owner.is_some_and(|owner| !owner.eq_ignore_ascii_case(of)) => {
                let help = "an installation belongs to one account; define one credential for each owner";
                reader.error(Code::BadValue, span, "repositories of two owners", help);
            }
            Some((of, repository)) => {
                owner = Some(of);
                names.push(repository.to_owned());
            }
            None => {
                let message = format!("`{}` is not a repository", text.escape_debug());
                reader.error(Code::BadValue, span, message, "write `OWNER/NAME`");
            }
        }
    }
    names.sort_unstable();
    owner.map(|owner| (owner.to_owned(), names))
}

fn permissions(reader: &mut Reader<'_, '_>, fields: &Fields<'_, '_>) -> Option<Vec<(String, String)>> {
    let Some(value) = fields.get("permissions") else {
        fields.missing(reader, "permissions", "permissions = { issues = \"write\" }");
        return None;
    };
    let table = fields.table(reader, "permissions")?;
    if table.is_empty() {
        let help = "name what the grants need, for example `{ issues = \"write\" }`; left empty, GitHub would give everything that the app has";
        reader.error(Code::EmptyList, value.span(), "`permissions` is empty", help);
        return None;
    }
    let mut permissions = Vec::new();
    for (name, level) in table {
        let plain = name.get_ref().bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
        match level.get_ref() {
            DeValue::String(text) if plain && matches!(text.as_ref(), "read" | "write" | "admin") => {
                permissions.push((name.get_ref().to_string(), text.to_string()));
            }
            _ => {
                let message =
                    format!("`{}` is not a permission and its level", name.get_ref().escape_debug());
                reader.error(
                    Code::BadValue,
                    level.span(),
                    message,
                    "write `NAME = \"read\"`, `\"write\"` or `\"admin\"`",
                );
            }
        }
    }
    permissions.sort_unstable();
    Some(permissions)
}

pub(super) fn gcp(reader: &mut Reader<'_, '_>, fields: &Fields<'_, '_>) -> Option<CredentialView> {
    let key = secret(reader, fields, "key");
    let example = "scopes = [\"https://www.googleapis.com/auth/devstorage.read_only\"]";
    let scopes = fields.required_texts(reader, "scopes", example);
    let mut good = Vec::new();
    for (scope, span) in scopes.unwrap_or_default() {
        if scope.is_empty() || !scope.bytes().all(|byte| byte.is_ascii_graphic()) {
            let message = format!("`{}` is not a scope", scope.escape_debug());
            reader.error(Code::BadValue, span, message, "a scope is one word, most often an address");
        } else {
            good.push(scope.to_owned());
        }
    }
    let subject = plain(reader, fields, "subject");
    let issuer = issuer::read(reader, fields, "token_url", Some("https://oauth2.googleapis.com/token"));
    Some(CredentialView::Gcp(Box::new(GcpView { issuer: issuer?, key: key?, scopes: good, subject })))
}
