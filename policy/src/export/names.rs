//! Names of tools and arguments: what every model's interface takes, each once.

/// Characters of a name that the interfaces of models agree on.
const NAME_MAX_BYTES: usize = 64;

/// Arguments of one tool.
#[derive(Default)]
pub(super) struct Names(Vec<String>);

impl Names {
    /// A name for an argument, near to the one wanted.
    pub(super) fn take(&mut self, wanted: &str) -> String {
        let name = unique(&plain(wanted, "value"), &self.0);
        self.0.push(name.clone());
        name
    }
}

/// `get_orders_by_id`: the method, the words of the path, and what it is asked by.
pub(super) fn tool_name(prefix: &str, method: &str, words: &[String], taken: &[String]) -> String {
    let method = method.to_ascii_lowercase();
    let parts = [prefix, &method].into_iter().chain(words.iter().map(String::as_str));
    let parts: Vec<&str> = parts.filter(|part| !part.is_empty()).collect();
    unique(&plain(&parts.join("_"), "call"), taken)
}

fn plain(text: &str, fallback: &str) -> String {
    let mut out = String::new();
    for character in text.chars() {
        let kept = character.is_ascii_alphanumeric() || character == '-';
        if kept {
            out.push(character);
        } else if !out.is_empty() && !out.ends_with('_') {
            out.push('_');
        }
    }
    out.truncate(NAME_MAX_BYTES);
    let out = out.trim_end_matches('_');
    if out.is_empty() { fallback.to_owned() } else { out.to_owned() }
}

fn unique(name: &str, taken: &[String]) -> String {
    let is_free = |candidate: &String| !taken.contains(candidate);
    let mut candidates = std::iter::once(name.to_owned()).chain((2..=taken.len() + 2).map(|number| {
        let suffix = format!("_{number}");
        let short: String = name.chars().take(NAME_MAX_BYTES - suffix.len()).collect();
        format!("{short}{suffix}")
    }));
    candidates.find(is_free).unwrap_or_else(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain_short_and_different() {
        let mut names = Names::default();
        let made: Vec<String> =
            ["filter[min]", "filter(min)", "", "é", "a-b.c"].map(|name| names.take(name)).into();
        assert_eq!(made, ["filter_min", "filter_min_2", "value", "value_2", "a-b_c"]);
        let words = vec!["x".repeat(80)];
        let first = tool_name("", "GET", &words, &[]);
        let second = tool_name("", "GET", &words, std::slice::from_ref(&first));
        assert!(first.len() <= 64 && second.len() <= 64 && first != second, "{first} {second}");
    }
}
