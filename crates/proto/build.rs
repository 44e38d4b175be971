//! Compiles `proto/` with protox: no protoc is needed.

use std::error::Error;
use std::path::{Path, PathBuf};

use prost::Message as _;

const FILES: &[&str] = &[
    "ticketrail/v1/common.proto",
    "ticketrail/v1/message.proto",
    "ticketrail/v1/queue.proto",
    "ticketrail/v1/queue_service.proto",
    "ticketrail/v1/commit_service.proto",
    "ticketrail/v1/admin_service.proto",
    "ticketrail/v1/cluster_service.proto",
    "ticketrail/raft/v1/header.proto",
    "ticketrail/raft/v1/raft.proto",
    "ticketrail/raft/v1/forward.proto",
    "ticketrail/raft/v1/member.proto",
];

fn main() -> Result<(), Box<dyn Error>> {
    // A build script runs in its package's folder. A path taken when it was compiled would lead into another checkout where
    // two share a target folder.
    let root = Path::new("../../proto");
    println!("cargo:rerun-if-changed={}", root.display());
    let descriptors = protox::compile(FILES, [root])?;
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("ticketrail.binpb"), descriptors.encode_to_vec())?;
    tonic_prost_build::configure().bytes(".").btree_map(".").compile_fds(descriptors)?;
    Ok(())
}
