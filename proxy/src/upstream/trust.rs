//! Which certificates are trusted for an API.
