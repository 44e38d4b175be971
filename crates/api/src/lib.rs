//! gRPC services of Ticketrail. A map of the house:
//!
//! - [`QueueApi`], [`CommitApi`], [`AdminApi`] and [`ClusterApi`]: the services; each verb parses, makes one command, proposes
//!   it and translates;
//! - `convert`: wire to domain and back; every limit is checked there;
//! - `status`: the one table of errors;
//! - `call`: what every verb shares: request ids, deadlines ([`parse_timeout`]), freshness;
//! - `stream`: `Produce` and `Consume`;
//! - [`NamesLeader`]: tells clients who leads.

mod admin;
mod call;
mod cluster;
mod commit;
mod convert;
mod leader;
mod queue;
mod status;
mod stream;

pub use admin::AdminApi;
pub use call::parse_timeout;
pub use cluster::ClusterApi;
pub use commit::CommitApi;
pub use leader::{Leader, NamesLeader};
pub use queue::{QueueApi, Streams};

use std::sync::Arc;

use ticketrail_core::limits;

/// What a server's configuration says about its services.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Whether an enqueue makes a queue that is not there, and a receive waits for one.
    pub auto_create: bool,
    /// The largest body of a message in bytes, up to 4 MiB.
    pub max_body_bytes: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self { auto_create: true, max_body_bytes: limits::BODY_BYTES }
    }
}

/// What a server tells of itself beside its node.
#[derive(Clone)]
pub struct About {
    /// Its version.
    pub version: &'static str,
    /// Looks at the disk under its data directory; `None` where it cannot.
    pub disk: Arc<dyn Fn() -> Option<Disk> + Send + Sync>,
}

/// A disk, as it is now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Disk {
    /// Bytes free for this process.
    pub free_bytes: u64,
    /// The size of its file system, in bytes.
    pub total_bytes: u64,
    /// Enqueues are refused while less than this is free, in bytes.
    pub low_watermark_bytes: u64,
}

/// The largest request or reply in bytes; the transport refuses larger ones itself.
pub const MESSAGE_BYTES: usize = 16 << 20;
