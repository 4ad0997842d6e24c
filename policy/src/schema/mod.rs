//! The file as people write it, for the JSON Schema that editors check against and for the reference page.
//!
//! The reader in `read/` works on the text itself, because it needs the place of every mistake; a test holds its fields
//! and those of this module together.

mod api;
mod condition;
mod credential;
mod grant;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;

use self::api::Api;
use self::credential::Credential;
use self::grant::{Budget, Grant};
use crate::cases::CasesFile;

/// JSON Schema of `*.toml`, pretty-printed.
pub fn policy_file() -> String {
    pretty::<PolicyFile>()
}

/// JSON Schema of `*.test.toml`, pretty-printed.
pub fn cases_file() -> String {
    pretty::<CasesFile>()
}

fn pretty<T: JsonSchema>() -> String {
    // Editors for TOML read draft 7.
    let schema = SchemaSettings::draft07().into_generator().into_root_schema_for::<T>();
    serde_json::to_string_pretty(&schema).unwrap_or_default()
}

/// A file of a policy folder. Definitions of all files make one policy; each name is defined once.
#[derive(Debug, JsonSchema)]
#[schemars(deny_unknown_fields, title = "Freeboard policy file")]
#[expect(dead_code, reason = "only the shape matters: the reader works on the text itself")]
pub(crate) struct PolicyFile {
    /// Version of the language. Left out: 1.
    #[schemars(range(min = 1, max = 1))]
    version: Option<u32>,
    /// Warnings of this file that somebody looked at, and why they may stay.
    allow_warning: Option<Vec<AllowWarning>>,
    /// What grants that say nothing else have.
    defaults: Option<Defaults>,
    /// Secrets and how they are attached, by name.
    credential: Option<BTreeMap<String, Credential>>,
    /// Where requests may go, by name.
    api: Option<BTreeMap<String, Api>>,
    /// Callers under one name, by name.
    group: Option<BTreeMap<String, Group>>,
    /// Who may call what, by name.
    grant: Option<BTreeMap<String, Grant>>,
}

/// A warning that may stay. Errors cannot be allowed; an allowance that allows nothing is a warning itself.
#[derive(Debug, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "only the shape matters: the reader works on the text itself")]
pub(crate) struct AllowWarning {
    /// Number or words of the warning: `E0507` or `wide-rule`.
    code: String,
    /// The definition of this file that it is about: `grant.NAME`, `api.NAME`. Left out: every one of the file.
    at: Option<String>,
    /// Why it may stay, for whoever reads the file next.
    reason: String,
}

/// Settings of every grant of the folder that does not have its own. Written once.
#[derive(Debug, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "only the shape matters: the reader works on the text itself")]
pub(crate) struct Defaults {
    /// The weakest boundary behind which a grant is used.
    floor: Option<crate::Tier>,
    /// How long one run may use a grant.
    ttl: Option<String>,
    /// Limits of one run under a grant.
    budget: Option<Budget>,
}

/// Callers under one name.
#[derive(Debug, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "only the shape matters: the reader works on the text itself")]
pub(crate) struct Group {
    /// Authenticated callers of sandboxd.
    #[schemars(length(min = 1))]
    callers: Vec<String>,
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    fn fields(schema: &Value) -> Vec<&str> {
        let mut names: Vec<&str> =
            schema["properties"].as_object().unwrap().keys().map(String::as_str).collect();
        names.sort_unstable();
        names
    }

    fn sorted<'w>(words: &[&'w str]) -> Vec<&'w str> {
        let mut words = words.to_vec();
        words.sort_unstable();
        words
    }

    #[test]
    fn the_schema_has_the_fields_that_the_reader_knows() {
        let schema: Value = serde_json::from_str(&super::policy_file()).unwrap();
        let definition = |name: &str| &schema["definitions"][name];
        assert_eq!(fields(&schema), sorted(crate::read::FILE_FIELDS));
        assert_eq!(fields(definition("AllowWarning")), sorted(crate::read::allowance::ALLOWANCE_FIELDS));
        assert_eq!(fields(definition("Api")), sorted(crate::read::api::API_FIELDS));
        assert_eq!(fields(definition("Placeholder")), sorted(crate::read::placeholder::PLACEHOLDER_FIELDS));
        assert_eq!(fields(definition("Trust")), sorted(crate::read::api::TRUST_FIELDS));
        assert_eq!(fields(definition("Grant")), sorted(crate::read::grant::GRANT_FIELDS));
        assert_eq!(fields(definition("Budget")), sorted(crate::read::grant::BUDGET_FIELDS));
        let rule = [crate::read::grant::RULE_FIELDS, crate::read::condition::CONDITION_FIELDS].concat();
        assert_eq!(fields(definition("Rule")), sorted(&rule));
        assert_eq!(fields(definition("Graphql")), sorted(crate::read::condition::GRAPHQL_FIELDS));
        assert_eq!(fields(definition("Mcp")), sorted(crate::read::condition::MCP_FIELDS));
        assert_eq!(fields(definition("Grpc")), sorted(crate::read::condition::GRPC_FIELDS));
        assert_eq!(fields(definition("Defaults")), sorted(crate::read::grant::DEFAULTS_FIELDS));
        assert_eq!(fields(definition("Group")), sorted(crate::read::grant::GROUP_FIELDS));
        assert_eq!(fields(definition("ApprovalTable")), sorted(crate::read::condition::APPROVAL_FIELDS));
        assert_eq!(fields(definition("Git")), sorted(crate::read::condition::GIT_FIELDS));
        assert_eq!(fields(definition("HeaderTable")), sorted(crate::read::condition::HEADER_FIELDS));
        assert_eq!(fields(definition("JsonTable")), sorted(crate::read::condition::JSON_FIELDS));
        let kinds = definition("Credential")["oneOf"].as_array().unwrap();
        let by_kind: Vec<(&str, Vec<&str>)> = kinds
            .iter()
            .map(|kind| (kind["properties"]["kind"]["const"].as_str().unwrap(), fields(kind)))
            .collect();
        let known: Vec<(&str, Vec<&str>)> =
            crate::read::credential::KINDS.iter().map(|(kind, fields)| (*kind, sorted(fields))).collect();
        assert_eq!(by_kind, known);
        assert_eq!(fields(definition("Subject")), sorted(crate::read::credential::SUBJECT_FIELDS));
        let sources = definition("Secret")["oneOf"].as_array().unwrap();
        let sources: Vec<&str> = sources.iter().flat_map(|source| fields(source)).collect();
        assert_eq!(sources, crate::read::credential::REFERENCES);
        let algorithms: Vec<&str> =
            definition("Algorithm")["enum"].as_array().unwrap().iter().map(|a| a.as_str().unwrap()).collect();
        assert_eq!(algorithms, crate::read::credential::ALGORITHMS);
    }

    #[test]
    fn the_schemas_are_what_is_stored() {
        insta::assert_snapshot!("policy_file_schema", super::policy_file());
        insta::assert_snapshot!("cases_file_schema", super::cases_file());
    }
}
