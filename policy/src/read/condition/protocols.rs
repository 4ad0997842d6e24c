//! `graphql = { … }`, `mcp = { … }`, `grpc = { … }`.

use toml::Spanned;
use toml::de::DeTable;

use super::super::table::{Fields, Reader};
use super::{json, word};
use crate::condition::graphql::{GraphqlTest, OperationKind};
use crate::condition::grpc::{GrpcMethod, GrpcTest};
use crate::condition::mcp::{CALL, McpTest, names};
use crate::diagnostic::Code;
use crate::draft::Effect;
use crate::units::size_bytes;

pub(crate) const GRAPHQL_FIELDS: &[&str] = &["operations", "fields", "names"];
pub(crate) const MCP_FIELDS: &[&str] = &["methods", "tools", "arguments", "responses"];
pub(crate) const GRPC_FIELDS: &[&str] = &["methods", "max_message"];

pub(super) fn opened<'t, 'i>(
    reader: &mut Reader<'_, '_>,
    fields: &Fields<'t, 'i>,
    key: &str,
    known: &[&str],
) -> Option<Fields<'t, 'i>> {
    let table: &'t DeTable<'i> = fields.table(reader, key)?;
    let span = fields.get(key).map_or(0..0, Spanned::span);
    Some(Fields::new(reader, table, span, format!("a `{key}` condition"), known))
}

pub(super) fn graphql(reader: &mut Reader<'_, '_>, fields: &Fields<'_, '_>) -> Option<GraphqlTest> {
    let inner = opened(reader, fields, "graphql", GRAPHQL_FIELDS)?;
    let words = OperationKind::ALL.map(OperationKind::word);
    let mut operations = Vec::new();
    for (text, span) in
        inner.required_texts(reader, "operations", "operations = [\"query\"]").unwrap_or_default()
    {
        let found = word(reader, text, span, "a type of operation", &words);
        operations.extend(found.and_then(OperationKind::from_word));
    }
    let (fields, names) = (identifiers(reader, &inner, "fields"), identifiers(reader, &inner, "names"));
    Some(GraphqlTest { operations, fields, names })
}

fn identifiers(reader: &mut Reader<'_, '_>, fields: &Fields<'_, '_>, key: &str) -> Vec<Box<str>> {
    let mut found = Vec::new();
    for (text, span) in fields.texts(reader, key).unwrap_or_default() {
        let good = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        if good {
            found.push(text.into());
        } else {
            let message = format!("`{}` is not a name of GraphQL", text.escape_debug());
            let help = "a field is named by its real name, without alias, arguments or the fields below it";
            reader.error(Code::BadCondition, span, message, help);
        }
    }
    found
}

pub(super) fn mcp(reader: &mut Reader<'_, '_>, fields: &Fields<'_, '_>, effect: Effect) -> Option<McpTest> {
    let inner = opened(reader, fields, "mcp", MCP_FIELDS)?;
    let mut methods: Vec<Box<str>> = Vec::new();
    let example = "methods = [\"initialize\", \"notifications/*\", \"tools/list\", \"tools/call\"]";
    for (text, span) in inner.required_texts(reader, "methods", example).unwrap_or_default() {
        let body = text.strip_suffix("/*").unwrap_or(text);
        let good = !body.is_empty()
            && body.split('/').all(|part| !part.is_empty())
            && body.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/_-.$".contains(&byte));
        if good {
            methods.push(text.into());
        } else {
            let message = format!("`{}` is not a JSON-RPC method", text.escape_debug());
            let help = "for example `tools/call`, or `notifications/*` for every one below";
            reader.error(Code::BadCondition, span, message, help);
        }
    }
    let tools: Vec<Box<str>> =
        inner.texts(reader, "tools").unwrap_or_default().into_iter().map(|(text, _)| text.into()).collect();
    let arguments = json::table(reader, &inner, "arguments", effect);
    let calls = methods.iter().any(|known| names(known, CALL));
    for key in ["tools", "arguments"] {
        if let Some(value) = inner.get(key).filter(|_| !calls && !methods.is_empty()) {
            let message = format!("`{key}` is about `{CALL}`, which is none of the methods");
            reader.error(
                Code::BadCondition,
                value.span(),
                message,
                &format!("add `\"{CALL}\"` to `methods`"),
            );
        }
    }
    Some(McpTest { methods, tools, arguments, responses: inner.flag(reader, "responses") })
}

pub(super) fn grpc(reader: &mut Reader<'_, '_>, fields: &Fields<'_, '_>, effect: Effect) -> Option<GrpcTest> {
    let inner = opened(reader, fields, "grpc", GRPC_FIELDS)?;
    let mut methods = Vec::new();
    for (text, span) in
        inner.required_texts(reader, "methods", "methods = [\"acme.v1.Items/Get\"]").unwrap_or_default()
    {
        match GrpcMethod::parse(text) {
            Some(method) => methods.push(method),
            None => {
                let message = format!("`{}` is not a gRPC method", text.escape_debug());
                let help =
                    "write `package.Service/Method`, or `package.Service/*` for every one of a service";
                reader.error(Code::BadCondition, span, message, help);
            }
        }
    }
    let help = "a size such as `\"64KiB\"`, of each message as it is sent";
    let max_message_bytes = inner.measured(reader, "max_message", size_bytes, help);
    if let Some(value) = inner.get("max_message").filter(|_| effect == Effect::Deny) {
        let help = "bound messages in the rule that allows them";
        reader.error(Code::BadCondition, value.span(), "a deny rule refuses before there is a message", help);
    }
    Some(GrpcTest { methods, max_message_bytes })
}
