//! Named, owned background tasks.
