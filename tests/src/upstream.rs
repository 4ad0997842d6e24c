//! Upstreams that record every byte they get and answer from a script.

use std::collections::HashMap;
use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use rustls::{ServerConnection, StreamOwned};

use crate::answer::{Answer, Then, echo};
use crate::ca::{Flaw, TestCa};
use crate::network::Network;
use crate::response::{Fields, parse_fields, read_head};

/// The lab's hosts, in the order of their addresses (10.77.0.1…).
pub const HOSTS: [&str; 8] =
    ["api.test", "echo.test", "pub.test", "git.test", "reg.test", "cdn.test", "aws.test", "evil.test"];

/// Address of a lab host in the world.
pub fn address_of(host: &str) -> IpAddr {
    let at =
        HOSTS.iter().position(|name| *name == host).unwrap_or_else(|| panic!("no host `{host}` in the lab"));
    IpAddr::V4(Ipv4Addr::new(10, 77, 0, u8::try_from(at + 1).unwrap()))
}

/// One request as an upstream got it.
#[derive(Clone)]
pub struct Recorded {
    /// Host whose address was dialled.
    pub host: &'static str,
    /// Server name of the handshake.
    pub server_name: String,
    /// Number of its TCP connection, counted over all hosts.
    pub connection: usize,
    pub method: String,
    pub target: String,
    pub fields: Fields,
    /// Raw request line and fields, with the empty line.
    pub head: Vec<u8>,
    /// Body bytes as framed on the wire (chunk sizes and all).
    pub raw_body: Vec<u8>,
    /// Body content.
    pub body: Vec<u8>,
}

impl std::fmt::Debug for Recorded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let body = String::from_utf8_lossy(&self.body).chars().take(300).collect::<String>();
        write!(
            f,
            "at {} ({}) on connection {}:\n{}{body}",
            self.host,
            self.server_name,
            self.connection,
            String::from_utf8_lossy(&self.head)
        )
    }
}

impl Recorded {
    /// See [`Fields::all`].
    pub fn all(&self, name: &str) -> Vec<&str> {
        self.fields.all(name)
    }

    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.field(name)
    }

    pub fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }
}

type Script = Arc<dyn Fn(&Recorded) -> Answer + Send + Sync>;
/// Takes over a connection after a request, for answers that are not one block of bytes.
type Takeover = Arc<dyn Fn(&Recorded, &mut dyn ReadWrite) + Send + Sync>;

pub trait ReadWrite: Read + io::Write + Send {}
impl<T: Read + io::Write + Send> ReadWrite for T {}

#[derive(Default)]
struct Shared {
    requests: Mutex<Vec<Recorded>>,
    connections: AtomicUsize,
    handshakes: AtomicUsize,
    /// Application bytes of all hosts, also those that never became a request.
    bytes: AtomicUsize,
    scripts: Mutex<HashMap<(&'static str, String), Script>>,
    takeovers: Mutex<HashMap<(&'static str, String), Takeover>>,
    flaws: Mutex<HashMap<&'static str, Flaw>>,
}

/// All upstreams of a lab.
pub struct Upstream {
    shared: Arc<Shared>,
    ca: Arc<TestCa>,
}

impl std::fmt::Debug for Upstream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Upstream").field("requests", &self.requests().len()).finish_non_exhaustive()
    }
}

impl Upstream {
    /// Listens on port 443 (TLS) and 80 (clear text, which nobody should ever reach) of every lab host but those in
    /// `without`, which a real server takes.
    pub fn start(world: &Network, ca: &Arc<TestCa>, without: &[&str]) -> Self {
        let shared = Arc::new(Shared::default());
        for host in HOSTS.into_iter().filter(|host| !without.contains(host)) {
            for port in [443, 80, 8443] {
                let listener =
                    world.enter(|| TcpListener::bind(SocketAddr::new(address_of(host), port)).unwrap());
                let (shared, ca) = (Arc::clone(&shared), Arc::clone(ca));
                std::thread::spawn(move || listen(&listener, host, port != 80, &shared, &ca));
            }
        }
        Self { shared, ca: Arc::clone(ca) }
    }

    pub fn ca(&self) -> &TestCa {
        &self.ca
    }

    /// Answers requests for exactly this path (without query) by `script`.
    pub fn on(
        &self,
        host: &'static str,
        path: &str,
        script: impl Fn(&Recorded) -> Answer + Send + Sync + 'static,
    ) {
        self.shared.scripts.lock().unwrap().insert((host, path.to_owned()), Arc::new(script));
    }

    /// Hands the connection over after a request for exactly this path.
    pub fn take_over(
        &self,
        host: &'static str,
        path: &str,
        takeover: impl Fn(&Recorded, &mut dyn ReadWrite) + Send + Sync + 'static,
    ) {
        self.shared.takeovers.lock().unwrap().insert((host, path.to_owned()), Arc::new(takeover));
    }

    /// Gives a host's certificate a flaw from now on.
    pub fn flaw(&self, host: &'static str, flaw: Flaw) {
        self.shared.flaws.lock().unwrap().insert(host, flaw);
    }

    /// Everything recorded so far.
    pub fn requests(&self) -> Vec<Recorded> {
        self.shared.requests.lock().unwrap().clone()
    }

    /// Everything recorded since the last call.
    pub fn take(&self) -> Vec<Recorded> {
        std::mem::take(&mut *self.shared.requests.lock().unwrap())
    }

    /// Application bytes received by all hosts.
    pub fn bytes(&self) -> usize {
        self.shared.bytes.load(Ordering::SeqCst)
    }

    /// TCP connections accepted by all hosts.
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }
}

fn listen(listener: &TcpListener, host: &'static str, tls: bool, shared: &Arc<Shared>, ca: &Arc<TestCa>) {
    while let Ok((stream, _)) = listener.accept() {
        let number = shared.connections.fetch_add(1, Ordering::SeqCst);
        let (shared, ca) = (Arc::clone(shared), Arc::clone(ca));
        std::thread::spawn(move || {
            // A failed connection is the broker's to report; the recorder has what came.
            let _ = stream.set_nodelay(true);
            let _ = if tls {
                serve_tls(stream, host, number, &shared, &ca)
            } else {
                serve_clear(stream, host, number, &shared)
            };
        });
    }
}

fn serve_tls(
    stream: TcpStream,
    host: &'static str,
    number: usize,
    shared: &Shared,
    ca: &TestCa,
) -> io::Result<()> {
    let flaw = shared.flaws.lock().unwrap().get(host).copied().unwrap_or(Flaw::None);
    let connection =
        ServerConnection::new(ca.server(&[host], flaw, &[b"http/1.1"])).map_err(io::Error::other)?;
    let raw = stream.try_clone()?;
    let mut stream = StreamOwned::new(connection, stream);
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock)?;
    }
    shared.handshakes.fetch_add(1, Ordering::SeqCst);
    let server_name = stream.conn.server_name().unwrap_or_default().to_owned();
    let then = serve(&mut stream, host, &server_name, number, shared)?;
    if then == Then::Reset {
        let _ = nix::sys::socket::setsockopt(
            &raw,
            nix::sys::socket::sockopt::Linger,
            &nix::libc::linger { l_onoff: 1, l_linger: 0 },
        );
        return Ok(());
    }
    stream.conn.send_close_notify();
    let _ = stream.conn.complete_io(&mut stream.sock);
    Ok(())
}

fn serve_clear(mut stream: TcpStream, host: &'static str, number: usize, shared: &Shared) -> io::Result<()> {
    serve(&mut stream, host, "", number, shared).map(drop)
}

fn serve(
    stream: &mut dyn ReadWrite,
    host: &'static str,
    server_name: &str,
    connection: usize,
    shared: &Shared,
) -> io::Result<Then> {
    loop {
        let request =
            read_request(&mut Counted { stream, bytes: &shared.bytes }, host, server_name, connection)?;
        let key = (host, request.path().to_owned());
        shared.requests.lock().unwrap().push(request.clone());
        let takeover = shared.takeovers.lock().unwrap().get(&key).cloned();
        if let Some(takeover) = takeover {
            takeover(&request, &mut Counted { stream, bytes: &shared.bytes });
            return Ok(Then::Close);
        }
        let script = shared.scripts.lock().unwrap().get(&key).cloned();
        let answer = match script {
            Some(script) => script(&request),
            None if host == "echo.test" => echo(&request),
            None => Answer::json(&serde_json::json!({ "host": host, "target": request.target })),
        };
        let bytes: &[u8] = if request.method == "HEAD" { head_only(&answer.bytes) } else { &answer.bytes };
        stream.write_all(bytes)?;
        stream.flush()?;
        if answer.then != Then::Keep {
            return Ok(answer.then);
        }
    }
}

fn head_only(bytes: &[u8]) -> &[u8] {
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n").map_or(bytes.len(), |at| at + 4);
    &bytes[..end]
}

/// Counts what is read.
struct Counted<'a> {
    stream: &'a mut dyn ReadWrite,
    bytes: &'a AtomicUsize,
}

impl Read for Counted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.stream.read(buffer)?;
        self.bytes.fetch_add(read, Ordering::SeqCst);
        Ok(read)
    }
}

impl io::Write for Counted<'_> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.stream.write(buffer)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

fn read_request(
    stream: &mut dyn Read,
    host: &'static str,
    server_name: &str,
    connection: usize,
) -> io::Result<Recorded> {
    let head = read_head(stream)?;
    let text = String::from_utf8_lossy(&head).into_owned();
    let mut lines = text.split("\r\n");
    let mut words = lines.next().unwrap_or_default().split(' ');
    let mut word = || words.next().unwrap_or_default().to_owned();
    let (method, target) = (word(), word());
    let mut request = Recorded {
        host,
        server_name: server_name.to_owned(),
        connection,
        method,
        target,
        fields: parse_fields(lines)?,
        head,
        raw_body: Vec::new(),
        body: Vec::new(),
    };
    // The recorder never says 100: a client that waits for it must go on by itself or by its proxy's word.
    if request.field("transfer-encoding").is_some() {
        read_chunks(stream, &mut request)?;
    } else if let Some(length) = request.field("content-length") {
        let length: usize = length.parse().map_err(io::Error::other)?;
        let mut body = vec![0; length];
        stream.read_exact(&mut body)?;
        request.raw_body.clone_from(&body);
        request.body = body;
    }
    Ok(request)
}

fn read_chunks(stream: &mut dyn Read, request: &mut Recorded) -> io::Result<()> {
    loop {
        let line = read_line(stream, &mut request.raw_body)?;
        let size = usize::from_str_radix(line.split(';').next().unwrap_or_default(), 16)
            .map_err(io::Error::other)?;
        if size == 0 {
            break;
        }
        let mut chunk = vec![0; size];
        stream.read_exact(&mut chunk)?;
        request.raw_body.extend_from_slice(&chunk);
        request.body.extend_from_slice(&chunk);
        read_line(stream, &mut request.raw_body)?;
    }
    while !read_line(stream, &mut request.raw_body)?.is_empty() {}
    Ok(())
}

/// Reads a line, keeps it with its end in `raw`, gives it without.
fn read_line(stream: &mut dyn Read, raw: &mut Vec<u8>) -> io::Result<String> {
    let start = raw.len();
    let mut byte = [0];
    while !raw[start..].ends_with(b"\r\n") {
        stream.read_exact(&mut byte)?;
        raw.push(byte[0]);
    }
    Ok(String::from_utf8_lossy(&raw[start..raw.len() - 2]).into_owned())
}
