use std::io::Read as _;
use std::os::unix::net::UnixStream;

use super::*;
use crate::protocol::read_frame;

fn run(argv: &[&str], output: OutputMode, time: Duration) -> (StepReport, Vec<u8>, Vec<u8>) {
    let (mut ours, mut theirs) = UnixStream::pair().unwrap();
    let argv: Vec<String> = argv.iter().map(|&word| word.to_owned()).collect();
    let reader = std::thread::spawn(move || {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        while let Ok((kind, body)) = read_frame(&mut theirs) {
            if kind == Kind::Stdout { stdout.extend(body) } else { stderr.extend(body) }
        }
        let _ = theirs.read(&mut [0]);
        (stdout, stderr)
    });
    let environment = vec![("PATH".to_owned(), "/usr/bin:/bin".to_owned())];
    let start = Start { argv: &argv, stdin: None, environment: &environment, user: None };
    let report =
        run_step(start, None, Instant::now() + time, output, &mut ours, &mut Kept::default()).unwrap();
    drop(ours);
    let (stdout, stderr) = reader.join().unwrap();
    (report, stdout, stderr)
}

const LONG: Duration = Duration::from_secs(20);

#[test]
fn passes_on_output_and_exit_code() {
    let (report, stdout, stderr) =
        run(&["sh", "-c", "echo out; echo err >&2; exit 7"], OutputMode::Keep(100), LONG);
    assert_eq!((report.exit_code, report.timed_out), (7, false));
    assert_eq!((stdout.as_slice(), stderr.as_slice()), (b"out\n".as_slice(), b"err\n".as_slice()));
}

#[test]
fn output_is_cut_at_the_limit_and_flagged() {
    let (report, stdout, _) = run(&["sh", "-c", "printf 1234567890"], OutputMode::Keep(4), LONG);
    assert_eq!(stdout, b"1234");
    assert!(report.stdout_truncated && !report.stderr_truncated);
    let (report, stdout, _) = run(&["sh", "-c", "printf 1234"], OutputMode::Keep(4), LONG);
    assert_eq!(stdout, b"1234");
    assert!(!report.stdout_truncated, "exactly full is not cut");
}

#[test]
fn a_signal_is_128_plus_its_number() {
    let (report, _, _) = run(&["sh", "-c", "kill -SEGV $$"], OutputMode::Keep(4), LONG);
    assert_eq!(report.exit_code, 139);
}

#[test]
fn a_missing_command_is_127_and_a_plain_file_126() {
    let (report, _, stderr) = run(&["no-such-command"], OutputMode::Keep(4), LONG);
    assert_eq!(report.exit_code, 127);
    assert!(String::from_utf8_lossy(&stderr).contains("no-such-command"));
    let (report, _, _) = run(&["/etc/passwd"], OutputMode::Keep(4), LONG);
    assert_eq!(report.exit_code, 126);
}

#[test]
fn everything_is_sent_when_asked() {
    let (report, stdout, _) = run(&["head", "-c", "3000000", "/dev/zero"], OutputMode::All, LONG);
    assert_eq!((stdout.len(), report.stdout_truncated), (3_000_000, false));
}

#[test]
fn f10_a_flood_ends_the_step_with_153() {
    let (report, stdout, _) = run(&["cat", "/dev/zero"], OutputMode::Keep(10), LONG);
    assert_eq!((report.exit_code, stdout.len(), report.stdout_truncated), (153, 10, true));
}

#[test]
fn the_deadline_is_124() {
    let (report, _, _) = run(&["sleep", "30"], OutputMode::Keep(10), Duration::from_millis(80));
    assert_eq!((report.exit_code, report.timed_out), (124, true));
}
