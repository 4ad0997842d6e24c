//! One request from top to bottom.
