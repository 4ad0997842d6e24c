//! Which addresses may be dialled for an API.
