//! Cases of raw bytes from a file, with what must become of each.
//!
//! `== NAME: OUTCOME` begins a case, `## TEXT` a group. The lines that follow are sent, each with CRLF; a `\` at the end of a line
//! keeps that away. `\r \n \t \0 \xNN \\` stand for bytes, `{{TEXT*N}}` for N times the text. A name that ends in `@proxy` is for the
//! proxy itself, in the clear; all others are sent inside of TLS. Outcomes:
//!
//! - `close STATUS REASON`: refused and closed, what follows is not read. `broken`: the same, or closed without an answer.
//! - `keep STATUS REASON`: refused, and the next request of the connection is answered.
//! - `pass TARGET [body=TEXT] [has=NAME:VALUE] [lacks=NAME]`: one request goes on, with this target, body, field and without that field,
//!   and the next one is answered. `pass-close`: the connection is closed behind it.

/// One case.
#[derive(Debug)]
pub struct Probe {
    pub name: String,
    /// Sent to the proxy itself.
    pub to_proxy: bool,
    pub outcome: String,
    pub bytes: Vec<u8>,
}

/// Reads cases.
pub fn read(text: &str) -> Vec<Probe> {
    let mut probes: Vec<Probe> = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with("## ")) {
        if let Some(head) = line.strip_prefix("== ") {
            let (name, outcome) = head.rsplit_once(": ").unwrap_or_else(|| panic!("no outcome: {head}"));

            let (bare, to_proxy) = match name.strip_suffix(" @proxy") {
                Some(bare) => (bare, true),
                None => (name, false),
            };
            let outcome = repeated(outcome);
            probes.push(Probe { name: bare.to_owned(), to_proxy, outcome, bytes: Vec::new() });
            continue;
        }
        let probe = probes.last_mut().unwrap_or_else(|| panic!("before the first case: {line}"));
        let backslashes = line.bytes().rev().take_while(|byte| *byte == b'\\').count();
        let whole = backslashes % 2 == 0;
        let line = if whole { line } else { &line[..line.len() - 1] };
        probe.bytes.extend(unescaped(&repeated(line)));
        if whole {
            probe.bytes.extend_from_slice(b"\r\n");
        }
    }
    probes
}

/// With every `{{TEXT*N}}` written out.
fn repeated(line: &str) -> String {
    let Some((before, rest)) = line.split_once("{{") else { return line.to_owned() };
    let (inside, after) = rest.split_once("}}").unwrap_or_else(|| panic!("not closed: {line}"));
    let (text, count) = inside.rsplit_once('*').unwrap_or_else(|| panic!("no number: {line}"));
    format!("{before}{}{}", text.repeat(count.parse().unwrap()), repeated(after))
}

fn unescaped(line: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = line.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'\\' {
            bytes.push(*first);
            continue;
        }
        let (byte, used) = match after {
            [b'r', ..] => (b'\r', 1),
            [b'n', ..] => (b'\n', 1),
            [b't', ..] => (b'\t', 1),
            [b'0', ..] => (0, 1),
            [b'\\', ..] => (b'\\', 1),
            [b'x', high, low, ..] => {
                let digits = [*high, *low];
                (u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap(), 3)
            }
            _ => panic!("no such escape: {line}"),
        };
        bytes.push(byte);
        rest = &rest[used..];
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_lines_escapes_and_repeats() {
        let probes =
            read("## group\n== a: b: keep 400 x\nGET\\x20\\\\\n\nab\\\n== c @proxy: broken\n{{xy*2}}\\r\n");
        let (one, two) = (&probes[0], &probes[1]);
        assert_eq!((one.name.as_str(), one.outcome.as_str(), one.to_proxy), ("a: b", "keep 400 x", false));
        assert_eq!(one.bytes, b"GET \\\r\n\r\nab");
        assert_eq!((two.name.as_str(), two.bytes.as_slice(), two.to_proxy), ("c", &b"xyxy\r\r\n"[..], true));
    }
}
