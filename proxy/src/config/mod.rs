//! `[broker]` of freeboard.toml: schema, load, effective.
