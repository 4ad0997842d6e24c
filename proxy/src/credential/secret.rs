//! A secret that does not show itself.

use zeroize::Zeroizing;

/// Bytes that are never printed or serialised, zeroed on drop.
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// The bytes themselves. Called where they are written to a verified TLS connection, and by the scrubber.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("[secret]")
    }
}

/// Does not compile once a [`Secret`] can be copied, printed as text or serialised: with such an implementation the
/// question below has two answers.
const _: fn() = || {
    struct IsClone;
    struct IsDisplay;
    struct IsSerialize;
    trait HasNone<Why> {
        fn ask() {}
    }
    impl<T> HasNone<()> for T {}
    impl<T: Clone> HasNone<IsClone> for T {}
    impl<T: std::fmt::Display> HasNone<IsDisplay> for T {}
    impl<T: serde::Serialize> HasNone<IsSerialize> for T {}
    <Secret as HasNone<_>>::ask();
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_does_not_show_itself_when_it_is_printed() {
        let secret = Secret::new(b"value".to_vec());
        assert_eq!(format!("{secret:?} {secret:#?} {:?}", Some(&secret)), "[secret] [secret] Some([secret])");
    }
}
