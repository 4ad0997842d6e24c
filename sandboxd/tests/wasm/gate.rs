//! The broker's side of the door, played by the test: takes streams, reads each request, answers as told.

use std::io::{IoSliceMut, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

/// What came through the door, request by request, in the order of their end.
pub(crate) type Log = Arc<Mutex<Vec<String>>>;

/// Serves the door in a thread of its own until the worker closes it. `answer` gets the stream and the request's text.
pub(crate) fn serve(door: OwnedFd, answer: impl Fn(UnixStream, &str) + Send + Sync + 'static) -> Log {
    let log = Log::default();
    let seen = Arc::clone(&log);
    let answer = Arc::new(answer);
    std::thread::spawn(move || {
        while let Some(stream) = next(&door) {
            let (seen, answer) = (Arc::clone(&seen), Arc::clone(&answer));
            std::thread::spawn(move || {
                stream.set_nonblocking(false).expect("blocking");
                stream.set_read_timeout(Some(Duration::from_secs(5))).expect("a timeout");
                let request = read_request(&stream);
                seen.lock().expect("no panic").push(request.clone());
                answer(stream, &request);
            });
        }
    });
    log
}

/// Writes `text` and closes the stream.
pub(crate) fn reply(mut stream: UnixStream, text: &str) {
    // The worker may have closed the stream: the tests that expect so look at the program instead.
    let _ = stream.write_all(text.as_bytes());
}

pub(crate) fn json(status: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn next(door: &OwnedFd) -> Option<UnixStream> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    recvmsg(door, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, RecvFlags::CMSG_CLOEXEC).ok()?;
    let mut streams = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    streams.next().map(UnixStream::from)
}

fn read_request(mut stream: &UnixStream) -> String {
    let mut text = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        if let Some(head) = text.windows(4).position(|four| four == b"\r\n\r\n") {
            let head_text = String::from_utf8_lossy(&text[..head]).to_lowercase();
            let length = head_text
                .split("content-length: ")
                .nth(1)
                .and_then(|rest| rest.split("\r\n").next()?.parse().ok());
            if text.len() >= head + 4 + length.unwrap_or(0_usize) {
                break;
            }
        }
        match stream.read(&mut chunk) {
            Ok(0) | Err(_) => break,
            Ok(count) => text.extend_from_slice(&chunk[..count]),
        }
    }
    String::from_utf8_lossy(&text).into_owned()
}
