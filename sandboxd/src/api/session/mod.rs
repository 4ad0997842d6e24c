//! The three procedures of sessions.

mod close;
mod open;
mod run;

pub(super) use close::close;
pub(super) use open::open;
pub(super) use run::run;

use std::sync::Arc;

use freeboard_wire::{ConnectError, SessionEnd};

use super::refuse;
use super::route::Context;
use crate::session::Entry;

/// The session of this id. An unknown one and another caller's are answered with the same words.
fn find(context: &Context<'_>, id: &str) -> Result<Arc<Entry>, ConnectError> {
    let found = context.app.sessions.find(id, context.caller.as_deref());
    found.ok_or_else(|| refuse::session_over(SessionEnd::NotFound, "there is no such session"))
}
