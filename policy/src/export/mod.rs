//! The client surface of a grant: one tool for each route and method, as a model is told of it.
//!
//! Arguments that fit a tool's schema make a request that the grant allows, unless a deny rule or a condition on headers or
//! body speaks against it; the description says where there is one. Nothing of a credential is in it, and of a hidden API only its alias.

mod names;
mod render;
mod schema;
mod template;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::Policy;
use crate::compiled::{Api, Grant, Route};
use crate::route::query::QueryPattern;
use names::{Names, tool_name};

/// How tools are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// The answer to `tools/list` of the Model Context Protocol.
    Mcp,
    /// The `tools` of a chat request as OpenAI defined it.
    Openai,
    /// For people.
    Markdown,
}

/// What a grant lets a client do.
#[derive(Debug, Clone, PartialEq)]
pub struct Surface {
    pub grant: Arc<str>,
    pub tools: Vec<Tool>,
    /// Routes that are no tools, each with the reason.
    pub left_out: Vec<(Arc<str>, &'static str)>,
}

/// One method of one route.
#[derive(Debug, Clone, PartialEq)]
pub struct Tool {
    pub name: String,
    pub description: String,
    pub method: String,
    /// A URI template (RFC 6570) of the URL without its query: `{name}` and, for several segments, `{+name}`.
    pub url: String,
    /// Argument → name of the query parameter that it becomes.
    pub query: BTreeMap<String, String>,
    /// JSON Schema of the arguments.
    pub parameters: Value,
}

impl Policy {
    /// The client surface of a grant; `None` when there is no such grant.
    pub fn client_surface(&self, grant: &str) -> Option<Surface> {
        let index = *self.compiled.grant_names.get(grant)?;
        let grant = self.compiled.grants.get(index)?;
        let mut surface =
            Surface { grant: Arc::clone(&grant.view.name), tools: Vec::new(), left_out: Vec::new() };
        let mut taken = Vec::new();
        for rules in &grant.rules {
            let Some(api) = self.compiled.apis.get(rules.api) else { continue };
            for route in &rules.allow.routes {
                if route.line.methods.is_connection() {
                    let written =
                        api.origins.iter().map(|origin| api.view.traffic.url(&origin.host, origin.port));
                    let reason = "a connection is no tool";
                    surface.left_out.extend(written.map(|written| (written.into(), reason)));
                    continue;
                }
                if route.websocket {
                    surface.left_out.push((Arc::clone(&route.line.written), "a websocket is no tool"));
                    continue;
                }
                let context = Context { grant, api, denied: !rules.deny.is_empty() };
                for method in route.line.methods.names() {
                    surface.tools.push(context.tool(route, method, &mut taken));
                }
            }
        }
        Some(surface)
    }
}

impl Surface {
    /// The surface as text, ending in a line break.
    pub fn render(&self, format: Format) -> String {
        render::surface(self, format)
    }
}

/// Where a route stands.
struct Context<'p> {
    grant: &'p Grant,
    api: &'p Api,
    denied: bool,
}

impl Context<'_> {
    fn tool(&self, route: &Route, method: &str, taken: &mut Vec<String>) -> Tool {
        let mut names = Names::default();
        let mut properties = Map::new();
        let mut required = Vec::new();
        let mut url = self.origin(&mut names, &mut properties, &mut required);
        let path = template::path(&route.line.written);
        let words = path.words();
        for part in path.parts {
            match part {
                template::Part::Text(text) => url.push_str(&text),
                template::Part::Variable { name, pattern } => {
                    let name = names.take(&name);
                    url.push_str(&format!("{{{name}}}"));
                    properties.insert(name.clone(), schema::of(&pattern));
                    required.push(name);
                }
                template::Part::Rest => {
                    let name = names.take("rest");
                    url.push_str(&format!("{{+{name}}}"));
                    let description = "further segments of the path, with their slashes; may be empty";
                    properties.insert(name, json!({ "type": "string", "description": description }));
                }
            }
        }
        let query = self.query(route, &mut names, &mut properties, &mut required);
        if !matches!(method, "GET" | "HEAD" | "DELETE" | "OPTIONS") {
            properties
                .insert(names.take("body"), json!({ "description": "the body of the request, as JSON" }));
        }
        let prefix = if self.grant.rules.len() > 1 { &*self.api.view.name } else { "" };
        let name = tool_name(prefix, method, &words, taken);
        taken.push(name.clone());
        let parameters = json!({
            "type": "object", "properties": properties, "required": required, "additionalProperties": false,
        });
        Tool {
            name,
            description: self.description(route, method),
            method: method.to_owned(),
            url,
            query,
            parameters,
        }
    }

    /// The start of the URL; an argument where the API has several origins.
    fn origin(
        &self,
        names: &mut Names,
        properties: &mut Map<String, Value>,
        required: &mut Vec<String>,
    ) -> String {
        let hosts = self.api.origins.iter().map(|origin| {
            crate::origin::url(self.api.view.alias.as_ref().unwrap_or(&origin.host), origin.port)
        });
        let urls: Vec<String> = hosts.collect();
        match urls.as_slice() {
            [only] => only.clone(),
            _ => {
                let name = names.take("origin");
                properties.insert(name.clone(), json!({ "type": "string", "enum": urls }));
                required.push(name.clone());
                format!("{{+{name}}}")
            }
        }
    }

    fn query(
        &self,
        route: &Route,
        names: &mut Names,
        properties: &mut Map<String, Value>,
        required: &mut Vec<String>,
    ) -> BTreeMap<String, String> {
        let mut query = BTreeMap::new();
        let mut others = matches!(route.line.query, QueryPattern::Any);
        if let QueryPattern::Listed(listed) = &route.line.query {
            others = listed.others;
            for parameter in &listed.parameters {
                let written = String::from_utf8_lossy(&parameter.name).into_owned();
                let name = names.take(&written);
                properties.insert(name.clone(), schema::of(&parameter.value));
                if parameter.required {
                    required.push(name.clone());
                }
                query.insert(name, written);
            }
        }
        if others {
            let name = names.take("query");
            let description = "other query parameters";
            let any = json!({ "type": "object", "additionalProperties": { "type": "string" }, "description": description });
            properties.insert(name.clone(), any);
            // `*`: each entry of the argument is a parameter of its own.
            query.insert(name, "*".to_owned());
        }
        query
    }

    fn description(&self, route: &Route, method: &str) -> String {
        let mut out = format!("{method} {} of {}.", template::shown(&route.line.written), self.api.view.name);
        if self.denied {
            out.push_str(" Some arguments are refused by rules that deny.");
        }
        if route.terms.is_some() {
            out.push_str(" Headers or body must meet conditions of the policy.");
        }
        if let Some(calls) = self.grant.view.calls {
            out.push_str(&format!(" A run may make {calls} calls in all."));
        }
        out
    }
}
