//! The cryptography of TLS on both legs: aws-lc's, with the cheaper one of two suites that are both strong first.

use rustls::CipherSuite;
use rustls::crypto::CryptoProvider;

/// The provider for guests and upstreams. TLS_AES_128_GCM_SHA256 comes first, which every TLS 1.3 program has
/// (RFC 8446 9.1) and browsers ask for first: processors have instructions for SHA-256 but seldom for SHA-384, whose hashing
/// would be a tenth of a handshake's cost (measured).
pub fn provider() -> CryptoProvider {
    let mut provider = rustls::crypto::aws_lc_rs::default_provider();
    provider.cipher_suites.sort_by_key(|suite| suite.suite() != CipherSuite::TLS13_AES_128_GCM_SHA256);
    provider
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefers_one_suite_and_keeps_all() {
        let (ours, all) = (provider(), rustls::crypto::aws_lc_rs::default_provider());
        assert_eq!(ours.cipher_suites[0].suite(), CipherSuite::TLS13_AES_128_GCM_SHA256);
        assert_eq!(ours.cipher_suites.len(), all.cipher_suites.len());
    }
}
