//! A new policy, credentials and certificates as one generation.
