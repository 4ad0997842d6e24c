//! Reads HTTP/1.1 answers byte by byte, as strictly as they must be written.

use std::io::{self, Read};

/// A list of fields, names as they came.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fields(Vec<(String, String)>);

impl Fields {
    /// Values of a field, whatever the case of its name.
    pub fn all(&self, name: &str) -> Vec<&str> {
        let named = self.0.iter().filter(|(n, _)| n.eq_ignore_ascii_case(name));
        named.map(|(_, value)| value.as_str()).collect()
    }

    pub fn field(&self, name: &str) -> Option<&str> {
        self.all(name).first().copied()
    }
}

impl std::ops::Deref for Fields {
    type Target = [(String, String)];

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

/// An answer as it came.
#[derive(Clone)]
pub struct Response {
    pub status: u16,
    pub fields: Fields,
    pub body: Vec<u8>,
    pub trailers: Vec<(String, String)>,
    /// Status line and fields, raw.
    pub head: Vec<u8>,
}

impl Response {
    /// See [`Fields::all`].
    pub fn all(&self, name: &str) -> Vec<&str> {
        self.fields.all(name)
    }

    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.field(name)
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("not JSON ({error}): {}", self.text()))
    }

    /// The reason code of one of our refusals: in its body, and in a field for programs that show no body.
    pub fn reason(&self) -> Option<String> {
        let field = self.field("x-freeboard-reason")?.to_owned();
        if !self.body.is_empty() {
            assert_eq!(self.json()["error"], field.as_str(), "body and field agree");
        }
        Some(field)
    }
}

impl std::fmt::Debug for Response {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let body = self.text();
        let shown: String = body.chars().take(300).collect();
        write!(f, "{}{shown}", String::from_utf8_lossy(&self.head))
    }
}

/// Reads one answer to a request with `method`. `Err(UnexpectedEof)` when the connection closed before it was whole.
pub fn read(stream: &mut dyn Read, method: &str) -> io::Result<Response> {
    loop {
        let head = read_head(stream)?;
        let text = String::from_utf8_lossy(&head).into_owned();
        let mut lines = text.split("\r\n");
        let status_line = lines.next().unwrap_or_default();
        let status = status_line.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status: u16 = status.ok_or_else(|| malformed(status_line))?;
        let fields = parse_fields(lines)?;
        let mut response = Response { status, fields, body: Vec::new(), trailers: Vec::new(), head };
        if (100..200).contains(&status) && status != 101 {
            continue;
        }
        read_body(stream, method, &mut response)?;
        return Ok(response);
    }
}

/// Reads up to and with the empty line.
pub fn read_head(stream: &mut dyn Read) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
        if head.len() > 1 << 20 {
            return Err(malformed("a head without end"));
        }
    }
    Ok(head)
}

fn read_body(stream: &mut dyn Read, method: &str, response: &mut Response) -> io::Result<()> {
    let bodiless = method == "HEAD" || matches!(response.status, 101 | 204 | 304);
    let tunnel = method == "CONNECT" && (200..300).contains(&response.status);
    if bodiless || tunnel {
        return Ok(());
    }
    let chunked =
        response.field("transfer-encoding").is_some_and(|value| value.eq_ignore_ascii_case("chunked"));
    let length = response.field("content-length").map(str::to_owned);
    match (chunked, length) {
        (true, None) => read_chunks(stream, response),
        (true, Some(_)) => Err(malformed("both a length and chunks")),
        (false, Some(length)) => {
            let length: usize = length.parse().map_err(|_| malformed(&length))?;
            response.body = vec![0; length];
            stream.read_exact(&mut response.body)
        }
        (false, None) => match stream.read_to_end(&mut response.body) {
            // A close without TLS close_notify is the end too where the body has no length.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(()),
            other => other.map(drop),
        },
    }
}

fn read_chunks(stream: &mut dyn Read, response: &mut Response) -> io::Result<()> {
    loop {
        let line = read_line(stream)?;
        let size = usize::from_str_radix(&line, 16).map_err(|_| malformed(&line))?;
        if size == 0 {
            break;
        }
        let start = response.body.len();
        response.body.resize(start + size, 0);
        stream.read_exact(&mut response.body[start..])?;
        if !read_line(stream)?.is_empty() {
            return Err(malformed("a chunk without its end"));
        }
    }
    loop {
        let line = read_line(stream)?;
        if line.is_empty() {
            return Ok(());
        }
        response.trailers.extend_from_slice(&parse_fields(std::iter::once(line.as_str()))?);
    }
}

fn read_line(stream: &mut dyn Read) -> io::Result<String> {
    let mut line = Vec::new();
    let mut byte = [0];
    while !line.ends_with(b"\r\n") {
        stream.read_exact(&mut byte)?;
        line.push(byte[0]);
    }
    line.truncate(line.len() - 2);
    String::from_utf8(line).map_err(|_| malformed("a line that is not text"))
}

pub(crate) fn parse_fields<'a>(lines: impl Iterator<Item = &'a str>) -> io::Result<Fields> {
    let fields: io::Result<Vec<_>> = lines
        .filter(|line| !line.is_empty())
        .map(|line| {
            let (name, value) = line.split_once(':').ok_or_else(|| malformed(line))?;
            Ok((name.to_owned(), value.trim_matches([' ', '\t']).to_owned()))
        })
        .collect();
    fields.map(Fields)
}

fn malformed(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("malformed: {what}"))
}
