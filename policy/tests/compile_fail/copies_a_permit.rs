//! One permit, one request.

fn two(permit: &freeboard_policy::Permit) -> freeboard_policy::Permit {
    permit.clone()
}

fn main() {
    let _two = two;
}
