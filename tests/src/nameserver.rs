//! A DNS server in the lab's world that answers one name from a script, a set of addresses per question, with no time to live.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::dns;
use crate::network::Network;

/// The server. Ends when dropped.
#[derive(Debug)]
pub struct Nameserver {
    shared: Arc<Shared>,
    thread: Option<std::thread::JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    /// One set of addresses for each question after an address, in order; the last one stays.
    script: Mutex<Vec<Vec<IpAddr>>>,
    asked: AtomicUsize,
    stop: AtomicBool,
}

impl Nameserver {
    /// Listens on `address` in `world` and answers questions for `name` as the script says, others with NXDOMAIN.
    pub fn start(world: &Network, address: SocketAddr, name: &str, script: Vec<Vec<IpAddr>>) -> Self {
        let socket = world.enter(|| UdpSocket::bind(address).unwrap());
        socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let shared = Arc::new(Shared {
            script: Mutex::new(script),
            asked: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
        });
        let (serving, name) = (Arc::clone(&shared), name.to_owned());
        let thread = std::thread::spawn(move || serve(&socket, &name, &serving));
        Self { shared, thread: Some(thread) }
    }

    /// How many times the addresses of the name were asked for (A; the question for AAAA goes with it).
    pub fn asked(&self) -> usize {
        self.shared.asked.load(Ordering::SeqCst)
    }
}

impl Drop for Nameserver {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(socket: &UdpSocket, name: &str, shared: &Shared) {
    let mut buffer = [0; 1500];
    while !shared.stop.load(Ordering::SeqCst) {
        let Ok((length, from)) = socket.recv_from(&mut buffer) else { continue };
        if let Some(answer) = answer(&buffer[..length], name, shared) {
            let _ = socket.send_to(&answer, from);
        }
    }
}

/// The answer to one message; `None` for what is no question.
fn answer(message: &[u8], name: &str, shared: &Shared) -> Option<Vec<u8>> {
    let id = u16::from_be_bytes([*message.first()?, *message.get(1)?]);
    // The question as a client of ours writes it, up to its additional record: what the message must begin with.
    let question_of = |kind| dns::query(id, name, kind)[12..].split_last_chunk::<11>().unwrap().0.to_vec();
    let asks = |kind| message.get(12..)?.to_ascii_lowercase().starts_with(&question_of(kind)).then_some(kind);
    let kind = asks(dns::A).or_else(|| asks(dns::AAAA));
    let mut addresses = Vec::new();
    if kind == Some(dns::A) {
        shared.asked.fetch_add(1, Ordering::SeqCst);
        let mut script = shared.script.lock().unwrap();
        addresses = if script.len() > 1 { script.remove(0) } else { script.first()?.clone() };
    }
    let question = match kind {
        Some(kind) => question_of(kind),
        None => question_bytes(message)?.to_vec(),
    };
    let code = if kind.is_some() { dns::NO_ERROR } else { dns::NXDOMAIN };
    let mut out = id.to_be_bytes().to_vec();
    out.extend_from_slice(&[0x81, 0x80 | code, 0, 1, 0, u8::try_from(addresses.len()).ok()?, 0, 0, 0, 0]);
    out.extend_from_slice(&question);
    for address in addresses {
        let IpAddr::V4(address) = address else { continue };
        // The name of the question, type A, class IN, no time to live, four bytes.
        out.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4]);
        out.extend_from_slice(&address.octets());
    }
    Some(out)
}

fn question_bytes(message: &[u8]) -> Option<&[u8]> {
    let rest = message.get(12..)?;
    let name = rest.iter().position(|byte| *byte == 0)?;
    rest.get(..name + 5)
}
