//! Generated gRPC and protobuf code of Ticketrail. A map of the house:
//!
//! - [`v1`]: the public API, from `proto/ticketrail/v1`; `bytes` fields are [`bytes::Bytes`], maps are sorted;
//! - [`raft`]: what peers say to each other, from `proto/ticketrail/raft/v1`; not for clients;
//! - [`reason`]: the stable reasons of errors, as `ErrorInfo.reason` and `ItemError.reason` carry them;
//! - [`metadata`]: what goes with replies;
//! - [`FILE_DESCRIPTOR_SET`]: for reflection.

pub mod metadata;
pub mod reason;

/// The public API, `ticketrail.v1`.
#[allow(missing_docs, unreachable_pub, clippy::all, rustdoc::all)]
pub mod v1 {
    tonic::include_proto!("ticketrail.v1");
}

/// What peers say to each other, `ticketrail.raft.v1`. Not for clients.
#[allow(missing_docs, unreachable_pub, clippy::all, rustdoc::all)]
pub mod raft {
    tonic::include_proto!("ticketrail.raft.v1");
}

/// The encoded `FileDescriptorSet` of all packages, for reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/ticketrail.binpb"));
