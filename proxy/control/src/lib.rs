//! Messages and socket handing between sandboxd and the broker.
//!
//! One Unix stream socket; sandboxd connects, the broker serves. A frame is a 4-byte big-endian length, then
//! that many bytes of JSON; descriptors travel as SCM_RIGHTS with the first byte of the frame that names them.
//! Requests carry an id that the answer repeats. A gate lives no longer than the connection that opened it: when
//! sandboxd dies, the broker closes every gate that it had opened.

#![forbid(unsafe_code)]

mod client;
mod evidence;
mod frame;
mod message;
mod service;
mod supervised;

pub use client::{Client, ClientError};
pub use evidence::{Evidence, Fact};
pub use frame::{Connection, FrameError, MAX_DESCRIPTORS, MAX_FRAME_BYTES, Receiver, Sender};
pub use message::{
    Answer, AnswerBody, ApprovalWord, Call, CloseGate, Door, IssueCredential, OpenGate, PendingApproval,
    PrepareRun, Prepared, ProxyToken, Request, RequestBody, Revocation, Revoked, RunNote, SessionOfCall,
    SurfaceApi, Trace,
};
pub use service::{ServiceManager, Sockets};
pub use supervised::{Lifeline, inherited_file};
