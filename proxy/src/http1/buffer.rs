//! Input buffers and scratch vectors of one worker thread, reused: an idle connection holds none.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};

use crate::limits::{BUFFER_BYTES, POOLED_BUFFERS, POOLED_WIRE_BUFFERS, WIRE_BUFFER_BYTES};

thread_local! {
    static INPUT: RefCell<Vec<Box<[u8]>>> = const { RefCell::new(Vec::new()) };
    static WIRE: RefCell<Vec<Box<[u8]>>> = const { RefCell::new(Vec::new()) };
    static SCRATCH: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// Takes an input buffer of `BUFFER_BYTES`.
pub(super) fn take() -> Box<[u8]> {
    INPUT.with_borrow_mut(Vec::pop).unwrap_or_else(|| vec![0; BUFFER_BYTES].into_boxed_slice())
}

/// Gives a buffer back, whichever it was. One that had grown for a large head is freed.
pub(super) fn give(buffer: Box<[u8]>) {
    if buffer.len() == WIRE_BUFFER_BYTES {
        return give_wire(buffer);
    }
    if buffer.len() == BUFFER_BYTES {
        INPUT.with_borrow_mut(|free| {
            if free.len() < POOLED_BUFFERS {
                free.push(buffer);
            }
        });
    }
}

/// Takes a buffer of `WIRE_BUFFER_BYTES` for what comes from a socket.
pub(super) fn take_wire() -> Box<[u8]> {
    WIRE.with_borrow_mut(Vec::pop).unwrap_or_else(|| vec![0; WIRE_BUFFER_BYTES].into_boxed_slice())
}

/// Gives it back. One of another size is freed.
pub(super) fn give_wire(buffer: Box<[u8]>) {
    if buffer.len() == WIRE_BUFFER_BYTES {
        WIRE.with_borrow_mut(|free| {
            if free.len() < POOLED_WIRE_BUFFERS {
                free.push(buffer);
            }
        });
    }
}

/// A vector for output, empty when taken, back in the pool when dropped.
#[derive(Debug, Default)]
pub struct Scratch(Vec<u8>);

impl Scratch {
    pub fn take() -> Self {
        Self(SCRATCH.with_borrow_mut(Vec::pop).unwrap_or_default())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if self.0.capacity() == 0 || self.0.capacity() > 4 * BUFFER_BYTES {
            return;
        }
        let mut buffer = std::mem::take(&mut self.0);
        buffer.clear();
        SCRATCH.with_borrow_mut(|free| {
            if free.len() < POOLED_BUFFERS {
                free.push(buffer);
            }
        });
    }
}

impl Deref for Scratch {
    type Target = Vec<u8>;
    fn deref(&self) -> &Vec<u8> {
        &self.0
    }
}

impl DerefMut for Scratch {
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        &mut self.0
    }
}
