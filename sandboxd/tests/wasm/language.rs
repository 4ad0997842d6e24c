//! What programs can do.

use crate::harness::*;

#[tokio::test]
async fn runs_the_first_program() {
    assert_eq!(stdout("console.log(6*7)").await, "42\n");
}
