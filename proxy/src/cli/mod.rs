//! The commands of `freeboard`, one file each.
