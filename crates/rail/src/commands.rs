//! The commands, a file each.

pub(crate) mod apply;
pub(crate) mod bench;
pub(crate) mod check;
pub(crate) mod cluster;
#[cfg(feature = "server")]
pub(crate) mod dev;
pub(crate) mod dlq;
pub(crate) mod msg;
pub(crate) mod namespace;
pub(crate) mod queue;
#[cfg(feature = "server")]
pub(crate) mod serve;
pub(crate) mod top;
