//! Bodies of those conditions that look at one whole: GraphQL, JSON-RPC, pkt-lines.

use serde_json::{Value, json};

use super::{put, value_does, values};
use crate::condition::Terms;
use crate::condition::git::{GitOperation, RefChange};
use crate::condition::graphql::OperationKind;
use crate::condition::json::JsonTest;
use crate::condition::mcp::CALL;

/// Bodies for these conditions.
pub(super) fn of(all: &[&Terms]) -> Vec<String> {
    let mut found = Vec::new();
    let tests = || all.iter().map(|terms| &terms.body);
    let (mut fields, mut names) = (vec!["other".to_owned()], vec![String::new(), "Other".to_owned()]);
    for test in tests().filter_map(|body| body.graphql.as_ref()) {
        fields.extend(test.fields.iter().map(ToString::to_string));
        names.extend(test.names.iter().map(ToString::to_string));
    }
    if tests().any(|body| body.graphql.is_some()) {
        for kind in OperationKind::ALL {
            for field in &fields {
                for name in &names {
                    let document = format!("{} {name} {{ {field} }}", kind.word()).replace("  ", " ");
                    found.push(json!({ "query": document }).to_string());
                }
            }
        }
    }
    found.extend(messages(all));
    let pushed = tests().filter_map(|body| body.git.as_ref());
    for git in pushed {
        found.push(match git.operation {
            GitOperation::Fetch => format!("{}00000009done\n", pkt(&format!("want {}\n", "1".repeat(40)))),
            GitOperation::Push => "0000".to_owned(),
        });
        let names = git.refs.iter().map(|pattern| pattern.to_string().replace("**", "x").replace('*', "x"));
        for name in names.chain(["refs/heads/other".to_owned()]) {
            found.extend(RefChange::ALL.map(|change| push(change, &name)));
        }
    }
    found
}

fn push(change: RefChange, name: &str) -> String {
    let (none, one, two) = ("0".repeat(40), "1".repeat(40), "2".repeat(40));
    let (old, new) = match change {
        RefChange::Create => (none, one),
        RefChange::Update => (one, two),
        RefChange::Delete => (one, none),
    };
    let pack = if change == RefChange::Delete { "" } else { "PACK" };
    format!("{}0000{pack}", pkt(&format!("{old} {new} {name}")))
}

fn pkt(line: &str) -> String {
    format!("{:04x}{line}", line.len() + 4)
}

/// JSON-RPC messages: each method, and for calls of tools each tool with each argument.
fn messages(all: &[&Terms]) -> Vec<String> {
    let tests: Vec<_> = all.iter().filter_map(|terms| terms.body.mcp.as_ref()).collect();
    let mut found = Vec::new();
    let mut tools = vec!["other".to_owned()];
    let mut arguments: Vec<&JsonTest> = Vec::new();
    for test in &tests {
        tools.extend(test.tools.iter().map(ToString::to_string));
        arguments.extend(&test.arguments);
        let methods = test.methods.iter().filter(|method| ***method != *CALL);
        found.extend(methods.map(|method| {
            json!({ "jsonrpc": "2.0", "id": 1, "method": method.replace('*', "x") }).to_string()
        }));
    }
    if tests.is_empty() {
        return found;
    }
    found.push(json!({ "jsonrpc": "2.0", "id": 1, "method": "other" }).to_string());
    found.push(json!({ "jsonrpc": "2.0", "id": 1, "result": {} }).to_string());
    let call = |tool: &str, arguments: &Value| {
        let params = json!({ "name": tool, "arguments": arguments });
        json!({ "jsonrpc": "2.0", "id": 1, "method": CALL, "params": params }).to_string()
    };
    for tool in &tools {
        found.push(call(tool, &json!({})));
        // For each rule arguments that it takes, and those with one changed.
        for test in &tests {
            let choices = |of: &JsonTest| {
                let wants = arguments.iter().filter(|other| other.pointer == of.pointer);
                values(&wants.map(|test| &test.want).collect::<Vec<_>>())
            };
            let mut base = json!({});
            for of in &test.arguments {
                if let Some(value) = choices(of).iter().find(|value| value_does(&of.want, Some(value))) {
                    put(&mut base, &of.pointer, value);
                }
            }
            found.push(call(tool, &base));
            for of in &arguments {
                for value in choices(of) {
                    let mut changed = base.clone();
                    put(&mut changed, &of.pointer, &value);
                    found.push(call(tool, &changed));
                }
            }
        }
    }
    found
}
