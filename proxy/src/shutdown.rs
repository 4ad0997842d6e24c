//! Stop accepting, drain, record what was cut.
