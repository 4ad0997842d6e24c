use super::*;

/// Runs the program as the kernel would, for the instructions that we generate.
pub(crate) fn judge(program: &[sock_filter], architecture: u32, number: u32, arguments: &[u64]) -> u32 {
    let mut accumulator = 0_u32;
    let mut at = 0_usize;
    loop {
        let instruction = &program[at];
        at += 1;
        let code = u32::from(instruction.code);
        if code == libc::BPF_LD | libc::BPF_W | libc::BPF_ABS {
            accumulator = match instruction.k {
                OFFSET_NUMBER => number,
                OFFSET_ARCHITECTURE => architecture,
                offset => {
                    let index = usize::try_from((offset - OFFSET_ARGUMENTS) / 8).unwrap();
                    u32::try_from(arguments.get(index).copied().unwrap_or(0) & 0xffff_ffff).unwrap()
                }
            };
        } else if code == libc::BPF_RET | libc::BPF_K {
            return instruction.k;
        } else if code == libc::BPF_ALU | libc::BPF_AND | libc::BPF_K {
            accumulator &= instruction.k;
        } else if code == libc::BPF_JMP | libc::BPF_JA {
            at += instruction.k as usize;
        } else {
            let hit = match code & !libc::BPF_JMP & !libc::BPF_K {
                libc::BPF_JEQ => accumulator == instruction.k,
                libc::BPF_JGE => accumulator >= instruction.k,
                other => panic!("unexpected instruction {other:#x}"),
            };
            at += usize::from(if hit { instruction.jt } else { instruction.jf });
        }
    }
}

#[test]
fn a_call_is_allowed_with_its_argument_only_and_others_end_the_process() {
    let only = Answer::Only { argument: 1, mask: 0x6, value: 0x2 };
    let program = program(BTreeMap::from([(3, Answer::Allow), (5, only)]), Answer::Kill);
    let judged = |number: u32, argument: u64| judge(&program, ARCHITECTURE, number, &[0, argument]);
    for (number, argument) in [(3, 0), (5, 0x2), (5, 0x3), (5, 0xffff_ffff_0000_0002)] {
        assert_eq!(judged(number, argument), libc::SECCOMP_RET_ALLOW, "{number} {argument:#x}");
    }
    for (number, argument) in
        [(0, 0), (2, 0), (4, 0), (5, 0), (5, 0x6), (5, 0x4), (6, 2), (X32_BIT | 3, 0), (u32::MAX, 0)]
    {
        assert_eq!(judged(number, argument), libc::SECCOMP_RET_KILL_PROCESS, "{number} {argument:#x}");
    }
    assert_eq!(judge(&program, 0x4000_0003, 3, &[]), libc::SECCOMP_RET_KILL_PROCESS);
}
