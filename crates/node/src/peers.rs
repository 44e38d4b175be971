//! The other members: where they are, the connections to them, and the header that stands on each message.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use ticketrail_core::GroupId;
use ticketrail_proto::raft as pb;
use tokio::sync::watch;
use tonic::Status;
use tonic::transport::{Channel, Endpoint};

use crate::clock::{Clock, Instant};
use crate::disk::Disk;
use crate::member::Members;

/// The version of the protocol between peers.
pub(crate) const PROTOCOL: u32 = 1;
/// The largest message between peers: an entry of full size with room to spare.
pub(crate) const MESSAGE_BYTES: usize = 16 << 20;
/// How long a reading of a peer's wall clock counts.
const WALL_FRESH: Duration = Duration::from_secs(10);
/// A node whose wall clock is further off the median should not lead.
const WALL_OFF_MS: i64 = 2_000;
/// How long a peer's word on its disk counts.
const DISK_FRESH: Duration = Duration::from_secs(10);

/// Connects to an address, or says why that cannot be one.
type Connect = dyn Fn(&str) -> Result<Channel, String> + Send + Sync;

/// Makes connections to peers.
#[derive(Clone)]
pub struct Connector(Arc<Connect>);

impl Connector {
    /// Connects with `connect`, which is given `HOST:PORT` and returns a channel that connects when it is first used,
    /// and anew when the connection is lost.
    pub fn new(connect: impl Fn(&str) -> Result<Channel, String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(connect))
    }

    /// Connects over TCP. Names are resolved anew at each connect.
    pub fn tcp() -> Self {
        Self::new(|address| {
            let endpoint = Endpoint::from_shared(format!("http://{address}"))
                .map_err(|error| format!("expected HOST:PORT, but got {address:?}: {error}"))?;
            Ok(tuned(endpoint).connect_lazy())
        })
    }

    pub(crate) fn connect(&self, address: &str) -> Result<Channel, String> {
        (self.0)(address)
    }
}

/// An endpoint with the timeouts and windows that suit peers.
pub fn tuned(endpoint: Endpoint) -> Endpoint {
    endpoint
        .connect_timeout(Duration::from_secs(1))
        .tcp_nodelay(true)
        .http2_keep_alive_interval(Duration::from_secs(2))
        .keep_alive_timeout(Duration::from_secs(4))
        .keep_alive_while_idle(true)
        .initial_stream_window_size(4 << 20)
        .initial_connection_window_size(16 << 20)
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connector")
    }
}

/// What a connection is for. Each has one of its own, so that a snapshot does not hold up heartbeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Lane {
    /// Log entries.
    Append,
    /// Heartbeats, votes, membership.
    Control,
    /// Snapshots.
    Snapshot,
    /// Calls of clients, handed to the leader.
    Forward,
}

/// The other members of a group, as this node knows them.
pub(crate) struct Peers {
    node: u64,
    cluster: [u8; 16],
    group: GroupId,
    clock: Clock,
    disk: Disk,
    connector: Connector,
    members: watch::Receiver<Arc<Members>>,
    channels: Mutex<BTreeMap<(u64, Lane), (String, Channel)>>,
    heard: Mutex<BTreeMap<u64, Heard>>,
    led_at: Mutex<Option<Instant>>,
}

/// What a peer said last of itself.
#[derive(Debug, Clone, Copy)]
struct Heard {
    at: Instant,
    /// Its wall clock. Kept beside our monotonic clock and not as a difference to our wall clock, which may be set meanwhile.
    wall_ms: u64,
    disk_low: bool,
}

impl Heard {
    /// By how many milliseconds its wall clock is ahead of one that shows `wall_ms` at `now`.
    fn ahead_ms(self, now: Instant, wall_ms: u64) -> i64 {
        let since = now.saturating_duration_since(self.at).as_millis();
        let shows = self.wall_ms.saturating_add(u64::try_from(since).unwrap_or(u64::MAX));
        i64::try_from(i128::from(shows) - i128::from(wall_ms)).unwrap_or(i64::MAX)
    }
}

impl Peers {
    pub(crate) fn new(
        (node, cluster, group): (u64, [u8; 16], GroupId),
        clock: Clock,
        disk: Disk,
        connector: Connector,
        members: watch::Receiver<Arc<Members>>,
    ) -> Self {
        let (channels, heard, led_at) = (Mutex::default(), Mutex::default(), Mutex::default());
        Self { node, cluster, group, clock, disk, connector, members, channels, heard, led_at }
    }

    pub(crate) fn now(&self) -> Instant {
        self.clock.now()
    }

    /// The newest membership.
    pub(crate) fn members(&self) -> Arc<Members> {
        self.members.borrow().clone()
    }

    /// The connection to a member, made lazily; `None` where it is no member or its address makes no sense.
    pub(crate) fn channel(&self, node: u64, lane: Lane) -> Option<Channel> {
        self.channel_or(node, lane, None)
    }

    /// As `channel`, with an address to use where the newest membership is not known here yet.
    pub(crate) fn channel_or(&self, node: u64, lane: Lane, fallback: Option<&str>) -> Option<Channel> {
        let members = self.members();
        let address = members.nodes.get(&node).map(|member| member.peer_address.as_str()).or(fallback)?;
        let mut channels = self.channels.lock();
        if let Some((known, channel)) = channels.get(&(node, lane))
            && known == address
        {
            return Some(channel.clone());
        }
        match self.connector.connect(address) {
            Ok(channel) => {
                if members.nodes.contains_key(&node) {
                    channels.retain(|(known, _), _| members.nodes.contains_key(known));
                }
                channels.insert((node, lane), (address.to_owned(), channel.clone()));
                Some(channel)
            }
            Err(error) => {
                tracing::warn!(node, address, error, "cannot connect to a peer");
                None
            }
        }
    }

    /// The header of a message to `to`.
    pub(crate) fn header(&self, to: u64) -> Option<pb::Header> {
        Some(pb::Header {
            cluster: self.cluster.to_vec().into(),
            group: u64::from(self.group.0),
            from: self.node,
            to,
            protocol: PROTOCOL,
            wall_ms: self.clock.wall_ms(),
            disk_low: self.disk.is_low(),
        })
    }

    /// Checks that a message is meant for this node, and takes note of what its sender says of itself. Says who it is.
    pub(crate) fn check(&self, header: Option<&pb::Header>) -> Result<u64, Status> {
        let Some(header) = header else {
            return Err(Status::invalid_argument("expected a header on each message between peers, but there is none"));
        };
        if header.protocol != PROTOCOL {
            return Err(Status::failed_precondition(format!(
                "expected version {PROTOCOL} of the protocol between peers, but node {} speaks version {}; \
                 upgrade one node at a time and let no version be left out",
                header.from, header.protocol
            )));
        }
        if header.cluster != self.cluster.as_slice() {
            return Err(Status::failed_precondition(format!(
                "expected a peer of cluster {}, but node {} is of cluster {}; see to its address and its disk",
                hex(&self.cluster),
                header.from,
                hex(&header.cluster)
            )));
        }
        if header.group != u64::from(self.group.0) || header.to != self.node {
            return Err(Status::failed_precondition(format!(
                "expected a message for node {} in group {}, but node {} means node {} in group {}; see to the \
                 addresses that the members are known by",
                self.node, self.group.0, header.from, header.to, header.group
            )));
        }
        self.note(header);
        Ok(header.from)
    }

    /// Takes note of what the sender of an answer says of itself.
    pub(crate) fn note(&self, header: &pb::Header) {
        let heard = Heard { at: self.clock.now(), wall_ms: header.wall_ms, disk_low: header.disk_low };
        self.heard.lock().insert(header.from, heard);
    }

    /// Takes note that a leader was followed.
    pub(crate) fn note_led(&self) {
        *self.led_at.lock() = Some(self.clock.now());
    }

    /// When a leader was followed last.
    pub(crate) fn led_at(&self) -> Option<Instant> {
        *self.led_at.lock()
    }

    /// By how many milliseconds the lower median of the members' wall clocks is ahead of this node's, itself included;
    /// readings older than 10 s do not count.
    pub(crate) fn wall_ahead_ms(&self) -> i64 {
        let members = self.members();
        let (now, mine) = (self.clock.now(), self.clock.wall_ms());
        let mut ahead: Vec<i64> = self
            .heard
            .lock()
            .iter()
            .filter(|(node, heard)| {
                **node != self.node
                    && members.nodes.contains_key(node)
                    && now.saturating_duration_since(heard.at) <= WALL_FRESH
            })
            .map(|(_, heard)| heard.ahead_ms(now, mine))
            .collect();
        ahead.push(0);
        ahead.sort_unstable();
        ahead[(ahead.len() - 1) / 2]
    }

    /// Whether this node's wall clock is so far off the median that it should not lead.
    pub(crate) fn wall_is_off(&self) -> bool {
        self.wall_ahead_ms().abs() > WALL_OFF_MS
    }

    /// When a peer was heard last.
    pub(crate) fn heard_at(&self, node: u64) -> Option<Instant> {
        self.heard.lock().get(&node).map(|heard| heard.at)
    }

    /// Whether the disk of a peer is past its low mark, as it said within the last 10 s.
    pub(crate) fn disk_low(&self, node: u64) -> bool {
        if node == self.node {
            return self.disk.is_low();
        }
        let now = self.clock.now();
        let heard = self.heard.lock().get(&node).copied();
        heard.is_some_and(|heard| heard.disk_low && now.saturating_duration_since(heard.at) <= DISK_FRESH)
    }
}

/// Bytes in hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::member::Member;

    const NOON: u64 = 1_800_000_000_000;
    const HOUR: i64 = 3_600_000;

    /// Node 1 of three.
    fn peers(clock: &Clock) -> Peers {
        let nodes: BTreeMap<u64, Member> = (1..=3).map(|id| (id, Member::default())).collect();
        let members = Members { voters: vec![BTreeSet::from([1, 2, 3])], nodes, committed: true, at: None };
        let (_, members) = watch::channel(Arc::new(members));
        let connector = Connector::new(|_| Err("nobody connects here".into()));
        Peers::new((1, [7; 16], GroupId::QUEUES), clock.clone(), Disk::endless(), connector, members)
    }

    /// A message of `node`, whose wall clock shows `wall_ms`.
    fn header(node: u64, wall_ms: u64) -> pb::Header {
        pb::Header { from: node, wall_ms, ..pb::Header::default() }
    }

    #[tokio::test(start_paused = true)]
    async fn a_wall_clock_is_compared_as_it_shows_now() {
        let clock = Clock::simulated(NOON);
        let peers = peers(&clock);
        peers.note(&header(2, NOON));
        peers.note(&header(3, NOON));
        assert_eq!(peers.wall_ahead_ms(), 0);
        clock.jump(2 * HOUR);
        assert_eq!(peers.wall_ahead_ms(), -2 * HOUR, "the others have told nothing since");
        assert!(peers.wall_is_off());
        // Simulated seed 293: it was right again, but did not know it for 10 s, and nobody led.
        clock.jump(-2 * HOUR);
        assert!(!peers.wall_is_off());
        tokio::time::advance(Duration::from_secs(4)).await;
        assert_eq!(peers.wall_ahead_ms(), 0, "the clocks of the others go on, too");
    }

    #[tokio::test(start_paused = true)]
    async fn old_readings_and_those_of_strangers_do_not_count() {
        let clock = Clock::simulated(NOON);
        let peers = peers(&clock);
        let one = NOON.saturating_add_signed(HOUR);
        peers.note(&header(8, one));
        peers.note(&header(9, one));
        assert_eq!(peers.wall_ahead_ms(), 0);
        peers.note(&header(2, one));
        peers.note(&header(3, one));
        assert_eq!(peers.wall_ahead_ms(), HOUR);
        tokio::time::advance(WALL_FRESH + Duration::from_millis(1)).await;
        assert_eq!(peers.wall_ahead_ms(), 0);
    }
}
