//! What a run must not inherit: descriptors, variables, the memory of its first process.

use crate::support::*;

#[test]
fn f02_only_three_descriptors_are_inherited() {
    let _left_open = std::fs::File::open("/etc/passwd").unwrap();
    let script = "import os\n\
                  fds = sorted(int(n) for n in os.listdir('/proc/self/fd'))\n\
                  print([n for n in fds if n > 2 and os.path.exists(f'/proc/self/fd/{n}')])\n\
                  print(os.getcwd())\n";
    let (_, stdout, stderr) = once(python(script));
    assert_eq!((stdout.as_str(), stderr.as_str()), ("[]\n/work\n", ""));
}

#[test]
fn c21_no_variable_of_the_daemon_is_anywhere_inside() {
    // The launcher is forked from this process; CARGO_MANIFEST_DIR is a variable that it certainly has.
    let canary = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_else(|_| env!("CARGO_MANIFEST_DIR").into());
    let mut job = shell(&format!(
        "env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n' | grep -v grep; \
         grep -rs '{}' /etc /work /tmp /run 2>/dev/null; echo control $PLANTED",
        canary.chars().rev().collect::<String>()
    ));
    job.environment = vec![("PLANTED".into(), "seen".into())];
    let (_, stdout, _) = once(job);
    assert!(!stdout.contains(&canary), "{stdout}");
    // Positive control: the search finds what was planted, in the environment and in /proc.
    assert!(stdout.matches("PLANTED=seen").count() >= 2, "{stdout}");
}

#[test]
fn a_step_cannot_look_into_pid_1() {
    let script = "import os\n\
                  for n in ['environ', 'mem', 'maps', 'fd', 'cwd', 'root', 'exe', 'ns/net', 'cmdline']:\n\
                  \x20   p = '/proc/1/' + n\n\
                  \x20   try:\n\
                  \x20       (os.listdir if n == 'fd' else os.readlink if n in ('cwd','root','exe','ns/net') else open)(p)\n\
                  \x20       print('read', n)\n\
                  \x20   except OSError: pass\n\
                  for s in (9, 19, 15):\n\
                  \x20   try: os.kill(1, s)\n\
                  \x20   except OSError: pass\n\
                  print(os.getppid(), 'alive')\n";
    let (code, stdout, stderr) = once(python(script));
    assert_eq!((code, stdout.as_str(), stderr.as_str()), (0, "1 alive\n", ""));
}
