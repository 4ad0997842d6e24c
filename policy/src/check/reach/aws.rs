//! `aws-sigv4`: its region against the origins, and the session policy that the routes of the grants come to.
//!
//! A session can do what its role can and its session policy says. For S3 the policy is made of the routes: which action a
//! request needs is in the S3 API reference and in "Actions, resources, and condition keys for Amazon S3". For other services
//! a route does not tell the action.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;

use super::Use;
use crate::credential::AwsView;
use crate::diagnostic::{Code, Diagnostic};
use crate::draft::{DraftApi, DraftRoute};
use crate::route::method::Asked;
use crate::route::pattern::Pattern;
use crate::route::query::QueryPattern;
use crate::route::{PathEnd, RouteLine};

/// Bytes of a session policy that STS takes (API reference of AssumeRole).
const SESSION_POLICY_MAX_BYTES: usize = 2048;
/// Names of one route that are listed one by one; beyond that they are any.
const NAMES_MAX: usize = 8;

/// What a path of S3 names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    Service,
    Bucket,
    Object,
}

/// The action for a method and a parameter of the query, `""` for a request without one of these.
const ACTIONS: &[(Level, &str, &str, &str)] = &[
    (Level::Service, "GET", "", "s3:ListAllMyBuckets"),
    (Level::Bucket, "GET", "", "s3:ListBucket"),
    (Level::Bucket, "GET", "location", "s3:GetBucketLocation"),
    (Level::Bucket, "GET", "uploads", "s3:ListBucketMultipartUploads"),
    (Level::Bucket, "GET", "versions", "s3:ListBucketVersions"),
    (Level::Bucket, "GET", "versioning", "s3:GetBucketVersioning"),
    (Level::Bucket, "GET", "tagging", "s3:GetBucketTagging"),
    (Level::Object, "GET", "", "s3:GetObject"),
    (Level::Object, "GET", "versionId", "s3:GetObjectVersion"),
    (Level::Object, "GET", "uploadId", "s3:ListMultipartUploadParts"),
    (Level::Object, "GET", "tagging", "s3:GetObjectTagging"),
    (Level::Object, "GET", "attributes", "s3:GetObjectAttributes"),
    (Level::Object, "GET", "acl", "s3:GetObjectAcl"),
    (Level::Object, "PUT", "", "s3:PutObject"),
    (Level::Object, "PUT", "tagging", "s3:PutObjectTagging"),
    (Level::Object, "PUT", "acl", "s3:PutObjectAcl"),
    (Level::Object, "POST", "uploads", "s3:PutObject"),
    (Level::Object, "POST", "uploadId", "s3:PutObject"),
    (Level::Object, "DELETE", "", "s3:DeleteObject"),
    (Level::Object, "DELETE", "versionId", "s3:DeleteObjectVersion"),
    (Level::Object, "DELETE", "uploadId", "s3:AbortMultipartUpload"),
    (Level::Object, "DELETE", "tagging", "s3:DeleteObjectTagging"),
];

/// Parameters that change the answer, not the action.
const PLAIN: &[&str] = &[
    "x-id",
    "partNumber",
    "list-type",
    "prefix",
    "delimiter",
    "max-keys",
    "marker",
    "continuation-token",
    "start-after",
    "encoding-type",
    "fetch-owner",
    "response-content-type",
    "response-content-language",
    "response-expires",
    "response-cache-control",
    "response-content-disposition",
    "response-content-encoding",
    "key-marker",
    "upload-id-marker",
    "max-uploads",
    "version-id-marker",
    "part-number-marker",
    "max-parts",
];

/// What S3 knows; HEAD needs what GET needs.
const METHODS: [&str; 4] = ["GET", "PUT", "POST", "DELETE"];

/// Action and resource, both as IAM writes them.
type Allowed = BTreeMap<String, BTreeSet<&'static str>>;

/// What a session may do: no more than the routes need. `None` where that is not known, and reported.
pub(super) fn session_policy(used: &Use<'_>, view: &AwsView, found: &mut Vec<Diagnostic>) -> Option<String> {
    let role = view.role.as_ref()?;
    let name = &used.credential.name.value;
    if view.service != "s3" {
        let message = format!("sessions of `{name}` can do whatever their role can in `{}`", view.service);
        let help =
            "only for S3 a session policy is made of the routes; let the role allow no more than they need";
        found.push(used.credential_is_wider(message).help(help));
        return None;
    }
    let partition = role.arn.split(':').nth(1).unwrap_or("aws");
    let mut allowed = Allowed::new();
    for (api, route) in &used.places {
        if !s3(partition, api, &route.line, &mut allowed) {
            found.push(unknown(used, route));
        }
    }
    let exact = document(&allowed);
    if exact.len() <= SESSION_POLICY_MAX_BYTES {
        return Some(exact);
    }
    let message = format!(
        "the session policy of `{name}` names buckets only: with every object it is longer than STS takes"
    );
    let help = "give the routes a shorter prefix in common, or share them among several credentials";
    found.push(used.credential_is_wider(message).help(help));
    let mut buckets = Allowed::new();
    for (resource, actions) in allowed {
        let whole = resource.split_once('/').map_or(resource.clone(), |(bucket, _)| format!("{bucket}/*"));
        buckets.entry(whole).or_default().extend(actions);
    }
    let document = document(&buckets);
    if document.len() <= SESSION_POLICY_MAX_BYTES {
        return Some(document);
    }
    let actions = buckets.into_values().flatten().collect();
    Some(self::document(&Allowed::from([("*".to_owned(), actions)])))
}

fn unknown(used: &Use<'_>, route: &DraftRoute) -> Diagnostic {
    let name = &used.credential.name.value;
    let message = format!("some requests of the route need an action that sessions of `{name}` do not have");
    let help = "list the parameters of the query that are needed; the actions of some are not known here";
    used.grant_is_wider(route, message).help(help)
}

/// One statement for each set of actions. A session without an action can do nothing: STS takes no empty list.
fn document(allowed: &Allowed) -> String {
    let mut by_actions: BTreeMap<&BTreeSet<&str>, Vec<&str>> = BTreeMap::new();
    for (resource, actions) in allowed {
        by_actions.entry(actions).or_default().push(resource);
    }
    let mut statements: Vec<_> = by_actions
        .into_iter()
        .map(|(actions, resources)| json!({ "Effect": "Allow", "Action": actions, "Resource": resources }))
        .collect();
    if statements.is_empty() {
        statements.push(json!({ "Effect": "Deny", "Action": "*", "Resource": "*" }));
    }
    json!({ "Version": "2012-10-17", "Statement": statements }).to_string()
}

/// Adds what a route needs of S3. False where some of its requests need an action that is not known.
fn s3(partition: &str, api: &DraftApi, line: &RouteLine, allowed: &mut Allowed) -> bool {
    let mut known = true;
    for origin in &api.origins {
        let bucket = bucket_of(origin.value.host.as_str());
        for (level, resource) in resources(partition, bucket, line) {
            for method in METHODS.into_iter().filter(|method| takes(line, method)) {
                let (actions, all) = actions(level, method, &line.query);
                known &= all;
                if !actions.is_empty() {
                    allowed.entry(resource.clone()).or_default().extend(actions);
                }
            }
        }
    }
    known
}

fn takes(line: &RouteLine, method: &str) -> bool {
    line.methods.allow(Asked::new(method)) || (method == "GET" && line.methods.allow(Asked::new("HEAD")))
}

/// The bucket that a host name names: `BUCKET.s3.REGION.amazonaws.com`. Elsewhere it is the first segment of the path.
fn bucket_of(host: &str) -> Option<&str> {
    let (bucket, rest) = host.split_once(".s3.").or_else(|| host.split_once(".s3-"))?;
    rest.contains('.').then_some(bucket)
}

/// What the paths of a line name. Names that are no literals are any name: the broker knows them better than IAM can say.
fn resources(partition: &str, bucket: Option<&str>, line: &RouteLine) -> Vec<(Level, String)> {
    let arn = |name: &str| format!("arn:{partition}:s3:::{name}");
    let mut segments = line.path.segments.iter();
    let buckets = match bucket {
        Some(bucket) => vec![bucket.to_owned()],
        None => match segments.next() {
            Some(segment) => texts(segment),
            None if line.path.end == PathEnd::Rest => {
                let any = ["*", "*/*"].map(arn);
                let [all, objects] = any;
                return vec![
                    (Level::Service, "*".to_owned()),
                    (Level::Bucket, all),
                    (Level::Object, objects),
                ];
            }
            None => return vec![(Level::Service, "*".to_owned())],
        },
    };
    let mut keys = vec![String::new()];
    for segment in segments {
        let next = texts(segment);
        let joined = keys.iter().flat_map(|key| next.iter().map(move |text| format!("{key}/{text}")));
        let joined: Vec<String> = joined.collect();
        keys = if joined.len() > NAMES_MAX { vec![format!("{}/*", common(&joined))] } else { joined };
    }
    let mut found = Vec::new();
    for bucket in &buckets {
        for key in &keys {
            let is_bucket = key.is_empty();
            let key = key.strip_prefix('/').unwrap_or(key);
            if is_bucket {
                found.push((Level::Bucket, arn(bucket)));
            } else if line.path.end == PathEnd::Slash {
                found.push((Level::Object, arn(&format!("{bucket}/{key}/"))));
            } else {
                found.push((Level::Object, arn(&format!("{bucket}/{key}"))));
            }
            if line.path.end == PathEnd::Rest {
                let below = if is_bucket { format!("{bucket}/*") } else { format!("{bucket}/{key}/*") };
                found.push((Level::Object, arn(&below)));
            }
        }
    }
    found
}

/// The longest beginning of whole segments that all have in common.
fn common(keys: &[String]) -> String {
    let mut keys = keys.iter().map(|key| key.split('/').collect::<Vec<_>>());
    let Some(mut common) = keys.next() else { return String::new() };
    common.pop();
    for key in keys {
        let same = common.iter().zip(&key).take_while(|(one, other)| one == other).count();
        common.truncate(same);
    }
    common.join("/")
}

/// A segment as parts of an ARN.
fn texts(segment: &Pattern) -> Vec<String> {
    let literals = segment.literals().filter(|texts| texts.len() <= NAMES_MAX);
    let Some(literals) = literals else { return vec!["*".to_owned()] };
    let literal = |text: &[u8]| {
        let mut out = String::new();
        for character in String::from_utf8_lossy(text).chars() {
            // What IAM takes for a wildcard or a variable.
            match character {
                '*' | '?' | '$' => out.extend(["${", character.encode_utf8(&mut [0; 4]), "}"]),
                character => out.push(character),
            }
        }
        out
    };
    literals.iter().map(|text| literal(text)).collect()
}

/// The actions that requests with this method and query need, and whether those are all.
fn actions(level: Level, method: &str, query: &QueryPattern) -> (Vec<&'static str>, bool) {
    let of = |parameter: &str| {
        let found = ACTIONS.iter().find(|(l, m, p, _)| (*l, *m, *p) == (level, method, parameter));
        found.map(|(.., action)| *action)
    };
    let (mut actions, mut all, mut base) = (Vec::new(), true, true);
    match query {
        QueryPattern::None => {}
        QueryPattern::Any => all = false,
        QueryPattern::Listed(listed) => {
            all &= !listed.others;
            for parameter in &listed.parameters {
                let name = String::from_utf8_lossy(&parameter.name);
                match of(&name) {
                    Some(action) => {
                        actions.push(action);
                        base &= !parameter.required;
                    }
                    None => all &= PLAIN.contains(&&*name),
                }
            }
        }
    }
    if base {
        actions.extend(of(""));
    }
    all &= !actions.is_empty();
    (actions, all)
}

/// Signatures hold for one region: AWS refuses every request that is signed for another one.
pub(super) fn region(used: &Use<'_>, view: &AwsView) -> Option<Diagnostic> {
    let mut origins = used.apis.iter().flat_map(|api| &api.origins);
    let (origin, region) = origins.find_map(|origin| {
        let labels = origin.value.host.as_str().strip_suffix(".amazonaws.com")?;
        let region = labels.rsplit('.').next().filter(|label| is_region(label))?;
        (region != view.region).then_some((origin, region))
    })?;
    let name = &used.credential.name.value;
    let message = format!("the credential `{name}` signs for `{}`, the origin is in `{region}`", view.region);
    let diagnostic = Diagnostic::warning(Code::GrantBeyondCredential, message).at(origin.place.clone());
    let diagnostic = diagnostic.related(used.credential.name.place.clone(), "the credential");
    Some(
        diagnostic
            .help(format!("write `region = \"{region}\"`, or give each region a credential of its own")),
    )
}

/// `eu-central-1`, `us-gov-west-1`.
fn is_region(label: &str) -> bool {
    let words: Vec<&str> = label.split('-').collect();
    let (Some(first), Some(last)) = (words.first(), words.last()) else { return false };
    words.len() >= 3 && first.len() == 2 && last.bytes().all(|byte| byte.is_ascii_digit()) && !last.is_empty()
}
