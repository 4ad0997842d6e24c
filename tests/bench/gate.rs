//! A gate without a sandbox, for the benchmarks: what a run on `native` has around it, in this very network namespace.
//!
//! `freeboard-gate CONTROL-SOCKET CALLER GRANT NAME…` makes the gate of a run with one grant, hands its doors to the broker, asks the
//! gate's DNS for each name, prints one JSON object of names and addresses, and keeps the gate until its standard input ends.

use std::error::Error;
use std::net::UdpSocket;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use freeboard_control::{Client, Evidence, Fact, OpenGate, PrepareRun};
use freeboard_netns::{CatchAll, Families, Form, GateSpec, Plan, apply_here};
use freeboard_policy::Tier;
use freeboard_tests::dns;
use freeboard_tests::lab::{RESOLVER, door};

/// Name of the run in the audit log.
const RUN: &str = "00000000000000000000000000bea7ce";
/// Longer than any benchmark.
const LONGEST: Duration = Duration::from_secs(3600);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut next = |what| arguments.next().ok_or_else(|| format!("{what} is missing"));
    let (socket, caller, grant) = (next("the control socket")?, next("the caller")?, next("the grant")?);
    let client = Client::connect(socket.as_ref()).await?;
    let prepared = client
        .prepare(PrepareRun { caller: Some(caller.clone()), grants: vec![grant.clone()], session: false })
        .await?;
    let spec = GateSpec {
        form: Form::Loopback,
        ports: prepared.ports,
        families: Families::Both,
        catch_all: CatchAll::WhereOffered,
    };
    let (kinds, descriptors) = apply_here(&Plan::new(&spec)?)?
        .doors
        .into_iter()
        .map(|(kind, descriptor)| (door(kind), descriptor))
        .unzip();
    let expires = SystemTime::now().duration_since(UNIX_EPOCH)? + LONGEST;
    let gate = OpenGate {
        run: RUN.to_owned(),
        caller: Some(caller),
        grants: vec![grant],
        evidence: Evidence {
            provider: "benchmark".to_owned(),
            tier: Tier::Container,
            facts: vec![Fact { name: "hand_made".to_owned(), value: "yes".to_owned(), met: true }],
        },
        expires_unix_ms: u64::try_from(expires.as_millis())?,
        trace_id: None,
        session: None,
        doors: kinds,
    };
    client.open(gate, descriptors).await?;
    let mut addresses = serde_json::Map::new();
    for name in arguments {
        let address =
            resolve(&name).ok_or_else(|| format!("the gate's DNS gives no address for `{name}`"))?;
        addresses.insert(name, address.into());
    }
    println!("{}", serde_json::Value::Object(addresses));
    tokio::task::spawn_blocking(|| std::io::copy(&mut std::io::stdin(), &mut std::io::sink())).await??;
    Ok(())
}

fn resolve(name: &str) -> Option<String> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    socket.send_to(&dns::query(0x4242, name, dns::A), (RESOLVER, 53)).ok()?;
    let mut buffer = [0; 4096];
    let length = socket.recv(&mut buffer).ok()?;
    Some(dns::read(buffer.get(..length)?)?.addresses.first()?.to_string())
}
