//! There is no permit for nothing.

fn main() {
    let _permit: freeboard_policy::Permit = Default::default();
}
