//! The six functions that guest code can reach (engine/main.c declares them). None of them waits.

use std::time::{SystemTime, UNIX_EPOCH};

use wasmtime::{Caller, Linker};

use super::run::{Guest, Stop, host_random};

/// Most random bytes per call, as in engine/main.c.
const RANDOM_BYTES: usize = 65536;

pub(super) fn add_to(linker: &mut Linker<Guest>) -> Result<(), wasmtime::Error> {
    linker.func_wrap("freeboard", "output", output)?;
    linker.func_wrap("freeboard", "wall_ms", || {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64() * 1e3)
    })?;
    linker.func_wrap("freeboard", "monotonic_ms", |caller: Caller<'_, Guest>| {
        caller.data().started.elapsed().as_secs_f64() * 1e3
    })?;
    linker.func_wrap("freeboard", "random", random)?;
    linker.func_wrap("freeboard", "request", request)?;
    linker.func_wrap("freeboard", "cancel", |mut caller: Caller<'_, Guest>, number: u32| {
        caller.data_mut().exchanges.cancel(number);
    })?;
    Ok(())
}

/// The guest's memory and its state, apart.
fn parts<'a>(caller: &'a mut Caller<'_, Guest>) -> Result<(&'a mut [u8], &'a mut Guest), Stop> {
    let memory = caller.data().memory.ok_or(Stop::Broken)?;
    Ok(memory.data_and_store_mut(caller))
}

/// A range of the guest's memory, checked.
fn range(memory: &[u8], at: u32, length: u32) -> Result<&[u8], Stop> {
    let at = at as usize;
    memory.get(at..at.saturating_add(length as usize)).ok_or(Stop::Broken)
}

fn output(mut caller: Caller<'_, Guest>, stream: u32, at: u32, length: u32) -> Result<(), wasmtime::Error> {
    let (memory, guest) = parts(&mut caller)?;
    let bytes = range(memory, at, length)?;
    Ok(guest.push_output(if stream == 2 { 2 } else { 1 }, bytes)?)
}

fn random(mut caller: Caller<'_, Guest>, at: u32, length: u32) -> Result<(), wasmtime::Error> {
    let (memory, _) = parts(&mut caller)?;
    let (at, length) = (at as usize, length as usize);
    let place = memory
        .get_mut(at..at.saturating_add(length))
        .filter(|_| length <= RANDOM_BYTES)
        .ok_or(Stop::Broken)?;
    Ok(host_random(place)?)
}

fn request(
    mut caller: Caller<'_, Guest>,
    head: u32,
    head_length: u32,
    body: u32,
    body_length: u32,
) -> Result<i32, wasmtime::Error> {
    let (memory, guest) = parts(&mut caller)?;
    let head = range(memory, head, head_length)?;
    let body = range(memory, body, body_length)?;
    Ok(guest.exchanges.start(head, body).and_then(|number| i32::try_from(number).ok()).unwrap_or(-1))
}
