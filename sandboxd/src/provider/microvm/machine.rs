//! The machine as QEMU's arguments. Pure.

use crate::isolate::kernel::{Accelerator, Microvm};

use super::limits;

/// Where things are in QEMU's own root.
pub(super) const KERNEL: &str = "machine/kernel";
pub(super) const INITRAMFS: &str = "machine/initramfs";
pub(super) const ROOT: &str = "root";
/// What the machine's kernel says, and what QEMU says.
pub(super) const CONSOLE: &str = "/tmp/console";
pub(super) const MESSAGES: &str = "/tmp/messages";

/// What QEMU may not do once it has started, as its own filter of system calls knows it.
const FILTER: &str = "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny";

/// Numbers of the descriptors that QEMU inherits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Descriptors {
    pub(super) channel: i32,
    pub(super) monitor: i32,
    /// `None` = the machine has no network device.
    pub(super) tap: Option<i32>,
}

/// QEMU's arguments.
pub(super) fn arguments(run: &str, machine: &Microvm, descriptors: Descriptors) -> Vec<String> {
    let Descriptors { channel, monitor, tap } = descriptors;
    let (accelerator, processor) = match &machine.accelerator {
        Accelerator::Kvm { .. } => ("kvm".to_owned(), "host"),
        Accelerator::Translated { .. } => (format!("tcg,tb-size={}", limits::TRANSLATED_MIB), "max"),
    };
    let mut arguments: Vec<String> = [
        "-sandbox",
        FILTER,
        // Nothing that was not asked for: no default device, no file of settings, no screen.
        "-nodefaults",
        "-no-user-config",
        "-no-reboot",
        "-display",
        "none",
        "-machine",
        "microvm,rtc=on",
        "-accel",
        &accelerator,
        "-cpu",
        processor,
    ]
    .map(str::to_owned)
    .to_vec();
    let mut add = |name: &str, value: String| arguments.extend([name.to_owned(), value]);
    // For people who look at the host's processes; the machine does not see it.
    add("-name", run.to_owned());
    add("-smp", machine.processors.to_string());
    add("-m", format!("{}M", machine.memory_mib));
    add("-kernel", format!("/{KERNEL}"));
    add("-initrd", format!("/{INITRAMFS}"));
    add("-append", command_line(machine));
    add("-serial", format!("file:{CONSOLE}"));
    add("-chardev", format!("socket,id=monitor,fd={monitor}"));
    add("-mon", "chardev=monitor,mode=control".into());
    add("-device", "virtio-serial-device,max_ports=2".into());
    add("-chardev", format!("socket,id=channel,fd={channel}"));
    add("-device", "virtserialport,chardev=channel,name=freeboard".into());
    add("-fsdev", format!("local,id=root,path=/{ROOT},security_model=none,readonly=on,multidevs=remap"));
    add("-device", format!("virtio-9p-device,fsdev=root,mount_tag={}", freeboard_guest::machine::ROOT_TAG));
    if let Some(tap) = tap {
        add("-netdev", format!("tap,id=gate,fd={tap}"));
        add("-device", "virtio-net-device,netdev=gate".into());
    }
    arguments
}

/// The kernel's command line.
fn command_line(machine: &Microvm) -> String {
    let timing = match &machine.accelerator {
        Accelerator::Kvm { .. } => String::new(),
        // The counter of a translated processor runs as the host's. Without being told, the kernel measures it against a
        // timer that comes too late on a busy host, takes it for useless, and then waits for a clock without end.
        Accelerator::Translated { ticks_khz, .. } => format!(" tsc=reliable tsc_early_khz={ticks_khz}"),
    };
    // The first process is the whole system: when it ends, or the kernel fails, the machine ends.
    format!("console=ttyS0 quiet reboot=t panic=-1 oops=panic no_timer_check{timing} {}", machine.words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(accelerator: Accelerator) -> Microvm {
        Microvm {
            qemu: crate::isolate::kernel::Known::default(),
            kernel: crate::isolate::kernel::Known::default(),
            release: "6.1".into(),
            pieces: Vec::new(),
            initramfs_sha256: String::new(),
            tools: crate::isolate::view::View { entries: Vec::new() },
            accelerator,
            memory_mib: 352,
            processors: 1,
            words: "freeboard.gate=v4".into(),
            setup_limit_seconds: None,
        }
    }

    #[test]
    fn asks_for_nothing_that_weakens_it() {
        let translated = machine(Accelerator::Translated { why: "no KVM".into(), ticks_khz: 2_300_000 });
        let descriptors = Descriptors { channel: 5, monitor: 6, tap: Some(7) };
        insta::assert_snapshot!(arguments("0123456789abcdef", &translated, descriptors).join("\n"));
    }

    #[test]
    fn without_a_gate_there_is_no_network_device() {
        let kvm = machine(Accelerator::Kvm { device: "/dev/kvm".into() });
        let words =
            arguments("0123456789abcdef", &kvm, Descriptors { channel: 5, monitor: 6, tap: None }).join(" ");
        assert!(!words.contains("net"), "{words}");
        assert!(words.contains("-accel kvm -cpu host"), "{words}");
    }
}
