//! Builds the stages from the configuration, owns listeners and tasks.
