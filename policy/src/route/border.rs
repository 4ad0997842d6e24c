//! Other readings of a deny line: an escaped slash of its path as a border of segments. `/@acme%2Ftool` and `/@acme/tool` are
//! one thing to many an upstream, and a deny rule for one of them must not be dodged by the other.

use std::collections::{BTreeSet, VecDeque};

use super::line::with_depth;

/// Readings of one line: six escaped slashes, each as data or as a border. Of a line with more only the one in which all are
/// borders is looked at beside the line itself.
const READINGS_MAX: usize = 63;

/// The path of a line as text, with some or all of its escaped slashes as borders: every way there is. An expression
/// (`{re:…}`) stays what it is.
pub(super) fn readings(path: &str) -> Vec<String> {
    let (mut known, mut open) = (BTreeSet::new(), VecDeque::from([path.to_owned()]));
    while let Some(text) = open.pop_front() {
        for next in slashes(&text).map(|at| bordered(&text, at)).chain(chosen(&text)) {
            if known.len() > READINGS_MAX {
                return vec![all_borders(path)];
            }
            if known.insert(next.clone()) {
                open.push_back(next);
            }
        }
    }
    known.into_iter().collect()
}

/// Where `%2F` stands in literal text.
fn slashes(text: &str) -> impl Iterator<Item = usize> {
    let places = with_depth(text).filter(|(_, byte, depth)| (*byte, *depth) == (b'%', 0));
    places.map(|(at, ..)| at).filter(|at| is_slash(text, *at))
}

fn is_slash(text: &str, at: usize) -> bool {
    text.get(at..at + 3).is_some_and(|escape| escape.eq_ignore_ascii_case("%2f"))
}

fn bordered(text: &str, at: usize) -> String {
    let (before, after) = (text.get(..at).unwrap_or_default(), text.get(at + 3..).unwrap_or_default());
    format!("{before}/{after}")
}

fn all_borders(path: &str) -> String {
    let mut text = path.to_owned();
    loop {
        let Some(at) = slashes(&text).next() else { return text };
        text = bordered(&text, at);
    }
}

/// The text with one `{a|b%2Fc}` as the alternative that has the slash.
fn chosen(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut start = None;
    for (at, byte, depth) in with_depth(text) {
        match (byte, depth) {
            (b'{', 0) => start = Some(at),
            (b'}', 1) => {
                let Some(from) = start.take() else { continue };
                let (before, inner) = (text.get(..from), text.get(from + 1..at));
                let (Some(before), Some(inner), Some(after)) = (before, inner, text.get(at + 1..)) else {
                    continue;
                };
                if inner.starts_with("re:") {
                    continue;
                }
                let with_slash = inner.split('|').filter(|one| (0..one.len()).any(|at| is_slash(one, at)));
                found.extend(with_slash.map(|one| format!("{before}{one}{after}")));
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::readings;

    #[test]
    fn each_escaped_slash_is_data_or_a_border() {
        assert!(readings("/a/{x}/{re:a%2Fb}").is_empty());
        assert_eq!(readings("/a%2fb"), ["/a/b"]);
        assert_eq!(readings("/a%2F*/c%2Fd"), ["/a%2F*/c/d", "/a/*/c%2Fd", "/a/*/c/d"]);
        assert_eq!(readings("/{x|a%2Fb}c"), ["/a%2Fbc", "/a/bc"]);
        let many = "/a%2Fb".repeat(9);
        assert_eq!(readings(&many), ["/a/b".repeat(9)]);
    }
}
