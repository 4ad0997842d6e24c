//! The one table from cause to answer.
