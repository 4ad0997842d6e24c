//! What must not compile outside this crate: making, copying or changing the proof that policy allows a request.

/// Positive control: reading a permit, and giving it away once, compiles.
fn credential(permit: freeboard_policy::Permit) -> Option<std::sync::Arc<str>> {
    permit.credential().cloned()
}

#[test]
fn a_permit_cannot_be_made_copied_changed_or_used_twice_outside() {
    let _: fn(_) -> _ = credential;
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/compile_fail/makes_a_permit.rs");
    cases.compile_fail("tests/compile_fail/copies_a_permit.rs");
    cases.compile_fail("tests/compile_fail/changes_a_permit.rs");
    cases.compile_fail("tests/compile_fail/makes_a_permit_by_default.rs");
    cases.compile_fail("tests/compile_fail/uses_a_permit_twice.rs");
}
