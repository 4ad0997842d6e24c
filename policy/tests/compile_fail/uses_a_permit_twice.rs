//! Whoever sends the request takes the permit.

fn send(_permit: freeboard_policy::Permit) {}

fn twice(permit: freeboard_policy::Permit) {
    send(permit);
    send(permit);
}

fn main() {
    let _twice = twice;
}
