//! Names of metadata that go with replies.

/// The leader's address for clients, `host:port`, on replies, streams and errors of a node that does not lead, where it
/// knows who does. Direct the next calls there.
pub const LEADER: &str = "ticketrail-leader";
