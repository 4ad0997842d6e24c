//! A permit is for the credential that it was made for.

fn other_credential(permit: &mut freeboard_policy::Permit) {
    permit.credential = Some("other".into());
}

fn main() {
    let _change = other_credential;
}
