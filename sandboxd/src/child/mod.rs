//! What runs between the daemon and the user's code: the launcher process and, in each child of it, the steps that
//! build the boundary.

pub mod sys;
