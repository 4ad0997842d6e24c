mod kinds;
mod minted;
mod scrubbing;
mod sources;
