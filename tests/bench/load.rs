//! A load generator for the benchmarks: HTTP/1.1 and HTTP/2 over TLS, directly or through a proxy's CONNECT.
//!
//! One thread, bounded by `--seconds`. Prints one JSON object: requests per second, latency percentiles in
//! microseconds, bytes and errors. `fresh` makes a full handshake without resumption for every request; `idle` holds
//! connections open until its standard input closes; `start` starts the command after `--` and waits for its first answer.
#![expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "figures for people: counts far below 2^52, shares between 0 and 1"
)]

mod start;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::client::Resumption;
use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client::TlsStream};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// What the command line says.
#[derive(Debug, Clone)]
struct Plan {
    mode: String,
    /// Where TCP connects to: the server, or the proxy.
    connect: SocketAddr,
    /// `CONNECT` to this authority first.
    via: Option<String>,
    /// Value of `Proxy-Authorization`, if any.
    proxy_authorization: Option<String>,
    /// Server name and `Host`; with a port where it is not 443.
    host: String,
    path: String,
    ca: String,
    connections: usize,
    streams: usize,
    seconds: f64,
    /// Requests per second over all connections in mode `rate`.
    rate: f64,
    /// In mode `start`.
    command: Vec<String>,
}

impl Plan {
    fn from_arguments() -> Result<Self, Failure> {
        let mut plan = Self {
            mode: "keepalive".to_owned(),
            connect: "127.0.0.1:443".parse()?,
            via: None,
            proxy_authorization: None,
            host: "up.test".to_owned(),
            path: "/small".to_owned(),
            ca: String::new(),
            connections: 1,
            streams: 1,
            seconds: 2.0,
            rate: 1000.0,
            command: Vec::new(),
        };
        let mut arguments = std::env::args().skip(1);
        while let Some(flag) = arguments.next() {
            if flag == "--" {
                plan.command = arguments.collect();
                break;
            }
            let value = arguments.next().ok_or_else(|| format!("`{flag}` needs a value"))?;
            match flag.as_str() {
                "--mode" => plan.mode = value,
                "--connect" => plan.connect = value.parse()?,
                "--via" => plan.via = Some(value),
                "--proxy-authorization" => plan.proxy_authorization = Some(value),
                "--host" => plan.host = value,
                "--path" => plan.path = value,
                "--ca" => plan.ca = value,
                "--connections" => plan.connections = value.parse()?,
                "--streams" => plan.streams = value.parse()?,
                "--seconds" => plan.seconds = value.parse()?,
                "--rate" => plan.rate = value.parse()?,
                _ => return Err(format!("unknown flag `{flag}`").into()),
            }
        }
        Ok(plan)
    }

    fn tls(&self) -> Result<TlsConnector, Failure> {
        let mut roots = rustls::RootCertStore::empty();
        for certificate in CertificateDer::pem_file_iter(&self.ca)? {
            roots.add(certificate?)?;
        }
        let mut config = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        config.resumption = Resumption::disabled();
        config.alpn_protocols = vec![if self.mode == "h2" { b"h2".to_vec() } else { b"http/1.1".to_vec() }];
        Ok(TlsConnector::from(Arc::new(config)))
    }

    fn request(&self) -> Vec<u8> {
        format!("GET {} HTTP/1.1\r\nHost: {}\r\nAccept: */*\r\n\r\n", self.path, self.host).into_bytes()
    }
}

/// What one task counted.
#[derive(Debug, Default)]
struct Tally {
    latencies_us: Vec<u32>,
    bytes: u64,
    errors: u64,
    first_error: Option<String>,
    /// Requests whose answer said that the credential arrived upstream.
    injected: u64,
}

impl Tally {
    fn done(&mut self, since: Instant, answer: &Answer) {
        self.latencies_us.push(u32::try_from(since.elapsed().as_micros()).unwrap_or(u32::MAX));
        self.bytes += answer.body as u64;
        self.injected += u64::from(answer.injected);
    }

    fn failed(&mut self, failure: &Failure) {
        self.errors += 1;
        self.first_error.get_or_insert_with(|| failure.to_string());
    }
}

/// What is looked at in an answer.
#[derive(Debug)]
struct Answer {
    body: usize,
    injected: bool,
}

async fn open(plan: &Plan, tls: &TlsConnector) -> Result<TlsStream<TcpStream>, Failure> {
    let mut tcp = TcpStream::connect(plan.connect).await?;
    tcp.set_nodelay(true)?;
    if let Some(authority) = &plan.via {
        let authorization = plan
            .proxy_authorization
            .as_ref()
            .map(|value| format!("Proxy-Authorization: {value}\r\n"))
            .unwrap_or_default();
        let head = format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n{authorization}\r\n");
        tcp.write_all(head.as_bytes()).await?;
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            answer.push(tcp.read_u8().await?);
        }
        if !answer.starts_with(b"HTTP/1.1 200") && !answer.starts_with(b"HTTP/1.0 200") {
            return Err(String::from_utf8_lossy(&answer).into_owned().into());
        }
    }
    let name = plan.host.split(':').next().unwrap_or_default().to_owned();
    Ok(tls.connect(ServerName::try_from(name)?, tcp).await?)
}

/// Sends one request and reads its answer to the end, which must have a `Content-Length` or be chunked.
async fn exchange(
    stream: &mut TlsStream<TcpStream>,
    request: &[u8],
    buffer: &mut Vec<u8>,
) -> Result<Answer, Failure> {
    stream.write_all(request).await?;
    stream.flush().await?;
    buffer.clear();
    let head = loop {
        if stream.read_buf(buffer).await? == 0 {
            return Err("closed before the answer".into());
        }
        if let Some(end) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
            break end + 4;
        }
    };
    let text = std::str::from_utf8(buffer.get(..head).unwrap_or_default())?.to_ascii_lowercase();
    if !text.starts_with("http/1.1 200") {
        return Err(text.lines().next().unwrap_or_default().to_owned().into());
    }
    let injected = text.contains("x-injected: yes");
    let Some(length) = text.lines().find_map(|line| line.strip_prefix("content-length:")) else {
        return Err("the answer has no Content-Length".into());
    };
    let length: usize = length.trim().parse()?;
    let mut have = buffer.len() - head;
    while have < length {
        buffer.clear();
        match stream.read_buf(buffer).await? {
            0 => return Err("closed inside the answer".into()),
            read => have += read,
        }
    }
    Ok(Answer { body: length, injected })
}

async fn keep_alive(plan: Plan, tls: TlsConnector, until: Instant) -> Tally {
    let mut tally = Tally::default();
    let request = plan.request();
    let mut buffer = Vec::with_capacity(256 * 1024);
    while Instant::now() < until {
        let mut stream = match open(&plan, &tls).await {
            Ok(stream) => stream,
            Err(failure) => {
                tally.failed(&failure);
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            }
        };
        while Instant::now() < until {
            let since = Instant::now();
            match exchange(&mut stream, &request, &mut buffer).await {
                Ok(answer) => tally.done(since, &answer),
                Err(failure) => {
                    tally.failed(&failure);
                    break;
                }
            }
        }
    }
    tally
}

async fn fixed_rate(plan: Plan, tls: TlsConnector, until: Instant, place: usize) -> Tally {
    let mut tally = Tally::default();
    let request = plan.request();
    let mut buffer = Vec::with_capacity(64 * 1024);
    let every = Duration::from_secs_f64(plan.connections as f64 / plan.rate);
    let mut stream = match open(&plan, &tls).await {
        Ok(stream) => stream,
        Err(failure) => {
            tally.failed(&failure);
            return tally;
        }
    };
    // Connections take turns: four requests at the same moment would measure a queue.
    let mut due = Instant::now() + every.mul_f64(place as f64 / plan.connections as f64);
    while due < until {
        // Latency counts from when the request was due, so that a stall is not hidden by the wait it causes; a timer that
        // was late (it ticks in milliseconds) is not the proxy's.
        let late = Instant::now() > due;
        tokio::time::sleep_until(due.into()).await;
        let since = if late { due } else { Instant::now() };
        match exchange(&mut stream, &request, &mut buffer).await {
            Ok(answer) => tally.done(since, &answer),
            Err(failure) => {
                tally.failed(&failure);
                return tally;
            }
        }
        due += every;
    }
    tally
}

async fn fresh(plan: Plan, tls: TlsConnector, until: Instant) -> Tally {
    let mut tally = Tally::default();
    let request = plan.request();
    let mut buffer = Vec::with_capacity(64 * 1024);
    while Instant::now() < until {
        let since = Instant::now();
        let one = async {
            let mut stream = open(&plan, &tls).await?;
            exchange(&mut stream, &request, &mut buffer).await
        };
        match one.await {
            Ok(answer) => tally.done(since, &answer),
            Err(failure) => tally.failed(&failure),
        }
    }
    tally
}

async fn http2(plan: Plan, tls: TlsConnector, until: Instant) -> Tally {
    let mut tally = Tally::default();
    let run = async {
        let stream = open(&plan, &tls).await?;
        let (sender, connection) = h2::client::handshake(stream).await?;
        let driver = tokio::spawn(connection);
        let tasks: Vec<_> = (0..plan.streams)
            .map(|_| tokio::spawn(http2_stream(plan.clone(), sender.clone(), until)))
            .collect();
        let mut tallies = Vec::new();
        for task in tasks {
            tallies.push(task.await?);
        }
        driver.abort();
        Ok::<_, Failure>(tallies)
    };
    match run.await {
        Ok(tallies) => tallies.into_iter().for_each(|one| merge(&mut tally, one)),
        Err(failure) => tally.failed(&failure),
    }
    tally
}

async fn http2_stream(plan: Plan, sender: h2::client::SendRequest<bytes::Bytes>, until: Instant) -> Tally {
    let mut tally = Tally::default();
    while Instant::now() < until {
        let since = Instant::now();
        let one = async {
            let mut sender = sender.clone().ready().await?;
            let uri = format!("https://{}{}", plan.host, plan.path);
            let request = http::Request::get(uri).body(())?;
            let (answer, _) = sender.send_request(request, true)?;
            let answer = answer.await?;
            if answer.status() != 200 {
                return Err(answer.status().to_string().into());
            }
            let injected = answer.headers().contains_key("x-injected");
            let mut body = answer.into_body();
            let mut bytes = 0;
            while let Some(chunk) = body.data().await {
                let chunk = chunk?;
                bytes += chunk.len();
                body.flow_control().release_capacity(chunk.len())?;
            }
            Ok::<_, Failure>(Answer { body: bytes, injected })
        };
        match one.await {
            Ok(answer) => tally.done(since, &answer),
            Err(failure) => {
                tally.failed(&failure);
                break;
            }
        }
    }
    tally
}

fn merge(all: &mut Tally, one: Tally) {
    all.latencies_us.extend(one.latencies_us);
    all.bytes += one.bytes;
    all.errors += one.errors;
    all.injected += one.injected;
    if all.first_error.is_none() {
        all.first_error = one.first_error;
    }
}

async fn idle(plan: &Plan, tls: &TlsConnector) -> Result<(), Failure> {
    let request = plan.request();
    let mut buffer = Vec::with_capacity(64 * 1024);
    let mut held = Vec::new();
    for _ in 0..plan.connections {
        let mut stream = open(plan, tls).await?;
        exchange(&mut stream, &request, &mut buffer).await?;
        held.push(stream);
    }
    println!("{{\"idle\":{}}}", held.len());
    tokio::task::spawn_blocking(|| std::io::copy(&mut std::io::stdin(), &mut std::io::sink())).await??;
    Ok(())
}

fn report(plan: &Plan, mut tally: Tally, took: Duration) {
    tally.latencies_us.sort_unstable();
    let count = tally.latencies_us.len();
    let percentile = |share: f64| {
        let place = ((count as f64 * share) as usize).min(count.saturating_sub(1));
        tally.latencies_us.get(place).copied().unwrap_or_default()
    };
    let line = serde_json::json!({
        "mode": plan.mode,
        "requests": count,
        "rps": count as f64 / took.as_secs_f64(),
        "p50_us": percentile(0.50),
        "p90_us": percentile(0.90),
        "p99_us": percentile(0.99),
        "max_us": tally.latencies_us.last().copied().unwrap_or_default(),
        "over_30_ms": tally.latencies_us.iter().filter(|us| **us > 30_000).count(),
        "mb_per_s": tally.bytes as f64 / 1e6 / took.as_secs_f64(),
        "injected": tally.injected,
        "errors": tally.errors,
        "first_error": tally.first_error,
    });
    println!("{line}");
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let plan = Plan::from_arguments()?;
    let tls = plan.tls()?;
    match plan.mode.as_str() {
        "idle" => return idle(&plan, &tls).await,
        "start" => return start::measure(&plan, &tls, &plan.command).await,
        _ => {}
    }
    let begin = Instant::now();
    let until = begin + Duration::from_secs_f64(plan.seconds);
    let tasks: Vec<_> = (0..plan.connections)
        .map(|place| {
            let (plan, tls) = (plan.clone(), tls.clone());
            tokio::spawn(async move {
                match plan.mode.as_str() {
                    "fresh" => fresh(plan, tls, until).await,
                    "h2" => http2(plan, tls, until).await,
                    "rate" => fixed_rate(plan, tls, until, place).await,
                    _ => keep_alive(plan, tls, until).await,
                }
            })
        })
        .collect();
    let mut all = Tally::default();
    for task in tasks {
        merge(&mut all, task.await?);
    }
    report(&plan, all, begin.elapsed());
    Ok(())
}
