//! How an error reads: its own words and those of its causes, on one line. For logs, answers and the command line alike.

/// An error and its causes, outermost first.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot open the door")]
    struct Outer(#[source] std::io::Error);

    #[test]
    fn says_every_cause_once() {
        assert_eq!(chain(&Outer(std::io::Error::other("no key"))), "cannot open the door: no key");
        assert_eq!(chain(&std::io::Error::other("no key")), "no key");
    }
}
