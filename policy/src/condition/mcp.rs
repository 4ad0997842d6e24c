//! `mcp`: which JSON-RPC messages of the Model Context Protocol a request may carry, which tools they may call, and with
//! what arguments. Of a batch every message is judged.

use serde_json::{Value, json};

use super::body::Inspection;
use super::json::value::{Json, same_folded};
use super::json::{self, JsonTest};
use super::{Check, Miss};
use crate::Reason;
use crate::draft::Effect;
use crate::limits::BATCH_MAX;

/// The method that calls a tool.
pub(crate) const CALL: &str = "tools/call";

#[derive(Debug, Clone, Default)]
pub(crate) struct McpTest {
    /// Names of JSON-RPC methods; `notifications/*` is every one below.
    pub(crate) methods: Vec<Box<str>>,
    /// Names of tools for `tools/call`; empty: any.
    pub(crate) tools: Vec<Box<str>>,
    /// Of `params.arguments` of `tools/call`.
    pub(crate) arguments: Vec<JsonTest>,
    /// Answers to requests of the server may be sent too.
    pub(crate) responses: bool,
}

/// JSON-RPC 2.0, 4 and 5.
const MEMBERS: [&str; 6] = ["jsonrpc", "id", "method", "params", "result", "error"];

/// One message, as far as rules look at it.
enum Message<'j, 'a> {
    Call { method: &'j str, params: Option<&'j Json<'a>> },
    Response,
}

impl McpTest {
    pub(crate) fn check(&self, effect: Effect, inspection: &Inspection<'_>) -> Check {
        match inspection.json().and_then(|document| self.judge(effect, document)) {
            Ok(None) => Check::Holds,
            Ok(Some(detail)) => Check::Fails(Miss::new(Reason::BodyNotGranted, detail)),
            Err(miss) => Check::Unclear(miss),
        }
    }

    /// Why the test does not hold.
    fn judge(&self, effect: Effect, document: &Json<'_>) -> Result<Option<String>, Miss> {
        let messages = match document {
            Json::List(items) if items.is_empty() => return Err(malformed("an empty batch")),
            Json::List(items) if items.len() > BATCH_MAX => {
                let detail = format!("a batch of more than {BATCH_MAX}");
                return Err(Miss::new(Reason::InspectionTooComplex, detail));
            }
            Json::List(items) => items.as_slice(),
            other => std::slice::from_ref(other),
        };
        let (mut miss, mut held) = (None, false);
        for message in messages {
            let message = read(message)?;
            match effect {
                Effect::Allow => miss = miss.or(self.miss(&message)?),
                Effect::Deny => held |= self.denies(&message)?,
            }
        }
        Ok(match effect {
            Effect::Allow => miss,
            Effect::Deny => (!held).then(|| "no message is what is denied".to_owned()),
        })
    }

    fn miss(&self, message: &Message<'_, '_>) -> Result<Option<String>, Miss> {
        let (method, params) = match message {
            Message::Response if self.responses => return Ok(None),
            Message::Response => return Ok(Some("an answer to a request of the server".to_owned())),
            Message::Call { method, params } => (*method, *params),
        };
        if !self.methods.iter().any(|known| names(known, method)) {
            return Ok(Some(format!("the method `{}` is none of the methods", method.escape_debug())));
        }
        if method != CALL {
            return Ok(None);
        }
        let (tool, arguments) = call(params)?;
        if !self.tools.is_empty() && !self.tools.iter().any(|known| **known == *tool) {
            return Ok(Some(format!("the tool `{}` is none of the tools", tool.escape_debug())));
        }
        match json::check(&self.arguments, Effect::Allow, arguments.unwrap_or(&Json::Map(Vec::new()))) {
            Check::Holds => Ok(None),
            Check::Fails(miss) => Ok(Some(format!("argument {}", miss.detail))),
            Check::Unclear(miss) => Err(miss),
            Check::NeedsBody => Err(Miss::new(Reason::Internal, "arguments that wait for a body")),
        }
    }

    fn denies(&self, message: &Message<'_, '_>) -> Result<bool, Miss> {
        let Message::Call { method, params } = message else { return Ok(self.responses) };
        let lower = method.to_ascii_lowercase();
        if !self.methods.iter().any(|known| names(&known.to_ascii_lowercase(), &lower)) {
            return Ok(false);
        }
        if lower != CALL {
            return Ok(true);
        }
        let (tool, arguments) = call(*params)?;
        if !self.tools.is_empty() && !self.tools.iter().any(|known| same_folded(known, tool)) {
            return Ok(false);
        }
        match json::check(&self.arguments, Effect::Deny, arguments.unwrap_or(&Json::Map(Vec::new()))) {
            Check::Unclear(miss) => Err(miss),
            check => Ok(check == Check::Holds),
        }
    }

    pub(crate) fn canonical(&self) -> Value {
        let sorted = |texts: &[Box<str>]| {
            let mut texts = texts.to_vec();
            texts.sort_unstable();
            texts
        };
        let arguments = self.arguments.iter().map(|test| (test.pointer.to_string(), test.canonical()));
        json!({
            "methods": sorted(&self.methods), "tools": sorted(&self.tools), "responses": self.responses,
            "arguments": arguments.collect::<serde_json::Map<_, _>>(),
        })
    }
}

/// `a/b`, or `a/*` for everything below `a`.
pub(crate) fn names(known: &str, method: &str) -> bool {
    match known.strip_suffix('*') {
        Some(prefix) => method.len() > prefix.len() && method.starts_with(prefix),
        None => known == method,
    }
}

fn read<'j, 'a>(json: &'j Json<'a>) -> Result<Message<'j, 'a>, Miss> {
    let Json::Map(members) = json else { return Err(malformed("a JSON-RPC message that is no object")) };
    let unknown = members.iter().find(|(name, _)| !MEMBERS.contains(&name.as_ref()));
    if let Some((name, _)) = unknown {
        return Err(malformed(format!("a JSON-RPC message with `{}`", name.escape_debug())));
    }
    if json.member("jsonrpc")?.and_then(Json::text) != Some("2.0") {
        return Err(malformed("a JSON-RPC message that is not of version 2.0"));
    }
    let answers = json.member("result")?.is_some() || json.member("error")?.is_some();
    match (json.member("method")?, answers) {
        (Some(Json::Text(method)), false) => Ok(Message::Call { method, params: json.member("params")? }),
        (None, true) if json.member("params")?.is_none() => Ok(Message::Response),
        _ => Err(malformed("a JSON-RPC message that is neither a request nor an answer")),
    }
}

/// Name and arguments of a tool call.
fn call<'j, 'a>(params: Option<&'j Json<'a>>) -> Result<(&'j str, Option<&'j Json<'a>>), Miss> {
    let params = params.filter(|params| matches!(params, Json::Map(_)));
    let params = params.ok_or_else(|| malformed("a tool call without parameters by name"))?;
    let tool = params.member("name")?.and_then(Json::text);
    let tool = tool.ok_or_else(|| malformed("a tool call that names no tool"))?;
    Ok((tool, params.member("arguments")?))
}

fn malformed(detail: impl Into<std::borrow::Cow<'static, str>>) -> Miss {
    Miss::new(Reason::InspectionMalformed, detail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::condition::body::Facts;
    use crate::condition::json::{JsonWant, Pointer, Scalar};

    fn test() -> McpTest {
        let want = JsonWant { one_of: vec![Scalar::Text("acme".into())], ..JsonWant::default() };
        McpTest {
            methods: ["initialize", "notifications/*", CALL].map(Box::from).into(),
            tools: ["search", "read"].map(Box::from).into(),
            arguments: vec![JsonTest { pointer: Pointer::parse("/owner").unwrap(), want }],
            responses: false,
        }
    }

    fn reason(test: &McpTest, effect: Effect, body: &str) -> Option<Reason> {
        match test.check(effect, &Inspection::new(&Facts::default(), Ok(body.as_bytes()))) {
            Check::Fails(miss) | Check::Unclear(miss) => Some(miss.reason),
            _ => None,
        }
    }

    #[test]
    fn every_message_of_a_batch_is_judged() {
        let good = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"search","arguments":{"owner":"acme","q":1}}}"#;
        let note = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        let other = good.replace("search", "delete");
        let owner = good.replace("acme", "evil");
        for (body, expected) in [
            (good.to_owned(), None),
            (note.to_owned(), None),
            (format!("[{good},{note}]"), None),
            (format!("[{good},{other}]"), Some(Reason::BodyNotGranted)),
            (owner, Some(Reason::BodyNotGranted)),
            (good.replace(r#","arguments":{"owner":"acme","q":1}"#, ""), Some(Reason::BodyNotGranted)),
            (good.replace("tools/call", "tools/list"), Some(Reason::BodyNotGranted)),
            (good.replace("tools/call", "Tools/Call"), Some(Reason::BodyNotGranted)),
            (note.replace("notifications/initialized", "notifications/"), Some(Reason::BodyNotGranted)),
            (r#"{"jsonrpc":"2.0","id":1,"result":{}}"#.to_owned(), Some(Reason::BodyNotGranted)),
            ("[]".to_owned(), Some(Reason::InspectionMalformed)),
            (good.replace("2.0", "1.0"), Some(Reason::InspectionMalformed)),
            (good.replace(r#""id":1"#, r#""ID":1"#), Some(Reason::InspectionMalformed)),
            (good.replace(r#""id":1"#, r#""Method":"x""#), Some(Reason::InspectionMalformed)),
            (
                good.replace(r#""name":"search""#, r#""name":"search","Name":"delete""#),
                Some(Reason::InspectionDuplicateKey),
            ),
            (good.replace(r#""name":"search""#, r#""name":["search"]"#), Some(Reason::InspectionMalformed)),
            (
                good.replace(r#""owner":"acme""#, r#""owner":"acme","OWNER":"evil""#),
                Some(Reason::InspectionDuplicateKey),
            ),
            (good.replace(r#""id":1"#, r#""result":1"#), Some(Reason::InspectionMalformed)),
            (format!("[[{good}]]"), Some(Reason::InspectionMalformed)),
            (format!("[{}{good}]", format!("{good},").repeat(BATCH_MAX)), Some(Reason::InspectionTooComplex)),
        ] {
            assert_eq!(
                reason(&test(), Effect::Allow, &body),
                expected,
                "{}",
                body.get(..200).unwrap_or(&body)
            );
        }
    }

    #[test]
    fn a_deny_rule_takes_one_message_of_a_batch() {
        let deny = McpTest { methods: vec![CALL.into()], tools: vec!["delete".into()], ..McpTest::default() };
        let call = |tool: &str| {
            format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"{tool}"}}}}"#)
        };
        assert_eq!(reason(&deny, Effect::Deny, &call("DELETE")), None);
        assert_eq!(reason(&deny, Effect::Deny, &format!("[{},{}]", call("a"), call("delete"))), None);
        assert_eq!(reason(&deny, Effect::Deny, &call("a")), Some(Reason::BodyNotGranted));
        assert_eq!(reason(&deny, Effect::Deny, "{}"), Some(Reason::InspectionMalformed));
    }

    #[test]
    fn answers_pass_where_the_rule_says_so() {
        let answers = McpTest { responses: true, ..test() };
        assert_eq!(reason(&answers, Effect::Allow, r#"{"jsonrpc":"2.0","id":1,"error":{}}"#), None);
        assert_eq!(
            reason(&answers, Effect::Allow, r#"{"jsonrpc":"2.0","id":1,"error":{},"params":{}}"#),
            Some(Reason::InspectionMalformed)
        );
    }
}
