//! What another run notices of an attack: how long its answers take, and how much memory the broker needs meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::expect::get;
use crate::lab::{Lab, Run, Way};
use crate::wait;
use crate::wire::{Reply, Wire};

/// How long answers are timed while the attack goes on, at least.
const SPAN: Duration = Duration::from_millis(1500);
/// Answers that are timed in quiet, and at least as many under attack.
const ANSWERS: usize = 30;
/// Nine answers in ten may take this many times as long as in quiet: the attacker, the broker and the upstream share the
/// processors with whatever else the machine does.
const FACTOR: u32 = 20;
/// And this long in any case: what is looked for are stalls of seconds.
const FLOOR: Duration = Duration::from_secs(1);

/// Tells an attack how long to go on.
#[derive(Debug, Default)]
pub struct Attack {
    begun: AtomicBool,
    over: AtomicBool,
}

impl Attack {
    pub fn goes_on(&self) -> bool {
        !self.over.load(Ordering::SeqCst)
    }

    /// From here on the other run's answers are timed.
    pub fn is_in_full_swing(&self) {
        self.begun.store(true, Ordering::SeqCst);
    }

    /// Waits for the end of the measurement.
    pub fn wait(&self) {
        while self.goes_on() {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Another run, which asks one thing after the other: mostly on a kept connection, now and then on a new one.
struct Neighbour<'a> {
    run: &'a Run<'a>,
    kept: Wire,
    turn: usize,
}

impl<'a> Neighbour<'a> {
    fn new(run: &'a Run<'a>) -> Self {
        Self { run, kept: run.tls(Way::Transparent, "pub.test"), turn: 0 }
    }

    fn ask(&mut self) -> Duration {
        self.turn += 1;
        let target = format!("/neighbour/{}", self.turn);
        let begun = Instant::now();
        if self.turn.is_multiple_of(4) {
            self.kept = self.run.tls(Way::Transparent, "pub.test");
        }
        let answer = match self.kept.ask(get("pub.test", &target)) {
            Reply::Answer(answer) => answer,
            Reply::Closed(error) => panic!("another run got no answer: {error}"),
        };
        assert_eq!(answer.status, 200, "another run got {answer:?}");
        assert!(answer.text().contains(&target), "another run got {answer:?}");
        begun.elapsed()
    }
}

fn nine_in_ten(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[(times.len() * 9 / 10).min(times.len() - 1)]
}

/// Runs `attack` and fails unless another run gets every answer meanwhile, about as soon as in quiet, and the broker grows by less
/// than `growth_mib`.
pub fn while_another_run_is_served(lab: &Lab, growth_mib: u64, attack: impl FnOnce(&Attack) + Send) {
    let other = lab.run(&["pub"]);
    let mut neighbour = Neighbour::new(&other);
    neighbour.ask();
    let quiet = nine_in_ten((0..ANSWERS).map(|_| neighbour.ask()).collect());
    let before = Memory::of(lab);
    let signs = Attack::default();
    let mut times = Vec::new();
    std::thread::scope(|scope| {
        let attacking = scope.spawn(|| attack(&signs));
        // Whatever happens here, the attack must end, or the scope never does.
        let ends = Ends(&signs);
        wait::until_true("the attack is in full swing", || {
            signs.begun.load(Ordering::SeqCst) || attacking.is_finished()
        });
        let begun = Instant::now();
        while times.len() < ANSWERS || begun.elapsed() < SPAN {
            times.push(neighbour.ask());
        }
        drop(ends);
    });
    let (answers, meanwhile) = (times.len(), nine_in_ten(times));
    let grown = Memory::of(lab).peak_above(&before) >> 10;
    eprintln!("quiet {quiet:?}, meanwhile {meanwhile:?} ({answers} answers), grown by {grown} MiB");
    assert!(meanwhile < (quiet * FACTOR).max(FLOOR), "quiet {quiet:?}, meanwhile {meanwhile:?}");
    assert!(grown < growth_mib, "the broker grew by {grown} MiB");
}

struct Ends<'a>(&'a Attack);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.over.store(true, Ordering::SeqCst);
    }
}

/// Memory of the broker in KiB, now and at most so far.
#[derive(Debug)]
struct Memory {
    now: u64,
    peak: u64,
}

impl Memory {
    fn of(lab: &Lab) -> Self {
        let status = std::fs::read_to_string(format!("/proc/{}/status", lab.broker.pid())).unwrap();
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.split_whitespace().next().unwrap().parse().unwrap()
        };
        Self { now: field("VmRSS:"), peak: field("VmHWM:") }
    }

    fn peak_above(&self, before: &Self) -> u64 {
        if self.peak > before.peak { self.peak - before.now } else { self.now.saturating_sub(before.now) }
    }
}

/// Processor time that the broker has used so far.
pub fn processor_time(lab: &Lab) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", lab.broker.pid())).unwrap();
    let (_, rest) = stat.rsplit_once(')').unwrap();
    let fields: Vec<&str> = rest.split_whitespace().collect();
    // Fields 14 and 15 of proc_pid_stat(5), in hundredths of a second on every Linux that we build for.
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    Duration::from_millis(ticks * 10)
}

/// One number of the broker's `/metrics`, 0 where it is not listed yet.
pub fn metric(lab: &Lab, sample: &str) -> u64 {
    let mut wire = Wire::clear(lab.world().connect("127.0.0.1:9464".parse().unwrap()).unwrap());
    let page = wire.ask(get("127.0.0.1:9464", "/metrics")).answer().text();
    let line = page.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
    line.map_or(0, |value| value.trim().parse().unwrap())
}
