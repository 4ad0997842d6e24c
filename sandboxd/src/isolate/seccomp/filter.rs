//! A BPF program that judges system calls by their numbers.
//!
//! In: an answer per number, and one for all others. Out: a program that finds the call by binary search over ranges of numbers
//! with the same answer, so the kernel's own evaluation at install time and every call that has conditions take about ten
//! instructions, not one per list entry.

use std::collections::BTreeMap;

use nix::libc;
use seccompiler::{BpfProgram, sock_filter};

use super::table::{Check, Membership};

/// Layout of `struct seccomp_data` (linux/seccomp.h).
pub(super) const OFFSET_NUMBER: u32 = 0;
pub(super) const OFFSET_ARCHITECTURE: u32 = 4;
pub(super) const OFFSET_ARGUMENTS: u32 = 16;

/// `AUDIT_ARCH_*` of linux/audit.h.
#[cfg(target_arch = "x86_64")]
pub(crate) const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
pub(crate) const ARCHITECTURE: u32 = 0xc000_00b7;

/// Numbers from here on are the x32 calls of x86-64, which have other arguments under the same filter.
pub(super) const X32_BIT: u32 = 0x4000_0000;

/// What the filter says of one call.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Answer {
    Allow,
    Errno(i32),
    /// Ends the process.
    Kill,
    Check(&'static [Check]),
    /// Allowed when the masked argument has this value, else the end of the process.
    Only {
        argument: u32,
        mask: u32,
        value: u32,
    },
}

impl Answer {
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Allow, Self::Allow) | (Self::Kill, Self::Kill) => true,
            (Self::Errno(a), Self::Errno(b)) => a == b,
            _ => false,
        }
    }
}

/// The number of a call as the kernel passes it.
pub(crate) fn number(number: libc::c_long) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// The whole program. `unknown`: the answer to every number that is not in `calls`, and to what is no number of this architecture.
pub(crate) fn program(calls: BTreeMap<u32, Answer>, unknown: Answer) -> BpfProgram {
    let mut program = vec![
        load(OFFSET_ARCHITECTURE),
        // SECURITY: a 32-bit call (int 0x80) has other numbers; judged by this list it would be something else.
        jump(libc::BPF_JEQ, ARCHITECTURE, 1, 0),
        answer(libc::SECCOMP_RET_KILL_PROCESS),
        load(OFFSET_NUMBER),
    ];
    if cfg!(target_arch = "x86_64") {
        program.push(jump(libc::BPF_JGE, X32_BIT, 0, 1));
        program.extend(leaf(&unknown));
    }
    program.extend(search(&ranges(calls, unknown), unknown));
    program
}

/// The calls as ranges: each entry is where a range begins and its answer.
fn ranges(calls: BTreeMap<u32, Answer>, unknown: Answer) -> Vec<(u32, Answer)> {
    let mut ranges = vec![(0, unknown)];
    let mut next = 0;
    for (number, answer) in calls {
        if number > next {
            push(&mut ranges, next, unknown);
        }
        push(&mut ranges, number, answer);
        next = number.saturating_add(1);
    }
    push(&mut ranges, next, unknown);
    ranges
}

fn push(ranges: &mut Vec<(u32, Answer)>, start: u32, answer: Answer) {
    match ranges.last_mut() {
        Some(last) if last.0 == start => *last = (start, answer),
        Some(last) if last.1.is_same(&answer) => {}
        _ => ranges.push((start, answer)),
    }
}

/// Binary search; the accumulator holds the number.
fn search(ranges: &[(u32, Answer)], unknown: Answer) -> BpfProgram {
    let middle = ranges.len() / 2;
    let (left, right) = ranges.split_at(middle);
    match (left, right) {
        ([], [(_, only)]) => leaf(only),
        ([], _) => leaf(&unknown),
        (_, [(start, _), ..]) => {
            let low = search(left, unknown);
            let high = search(right, unknown);
            let mut program = match u8::try_from(low.len()) {
                Ok(skip) => vec![jump(libc::BPF_JGE, *start, skip, 0)],
                // Conditional jumps reach 255 instructions; further ones go by an unconditional jump.
                Err(_) => vec![jump(libc::BPF_JGE, *start, 0, 1), skip(low.len())],
            };
            program.extend(low);
            program.extend(high);
            program
        }
        (_, []) => leaf(&unknown),
    }
}

fn leaf(answer_of_call: &Answer) -> BpfProgram {
    match answer_of_call {
        Answer::Allow => vec![answer(libc::SECCOMP_RET_ALLOW)],
        Answer::Errno(number) => vec![errno(*number)],
        Answer::Kill => vec![answer(libc::SECCOMP_RET_KILL_PROCESS)],
        Answer::Only { argument, mask, value } => vec![
            load(OFFSET_ARGUMENTS + 8 * argument),
            statement(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, *mask),
            jump(libc::BPF_JEQ, *value, 1, 0),
            answer(libc::SECCOMP_RET_KILL_PROCESS),
            answer(libc::SECCOMP_RET_ALLOW),
        ],
        Answer::Check(checks) => {
            let mut program: BpfProgram = checks.iter().flat_map(check).collect();
            program.push(answer(libc::SECCOMP_RET_ALLOW));
            program
        }
    }
}

/// Falls through when the check passes, answers its errno when not. The kernel takes each of these arguments as 32
/// bits, so the upper half is not looked at.
fn check(check: &Check) -> BpfProgram {
    let mut program = vec![load(OFFSET_ARGUMENTS + 8 * check.argument)];
    if check.mask != u32::MAX {
        program.push(statement(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, check.mask));
    }
    let count = check.values.len();
    for (index, value) in check.values.iter().enumerate() {
        let to_end = u8::try_from(count - index).unwrap_or(u8::MAX);
        match check.rule {
            // A hit jumps over the rest and the errno; after the last miss comes the errno.
            Membership::OneOf => program.push(jump(libc::BPF_JEQ, *value, to_end, 0)),
            // A hit jumps to the errno, which the last miss jumps over.
            Membership::NoneOf => {
                let miss = u8::from(index + 1 == count);
                program.push(jump(libc::BPF_JEQ, *value, to_end - 1, miss));
            }
        }
    }
    program.push(errno(check.errno));
    program
}

fn load(offset: u32) -> sock_filter {
    statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset)
}

fn answer(value: u32) -> sock_filter {
    statement(libc::BPF_RET | libc::BPF_K, value)
}

fn errno(number: i32) -> sock_filter {
    answer(libc::SECCOMP_RET_ERRNO | number.unsigned_abs())
}

fn statement(code: u32, k: u32) -> sock_filter {
    sock_filter { code: u16::try_from(code).unwrap_or_default(), jt: 0, jf: 0, k }
}

fn jump(comparison: u32, k: u32, jt: u8, jf: u8) -> sock_filter {
    let code = libc::BPF_JMP | comparison | libc::BPF_K;
    sock_filter { code: u16::try_from(code).unwrap_or_default(), jt, jf, k }
}

fn skip(instructions: usize) -> sock_filter {
    statement(libc::BPF_JMP | libc::BPF_JA, u32::try_from(instructions).unwrap_or(u32::MAX))
}

#[cfg(test)]
pub(crate) mod tests;
