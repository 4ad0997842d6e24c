//! A second reading of the policy language: from the text of a file, slow, without any of the crate's own code.

use regex_automata::meta::Regex;
use toml::Value;

pub(crate) struct Reference {
    rules: Vec<Rule>,
}

struct Rule {
    allow: bool,
    websocket: bool,
    methods: String,
    path: Regex,
    query: Query,
}

enum Query {
    Nothing,
    Anything,
    Listed { parameters: Vec<(String, bool, Regex)>, others: bool },
}

/// A request as bytes of a request line, after which nothing is decoded any more.
pub(crate) struct Asked<'a> {
    pub(crate) method: &'a str,
    pub(crate) target: &'a str,
    pub(crate) websocket: bool,
}

impl Reference {
    /// Reads the rules of every grant of a file with one API.
    pub(crate) fn read(text: &str) -> Self {
        let document: Value = toml::from_str(text).unwrap();
        let mut rules = Vec::new();
        for grant in document["grant"].as_table().unwrap().values() {
            for (word, allow) in [("allow", true), ("deny", false)] {
                for rule in grant.get(word).and_then(Value::as_array).into_iter().flatten() {
                    let websocket = rule.get("websocket").and_then(Value::as_bool).unwrap_or(false);
                    for route in rule["routes"].as_array().unwrap() {
                        rules.push(Rule::read(allow, websocket, route.as_str().unwrap()));
                    }
                }
            }
        }
        Self { rules }
    }

    pub(crate) fn allows(&self, asked: &Asked<'_>) -> bool {
        if ["TRACE", "TRACK", "CONNECT"].contains(&asked.method.to_ascii_uppercase().as_str()) {
            return false;
        }
        let denied = self.rules.iter().filter(|rule| !rule.allow).any(|rule| rule.denies(asked));
        let mut allowing = self.rules.iter().filter(|rule| rule.allow && rule.websocket == asked.websocket);
        !denied && allowing.any(|rule| rule.allows(asked))
    }
}

impl Rule {
    fn read(allow: bool, websocket: bool, route: &str) -> Self {
        let (methods, target) = route.trim().split_once(char::is_whitespace).unwrap();
        // No expression of the generator has a `?`.
        let (path, query) = match target.trim().split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (target.trim(), None),
        };
        let query = match query {
            None => Query::Nothing,
            Some("*") => Query::Anything,
            Some(listed) => {
                Query::Listed { parameters: parameters(listed, !allow), others: listed.ends_with("&*") }
            }
        };
        let path = Regex::new(&path_expression(path, !allow)).unwrap();
        Self { allow, websocket, methods: methods.to_owned(), path, query }
    }

    fn allows(&self, asked: &Asked<'_>) -> bool {
        let common = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
        let method = self.methods.split('|').any(|method| {
            (method == "*" && common.contains(&asked.method))
                || method == asked.method
                || (method == "GET" && asked.method == "HEAD")
        });
        let (path, query) = split_target(asked.target);
        method && self.path.is_match(&marked(path)) && query_allows(&self.query, query)
    }

    fn denies(&self, asked: &Asked<'_>) -> bool {
        let upper = asked.method.to_ascii_uppercase();
        let mut methods = self.methods.split('|');
        let method =
            methods.any(|method| method == "*" || method == upper || (method == "GET" && upper == "HEAD"));
        let (path, query) = split_target(asked.target);
        // As it is, and as an upstream reads it that decodes `%2F` first.
        let both = [marked(path), marked(path).replace('\u{1}', "/")];
        method && both.iter().any(|text| self.path.is_match(text)) && query_denies(&self.query, query)
    }
}

fn split_target(target: &str) -> (&str, &str) {
    target.split_once('?').unwrap_or((target, ""))
}

/// The path decoded once, with `%2F` as a byte that stands nowhere else.
fn marked(path: &str) -> String {
    decode(path, false, true)
}

fn decode(text: &str, plus: bool, mark_slash: bool) -> String {
    let mut out = Vec::new();
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'%' => {
                let byte = u8::from_str_radix(&text[at + 1..at + 3], 16).unwrap();
                out.push(if byte == b'/' && mark_slash { 1 } else { byte });
                at += 2;
            }
            b'+' if plus => out.push(b' '),
            byte => out.push(byte),
        }
        at += 1;
    }
    String::from_utf8(out).unwrap()
}

/// The whole path as one expression, in which `/` is a border and `\x01` an escaped slash.
fn path_expression(path: &str, deny: bool) -> String {
    let mut out = String::from(r"\A");
    let (path, end) = if path == "/**" {
        ("", "(?s:/.*)?")
    } else if let Some(path) = path.strip_suffix("/**") {
        (path, "(?s:/.*)?")
    } else if let Some(path) = path.strip_suffix('/') {
        (path, if deny { "/?" } else { "/" })
    } else {
        (path, if deny { "/?" } else { "" })
    };
    for segment in path.split('/').skip(1) {
        out.push('/');
        out.push_str(&text_expression(segment, deny, "[^/]+", false));
    }
    if path.is_empty() && end == "/?" {
        out.push('/');
    } else {
        out.push_str(end);
    }
    out.push_str(r"\z");
    out
}

fn text_expression(text: &str, deny: bool, any: &str, plus: bool) -> String {
    let case = if deny { "(?i)" } else { "" };
    // An escaped slash of the route matches one of the request, or the border that a deny rule takes it for.
    let literal = |text: &str| {
        let escaped =
            escape(&decode(text, plus, !plus)).replace('\u{1}', if deny { "[\u{1}/]" } else { "\u{1}" });
        format!("(?:{case}{escaped})")
    };
    let mut out = String::new();
    let mut rest = text;
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix('*') {
            out.push_str(any);
            rest = after;
        } else if let Some(inner) = rest.strip_prefix('{') {
            let (inner, after) = inner.split_once('}').unwrap();
            rest = after;
            out.push_str(&match inner {
                "int" => "[0-9]{1,20}".to_owned(),
                "hex" => "[0-9a-fA-F]+".to_owned(),
                "slug" => "[0-9A-Za-z_][0-9A-Za-z_-]*".to_owned(),
                _ if inner.starts_with("re:") => format!("(?:{})", &inner[3..]),
                _ if inner.contains('|') => {
                    format!("(?:{})", inner.split('|').map(literal).collect::<Vec<_>>().join("|"))
                }
                _ => any.to_owned(),
            });
        } else {
            let end = rest.find(['{', '*']).unwrap_or(rest.len());
            out.push_str(&literal(&rest[..end]));
            rest = &rest[end..];
        }
    }
    out
}

fn escape(text: &str) -> String {
    text.chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || c == '\u{1}' {
                c.to_string()
            } else {
                format!(r"\x{{{:x}}}", u32::from(c))
            }
        })
        .collect()
}

fn pairs(query: &str) -> Vec<(String, String)> {
    if query.is_empty() {
        return Vec::new();
    }
    let split = query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    split.map(|(name, value)| (decode(name, true, false), decode(value, true, false))).collect()
}

fn parameters(pattern: &str, deny: bool) -> Vec<(String, bool, Regex)> {
    let listed = pattern.split('&').filter(|parameter| *parameter != "*");
    let parsed = listed.map(|parameter| {
        let (name, value) =
            parameter.split_once('=').map_or((parameter, None), |(name, value)| (name, Some(value)));
        let (name, required) = name.strip_suffix('!').map_or((name, false), |name| (name, true));
        let expression = match value {
            None => "(?s:.*)".to_owned(),
            Some(value) => text_expression(value, deny, "(?s:.)+", true),
        };
        (decode(name, true, false), required, Regex::new(&format!(r"\A{expression}\z")).unwrap())
    });
    parsed.collect()
}

fn query_allows(pattern: &Query, query: &str) -> bool {
    let (parameters, others) = match pattern {
        Query::Nothing => return query.is_empty(),
        Query::Anything => return true,
        Query::Listed { parameters, others } => (parameters, *others),
    };
    let pairs = pairs(query);
    let each_is_fine = query.is_empty()
        || query.split('&').zip(&pairs).all(|(raw, (name, value))| {
            let clear = !raw.contains(';');
            match parameters.iter().find(|parameter| parameter.0 == *name) {
                Some((_, _, value_expression)) => {
                    let once = pairs.iter().filter(|pair| pair.0 == *name).count() == 1;
                    clear && once && value_expression.is_match(value)
                }
                None => others && clear,
            }
        });
    let all_there =
        parameters.iter().filter(|parameter| parameter.1).all(|p| pairs.iter().any(|pair| pair.0 == p.0));
    each_is_fine && all_there
}

fn query_denies(pattern: &Query, query: &str) -> bool {
    let Query::Listed { parameters, .. } = pattern else { return true };
    let pairs = pairs(&query.replace(';', "&"));
    parameters.iter().all(|(name, _, value_expression)| {
        pairs.iter().any(|pair| pair.0.eq_ignore_ascii_case(name) && value_expression.is_match(&pair.1))
    })
}
