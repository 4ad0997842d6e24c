//! From bytes to one request model. Anything with two readings is refused here.
