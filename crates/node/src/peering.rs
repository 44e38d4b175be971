//! How a node comes to a cluster and stays known there: founding, joining, and saying hello.
//!
//! - [`Peering`] exists before the node does: an empty node answers its peers too.
//! - `settle` gives an empty disk its identity: founded, promised or admitted.
//! - `hello` tells the others whose disk this is at each start, before the node promises anything in an election.
//! - `service` answers what the others ask.
//! - `steward` is the leader's: it lets newcomers in and moves leadership away from where it should not be.
//! - `wishes` are what nodes say that they want of the leader.
//! - `change` does what an operator asks for.

mod change;
mod hello;
mod service;
mod settle;
pub(crate) mod steward;
mod wishes;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use ticketrail_proto::raft as pb;
use ticketrail_proto::raft::forward_service_server::ForwardServiceServer;
use ticketrail_proto::raft::member_service_client::MemberServiceClient;
use ticketrail_proto::raft::member_service_server::MemberServiceServer;
use ticketrail_proto::raft::raft_service_server::RaftServiceServer;
use ticketrail_storage::home::{Home, Seen};
use ticketrail_storage::{ClusterId, Identity, OpenError};
use tokio::sync::{Notify, watch};
use tokio::time::timeout;
use tonic::service::Routes;
use tonic::transport::Channel;
use tonic::{Response, Status};

use crate::broken::Broken;
use crate::clock::Clock;
use crate::consensus::{Membership, Standing};
use crate::forward::server::ForwardGate;
use crate::member::{Member, Members};
use crate::peers::{Connector, MESSAGE_BYTES, Peers};
use crate::raft::{Gate, PeerService, log_id_from_wire, log_id_to_wire};
use crate::random::Random;
use crate::record::Record;
use crate::shared::Shared;
use crate::work::Work;

pub use self::change::{ChangeError, MemberChange};
pub(crate) use self::hello::Greeter;
pub use self::settle::SettleError;
pub(crate) use self::wishes::Wishes;

/// How long one question to a peer may take.
const ASK: Duration = Duration::from_secs(2);
/// Ids of founders are those of their places in the list of peers; others lie above this.
pub(crate) const JOINED: u64 = 100;

/// What a node knows of its cluster before it belongs to it.
#[derive(Debug, Clone)]
pub struct PeeringConfig {
    /// This node: its name, and where others and clients reach it.
    pub member: Member,
    /// The named peers, itself among them, as name and `HOST:PORT`: at most 99. The first may found the cluster. None:
    /// this node is a cluster of its own.
    pub peers: Vec<(String, String)>,
    /// Whether it may found the cluster, where it is the first of its peers or has none.
    pub may_found: bool,
    /// Whether it wants a vote, where it joins.
    pub wants_vote: bool,
    /// How its peers are reached.
    pub connector: Connector,
    /// Where time comes from.
    pub clock: Clock,
    /// Where random bytes come from.
    pub random: Random,
    /// Where blocking work runs.
    pub work: Work,
}

impl PeeringConfig {
    /// A node that is a cluster of its own.
    pub fn alone() -> Self {
        Self {
            member: Member::default(),
            peers: Vec::new(),
            may_found: true,
            wants_vote: true,
            connector: Connector::tcp(),
            clock: Clock::default(),
            random: Random::default(),
            work: Work::default(),
        }
    }

    /// Whether this node may found the cluster.
    fn is_founder(&self) -> bool {
        self.may_found && self.peers.first().is_none_or(|(name, _)| *name == self.member.name)
    }

    fn others(&self) -> impl Iterator<Item = &(String, String)> {
        self.peers.iter().filter(|(name, _)| *name != self.member.name)
    }
}

/// A node's place among its peers. Clones are the same.
#[derive(Clone)]
pub struct Peering(Arc<Inner>);

struct Inner {
    config: PeeringConfig,
    /// Drawn at this start.
    boot: u64,
    home: Arc<Mutex<Box<dyn Home>>>,
    seen: Mutex<BTreeMap<u64, Seen>>,
    /// The disk has got an identity.
    settled: Notify,
    node: OnceLock<NodeSide>,
    /// Where calls of clients are handed in. Weak, because it holds this in turn.
    calls: OnceLock<Weak<Shared>>,
}

/// What a running node adds.
pub(crate) struct NodeSide {
    pub(crate) service: PeerService,
    pub(crate) membership: Arc<dyn Membership>,
    pub(crate) standing: watch::Receiver<Standing>,
    pub(crate) members: watch::Receiver<Arc<Members>>,
    pub(crate) peers: Arc<Peers>,
    pub(crate) record: Arc<Record>,
    pub(crate) broken: Arc<Broken>,
    pub(crate) cleared: watch::Sender<bool>,
    /// Members as they said they are, which the leader may have to let in or to move.
    pub(crate) wishes: Wishes,
}

impl fmt::Debug for Peering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Peering({})", self.0.config.member.name)
    }
}

impl Peering {
    /// A node's place among its peers, with what it keeps beside its stores.
    ///
    /// Errors where that cannot be read, or where there are no random bytes.
    pub fn new(config: PeeringConfig, home: Box<dyn Home>) -> Result<Self, SettleError> {
        let seen = home.seen()?;
        let boot = u64::from_be_bytes(config.random.bytes()?);
        Ok(Self(Arc::new(Inner {
            config,
            boot,
            home: Arc::new(Mutex::new(home)),
            seen: Mutex::new(seen),
            settled: Notify::new(),
            node: OnceLock::new(),
            calls: OnceLock::new(),
        })))
    }

    /// The services for the port of peers. What needs a running node answers `UNAVAILABLE` until there is one.
    pub fn routes(&self) -> Routes {
        let members = MemberServiceServer::new(self.clone())
            .max_decoding_message_size(MESSAGE_BYTES)
            .max_encoding_message_size(MESSAGE_BYTES);
        let raft = RaftServiceServer::new(Gate(self.clone()))
            .max_decoding_message_size(MESSAGE_BYTES)
            .max_encoding_message_size(MESSAGE_BYTES);
        let forward = ForwardServiceServer::new(ForwardGate(self.clone()))
            .max_decoding_message_size(MESSAGE_BYTES)
            .max_encoding_message_size(MESSAGE_BYTES);
        Routes::new(members).add_service(raft).add_service(forward)
    }

    /// The name and addresses of this node.
    pub fn member(&self) -> &Member {
        &self.0.config.member
    }

    pub(crate) fn config(&self) -> &PeeringConfig {
        &self.0.config
    }

    pub(crate) fn attach(&self, node: NodeSide) {
        // A peering belongs to one node.
        let _ = self.0.node.set(node);
    }

    pub(crate) fn forward_to(&self, shared: &Arc<Shared>) {
        // As above.
        let _ = self.0.calls.set(Arc::downgrade(shared));
    }

    pub(crate) fn calls(&self) -> Result<Arc<Shared>, Status> {
        let shared = self.0.calls.get().and_then(Weak::upgrade);
        shared.ok_or_else(|| Status::unavailable("this node is starting or has stopped"))
    }

    pub(crate) fn node(&self) -> Result<&NodeSide, Status> {
        self.0.node.get().ok_or_else(|| Status::unavailable("this node is starting"))
    }

    pub(crate) fn raft(&self) -> Result<PeerService, Status> {
        Ok(self.node()?.service.clone())
    }

    pub(crate) fn identity(&self) -> Option<Identity> {
        self.0.home.lock().identity()
    }

    fn wire_identity(&self) -> Option<pb::Identity> {
        let identity = self.identity()?;
        Some(pb::Identity {
            cluster: identity.cluster.0.to_vec().into(),
            node: identity.node,
            incarnation: identity.incarnation,
            boot: self.0.boot,
        })
    }

    fn wire_member(&self) -> pb::MemberInfo {
        to_wire(&self.0.config.member)
    }

    /// Changes what is kept beside the stores.
    async fn keep<T: Send + 'static>(
        &self,
        change: impl FnOnce(&mut dyn Home) -> Result<T, OpenError> + Send + 'static,
    ) -> Result<T, OpenError> {
        let home = self.0.home.clone();
        self.0.config.work.run(move || change(&mut **home.lock())).await
    }

    fn client(&self, address: &str) -> Result<MemberServiceClient<Channel>, String> {
        Ok(MemberServiceClient::new(self.0.config.connector.connect(address)?))
    }

    /// Asks the node at an address. Says in words why there is no answer.
    async fn ask<T>(
        &self,
        address: &str,
        question: impl AsyncFnOnce(MemberServiceClient<Channel>) -> Result<Response<T>, Status>,
    ) -> Result<T, String> {
        self.ask_for(ASK, address, question).await
    }

    /// As `ask`, for so long at most.
    async fn ask_for<T>(
        &self,
        longest: Duration,
        address: &str,
        question: impl AsyncFnOnce(MemberServiceClient<Channel>) -> Result<Response<T>, Status>,
    ) -> Result<T, String> {
        let client = self.client(address)?;
        match timeout(longest, question(client)).await {
            Ok(Ok(answer)) => Ok(answer.into_inner()),
            Ok(Err(status)) => Err(format!("{address}: {}", status.message())),
            Err(_) => Err(format!("{address}: no answer within {longest:?}")),
        }
    }
}

pub(crate) fn to_wire(member: &Member) -> pb::MemberInfo {
    let Member { name, peer_address, client_address } = member.clone();
    pb::MemberInfo { name, peer_address, client_address }
}

pub(crate) fn from_wire(member: Option<pb::MemberInfo>) -> Result<Member, Status> {
    let Some(pb::MemberInfo { name, peer_address, client_address }) = member else {
        return Err(Status::invalid_argument("expected a member's name and addresses, but there are none"));
    };
    if name.is_empty() || peer_address.is_empty() {
        return Err(Status::invalid_argument("expected a member's name and its address for peers, but one is empty"));
    }
    Ok(Member { name, peer_address, client_address })
}

/// A membership for peers.
fn membership_to_wire(members: &Members) -> pb::Membership {
    let voters = members.voters.iter().map(|set| pb::VoterSet { nodes: set.iter().copied().collect() });
    let known = members.nodes.iter().map(|(node, member)| pb::KnownMember { node: *node, info: Some(to_wire(member)) });
    pb::Membership { at: members.at.as_ref().map(log_id_to_wire), voters: voters.collect(), members: known.collect() }
}

/// A membership that a peer tells of; `None`: it makes no sense.
fn membership_from_wire(told: pb::Membership) -> Option<Members> {
    let nodes = told.members.into_iter().map(|known| Some((known.node, from_wire(known.info).ok()?)));
    let voters = told.voters.into_iter().map(|set| set.nodes.into_iter().collect()).collect();
    let at = log_id_from_wire(told.at?)?;
    Some(Members { voters, nodes: nodes.collect::<Option<_>>()?, committed: false, at: Some(at) })
}

fn cluster_from(bytes: &[u8]) -> Option<ClusterId> {
    Some(ClusterId(bytes.try_into().ok()?))
}
