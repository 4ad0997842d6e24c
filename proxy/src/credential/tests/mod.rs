mod scrubbing;
mod sources;
