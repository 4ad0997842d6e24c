//! Serves sandboxd on the control socket: opens and closes gates.
