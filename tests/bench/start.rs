//! How soon a proxy that was just started takes a connection, and gives its first answer.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tokio_rustls::TlsConnector;

use super::{Failure, Plan, exchange, open};

/// How often the port is tried.
const STEP: Duration = Duration::from_micros(100);
/// A proxy that takes longer hangs.
const LONGEST: Duration = Duration::from_secs(30);

/// Starts `command`, prints microseconds until its port is open and until it has answered, and ends it in order.
pub(super) async fn measure(plan: &Plan, tls: &TlsConnector, command: &[String]) -> Result<(), Failure> {
    let [program, arguments @ ..] = command else {
        return Err("mode `start` needs a command after `--`".into());
    };
    let begin = Instant::now();
    let mut child =
        Command::new(program).args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let measured = first_answer(plan, tls, begin).await;
    kill_process(Pid::from_child(&child), Signal::TERM)?;
    child.wait()?;
    let (port, answer) = measured?;
    println!("{{\"port_us\":{},\"answer_us\":{}}}", port.as_micros(), answer.as_micros());
    Ok(())
}

async fn first_answer(
    plan: &Plan,
    tls: &TlsConnector,
    begin: Instant,
) -> Result<(Duration, Duration), Failure> {
    while std::net::TcpStream::connect(plan.connect).is_err() {
        if begin.elapsed() > LONGEST {
            return Err("the port was not opened".into());
        }
        std::thread::sleep(STEP);
    }
    let port = begin.elapsed();
    let mut stream = open(plan, tls).await?;
    exchange(&mut stream, &plan.request(), &mut Vec::with_capacity(64 << 10)).await?;
    Ok((port, begin.elapsed()))
}
