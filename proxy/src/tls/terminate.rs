//! Reads the ClientHello, then ends TLS with the leaf for its server name. (path)
