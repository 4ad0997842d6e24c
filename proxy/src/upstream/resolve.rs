//! Upstream names to addresses, as the host does it or by configured servers. Never for a guest.
