use std::io;

use super::*;
use crate::{Recorder, apply};

const RUN: &str = "0123456789abcdef0123456789abcdef";

fn spec(form: Form) -> GateSpec {
    GateSpec { form, ports: vec![8443, 443], families: Families::Both, catch_all: CatchAll::WhereOffered }
}

fn joined() -> Form {
    Form::Joined { run: RUN.to_owned() }
}

fn calls(spec: &GateSpec) -> Vec<String> {
    let mut kernel = Recorder::default();
    apply(&Plan::new(spec).unwrap(), &mut kernel).unwrap();
    kernel.calls
}

#[test]
fn loopback_gate_step_by_step() {
    assert_eq!(
        calls(&spec(Form::Loopback)),
        [
            "gate: set `net/ipv6/conf/all/disable_ipv6` to 0",
            "gate: set `net/ipv6/conf/lo/disable_ipv6` to 0",
            "gate: bring up `lo`",
            "gate: make 0.0.0.0/0 local",
            "gate: make ::/0 local",
            "gate: set `net/ipv4/icmp_echo_ignore_all` to 1",
            "gate: set `net/ipv4/icmp_ratelimit` to 0",
            "gate: set `net/ipv6/icmp/echo_ignore_all` to 1",
            "gate: set `net/ipv6/icmp/ratelimit` to 0",
            "gate: open door tcp 80",
            "gate: open door tcp 443",
            "gate: open door tcp 8443",
            "gate: open door proxy 3128",
            "gate: open door dns udp",
            "gate: open door dns tcp",
            "gate: lead other ports to 65535",
            "gate: open door catch-all 65535",
        ]
    );
}

#[test]
fn joined_gate_step_by_step() {
    let calls = calls(&spec(joined()));
    let from = calls.iter().position(|call| call.starts_with("guest")).unwrap();
    assert_eq!(
        calls[from..from + 11],
        [
            "guest: set `net/ipv6/conf/all/disable_ipv6` to 0",
            "guest: bring up `lo`",
            "gate: join `fb012345678` and `eth0`",
            "gate: give 100.64.0.1/30 to `fb012345678`",
            "guest: give 100.64.0.2/30 to `eth0`",
            "gate: give fd64:f2ee:b0a2::1/126 to `fb012345678`",
            "guest: give fd64:f2ee:b0a2::2/126 to `eth0`",
            "gate: bring up `fb012345678`",
            "guest: bring up `eth0`",
            "guest: route everything to 100.64.0.1 through `eth0`",
            "guest: route everything to fd64:f2ee:b0a2::1 through `eth0`",
        ]
    );
    assert!(
        calls[..from].contains(&"gate: make 0.0.0.0/0 local".to_owned()),
        "local before anything is joined"
    );
}

#[test]
fn nothing_of_ipv6_is_planned_without_it() {
    let calls = calls(&GateSpec { families: Families::V4, ..spec(joined()) });
    assert!(calls.iter().all(|call| !call.contains("ipv6") && !call.contains("::")), "{calls:?}");
}

#[test]
fn every_failing_required_step_is_undone_in_reverse() {
    for form in [Form::Loopback, joined()] {
        let plan = Plan::new(&spec(form)).unwrap();
        let required = plan.steps.iter().filter(|planned| planned.need == Need::Required);
        for planned in required {
            let mut kernel = Recorder::failing(&planned.step.to_string(), io::ErrorKind::PermissionDenied);
            let Err(error) = apply(&plan, &mut kernel) else {
                // Calls are worded for the kernel; a step whose words differ is covered by the call's own line.
                assert!(
                    matches!(planned.step, Step::LinkUp { .. } | Step::Sysctl { .. }),
                    "{}",
                    planned.step
                );
                continue;
            };
            assert_eq!(error.step, planned.step);
            let failed =
                kernel.calls.iter().position(|call| call.contains(&planned.step.to_string())).unwrap();
            let done = kernel.calls[..failed].iter().filter(|call| !call.contains("open door")).count();
            assert_eq!(kernel.calls.len() - failed - 1, done, "{:#?}", kernel.calls);
        }
    }
}

#[test]
fn undo_runs_backwards() {
    let mut kernel = Recorder::failing("open door dns tcp", io::ErrorKind::AddrInUse);
    apply(&Plan::new(&spec(Form::Loopback)).unwrap(), &mut kernel).unwrap_err();
    let failed = kernel.calls.iter().position(|call| call.contains("dns tcp")).unwrap();
    assert_eq!(
        kernel.calls[failed + 1..],
        [
            "gate: set `net/ipv6/icmp/ratelimit` to before",
            "gate: set `net/ipv6/icmp/echo_ignore_all` to before",
            "gate: set `net/ipv4/icmp_ratelimit` to before",
            "gate: set `net/ipv4/icmp_echo_ignore_all` to before",
            "gate: undo: make ::/0 local",
            "gate: undo: make 0.0.0.0/0 local",
            "gate: bring down `lo`",
            "gate: set `net/ipv6/conf/lo/disable_ipv6` to before",
            "gate: set `net/ipv6/conf/all/disable_ipv6` to before",
        ]
    );
}

#[test]
fn a_gate_stands_without_optional_steps_and_says_which() {
    let plan = Plan::new(&spec(Form::Loopback)).unwrap();
    let mut kernel = Recorder::failing("lead other ports", io::ErrorKind::Unsupported);
    let gate = apply(&plan, &mut kernel).unwrap();
    assert!(!gate.records_other_ports(), "no catch-all that nothing is led to");
    assert_eq!(gate.missed.len(), 1);
    assert!(!kernel.calls.iter().any(|call| call.contains("catch-all")));

    let gate = apply(&plan, &mut Recorder::default()).unwrap();
    assert!(gate.records_other_ports());
    assert!(gate.missed.is_empty());
}

#[test]
fn the_redirect_spares_every_door() {
    let plan = Plan::new(&spec(Form::Loopback)).unwrap();
    let redirect = plan.steps.iter().find_map(|planned| match &planned.step {
        Step::Redirect(redirect) => Some(redirect.clone()),
        _ => None,
    });
    let redirect = redirect.unwrap();
    assert_eq!(redirect.except, [53, 80, 443, 3128, 8443]);
    assert_eq!((redirect.to, redirect.traffic), (65535, Traffic::Local));
}

#[test]
fn a_granted_port_is_never_the_catch_all() {
    let plan = Plan::new(&GateSpec { ports: vec![65535], ..spec(Form::Loopback) }).unwrap();
    let ports: Vec<_> = plan.doors().collect();
    assert!(ports.contains(&DoorKind::Tcp { port: 65535 }));
    assert!(ports.contains(&DoorKind::CatchAll { port: 65534 }));
}

#[test]
fn refuses_ports_that_the_gate_needs_and_bad_run_ids() {
    let with = |ports: &[u16]| Plan::new(&GateSpec { ports: ports.to_vec(), ..spec(Form::Loopback) });
    assert_eq!(with(&[0]).unwrap_err(), PlanError::PortZero);
    assert!(matches!(with(&[53]).unwrap_err(), PlanError::Reserved(53, _)));
    assert!(matches!(with(&[3128]).unwrap_err(), PlanError::Reserved(3128, _)));
    let many: Vec<u16> = (2000..2049).collect();
    assert_eq!(with(&many).unwrap_err(), PlanError::TooManyPorts(49));
    with(&many[1..]).unwrap();
    for run in ["", "0123456", "../../etc", "ABCDEF01", "0123456g", &"0".repeat(65)] {
        let refused = Plan::new(&spec(Form::Joined { run: run.to_owned() }));
        assert_eq!(refused.unwrap_err(), PlanError::RunId(run.to_owned()));
    }
}

#[test]
fn a_gate_with_a_tap_is_one_namespace() {
    let calls = calls(&spec(Form::Tap { run: RUN.to_owned() }));
    assert!(calls.iter().all(|call| call.starts_with("gate: ")), "{calls:?}");
    let from = calls.iter().position(|call| call.contains("tap")).unwrap();
    assert_eq!(
        calls[from..from + 4],
        [
            "gate: make the tap `fb012345678`",
            "gate: give 100.64.0.1/30 to `fb012345678`",
            "gate: give fd64:f2ee:b0a2::1/126 to `fb012345678`",
            "gate: bring up `fb012345678`",
        ]
    );
    assert!(calls[..from].contains(&"gate: make ::/0 local".to_owned()), "local before the link is there");
}

#[test]
fn a_machine_has_its_end_and_the_gate_for_everything() {
    let mut kernel = Recorder::default();
    apply(&Plan::inside_machine(Families::V4), &mut kernel).unwrap();
    assert_eq!(
        kernel.calls,
        [
            "gate: bring up `lo`",
            "gate: give 100.64.0.2/30 to `eth0`",
            "gate: bring up `eth0`",
            "gate: route everything to 100.64.0.1 through `eth0`",
        ]
    );
}
