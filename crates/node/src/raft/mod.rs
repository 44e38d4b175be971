//! The only place that names openraft.

mod codec;
mod gate;
mod leader;
mod log;
mod machine;
mod network;
mod receive;
mod runtime;
mod send;
mod service;
mod snapshot;
#[cfg(test)]
mod suite;
mod types;
mod wire;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use openraft::async_runtime::watch::WatchReceiver as _;
use openraft::errors::{ClientWriteError, Fatal, InitializeError, LinearizableReadError, RaftError};
use openraft::impls::ProgressResponder;
use openraft::metrics::RaftServerMetrics;
use openraft::raft::ReadPolicy;
use openraft::{AsyncRuntime, ChangeMembers, Config, Instant as _, Raft, ServerState, SnapshotPolicy};
use ticketrail_core::GroupId;
use ticketrail_proto::raft::raft_service_server::RaftService;
use ticketrail_storage::log::{LeaderId, RaftLog};
use ticketrail_storage::state::StateStore;
use tokio::sync::watch;
use tokio::task::JoinHandle;

pub(crate) use self::gate::Gate;
use self::log::GroupLog;
use self::machine::Machine;
use self::network::{Links, Network};
use self::receive::Receiver;
pub use self::runtime::{Production, Runtime, Simulated};
use self::send::Sender;
use self::service::{Answers, Service};
use self::types::{Proposal, Types};
use crate::broken::Broken;
use crate::config::NodeConfig;
use crate::consensus::{
    Change, Consensus, Figures, Membership, NotChanged, Outcome, Proposed, ReadRefused, Role, Standing,
};
use crate::error::StartError;
use crate::member::{Member, Members};
use crate::peers::Peers;
use crate::record::Record;
use crate::signals::Signals;

/// What a group's Raft needs beside its stores.
pub(crate) struct Surroundings {
    pub(crate) signals: Arc<Signals>,
    pub(crate) broken: Arc<Broken>,
    pub(crate) peers: Arc<Peers>,
    pub(crate) record: Arc<Record>,
    /// Where the membership is told.
    pub(crate) members: watch::Sender<Arc<Members>>,
    /// Whether enough others know this disk: before that this node promises nothing and does not campaign.
    pub(crate) cleared: watch::Receiver<bool>,
    pub(crate) snapshots: Snapshots,
}

/// Counts snapshots.
#[derive(Debug, Clone, Default)]
pub(crate) struct Snapshots {
    pub(crate) sent: Arc<AtomicU64>,
    pub(crate) installed: Arc<AtomicU64>,
}

/// What answers the other members.
pub(crate) type PeerService = Arc<dyn RaftService<StreamAppendStream = Answers>>;

/// A group that runs.
pub(crate) struct Started {
    pub(crate) consensus: Arc<dyn Consensus>,
    pub(crate) membership: Arc<dyn Membership>,
    pub(crate) standing: watch::Receiver<Standing>,
    pub(crate) service: PeerService,
    /// Whether the log holds anything.
    pub(crate) initialized: bool,
    /// Ends when openraft does.
    pub(crate) watcher: JoinHandle<()>,
}

/// An entry's identity, for peers.
pub(crate) fn log_id_to_wire(id: &ticketrail_storage::log::LogId) -> ticketrail_proto::raft::LogId {
    wire::log_id(&codec::log_id_from_store(id))
}

/// An entry's identity, as a peer tells it; `None`: it is none.
pub(crate) fn log_id_from_wire(id: ticketrail_proto::raft::LogId) -> Option<ticketrail_storage::log::LogId> {
    wire::log_id_from(id).ok().map(|id| codec::log_id_to_store(&id))
}

/// Starts the group of all queues on the runtime `R`.
pub(crate) async fn start<R: Runtime, L: RaftLog, S: StateStore>(
    config: &NodeConfig,
    log: Arc<L>,
    state: Arc<S>,
    surroundings: Surroundings,
) -> Result<Started, StartError> {
    let Surroundings { signals, broken, peers, record, members, cleared, snapshots } = surroundings;
    let log = GroupLog::new(log, GroupId::QUEUES);
    log.cut_replaced(state.applied().last).map_err(StartError::Consensus)?;
    let machine = Machine::<R, S>::new(state.clone(), signals, broken.clone(), config.work)?;
    let raft_config = Arc::new(raft_config(config)?);
    let rate = config.snapshot_bytes_per_second;
    let links = Arc::new(Links {
        peers: peers.clone(),
        record,
        sender: Sender::new(state.clone(), config.work, config.clock.clone(), rate, snapshots.sent),
        clock: config.clock.clone(),
        silence: Duration::from_millis((4 * config.heartbeat_ms).max(2_000)),
        purged: {
            let log = log.clone();
            Arc::new(move || log.purged())
        },
    });
    let starting = Raft::new(config.node_id, raft_config, Network { links }, log.clone(), machine);
    let raft = R::enter(|| config.random.seed(), starting).await.map_err(stopped)?;
    let initialized = raft.is_initialized().await.map_err(stopped)?;
    let metrics = raft.server_metrics();
    let (tell, standing) = watch::channel(standing_of::<R>(&metrics.borrow_watched().clone()));
    members.send_replace(Arc::new(members_of::<R>(&metrics.borrow_watched().clone())));
    let watcher = tokio::spawn(watch_standing::<R, S>(raft.clone(), tell, members, broken));
    let receiver = Arc::new(Receiver::new(state, config.work, snapshots.installed));
    let service = Arc::new(Service { raft: raft.clone(), peers, receiver, cleared, random: config.random.clone() });
    let group = Arc::new(Group { raft, log });
    Ok(Started { consensus: group.clone(), membership: group, standing, service, initialized, watcher })
}

fn stopped<R: AsyncRuntime>(fatal: Fatal<Types<R>>) -> StartError {
    StartError::Consensus(fatal.to_string())
}

fn raft_config(config: &NodeConfig) -> Result<Config, StartError> {
    let raft = Config {
        cluster_name: "ticketrail".into(),
        heartbeat_interval: config.heartbeat_ms,
        election_timeout_min: config.election_min_ms,
        election_timeout_max: config.election_max_ms,
        enable_pre_vote: Some(true),
        // Only once others know this disk.
        enable_elect: false,
        backoff: "50ms 100ms 200ms ...500ms".into(),
        quorum_loss_probe_interval: Some(config.quorum_loss_probe_ms),
        // The applied state has no write-ahead log: after a crash it lags behind what was acknowledged.
        enable_leader_restore: Some(false),
        // When to flush and what to purge is decided by bytes and age, in `retention`.
        snapshot_policy: SnapshotPolicy::Never,
        max_in_snapshot_log_to_keep: u64::MAX,
        ..Config::default()
    };
    raft.validate().map_err(|error| StartError::Config(error.to_string()))
}

/// Passes on what this node is, until openraft ends.
async fn watch_standing<R: AsyncRuntime, S: StateStore>(
    raft: Raft<Types<R>, Machine<R, S>>,
    tell: watch::Sender<Standing>,
    members: watch::Sender<Arc<Members>>,
    broken: Arc<Broken>,
) {
    let mut metrics = raft.server_metrics();
    loop {
        let latest = metrics.borrow_watched().clone();
        let now = standing_of::<R>(&latest);
        let group = members_of::<R>(&latest);
        members.send_if_modified(|known| {
            let changed = **known != group;
            if changed {
                *known = Arc::new(group);
            }
            changed
        });
        tell.send_if_modified(|known| {
            let changed = *known != now;
            *known = now;
            changed
        });
        if metrics.changed().await.is_err() {
            break;
        }
    }
    tell.send_replace(Standing { role: Role::Stopped, ..Standing::default() });
    let end = raft.metrics().borrow_watched().running_state.clone();
    match end {
        Ok(()) | Err(Fatal::Stopped) => {}
        Err(fatal @ (Fatal::StorageError(_) | Fatal::Panicked)) => broken.report(format!("raft stopped: {fatal}")),
    }
}

fn standing_of<R: AsyncRuntime>(metrics: &RaftServerMetrics<Types<R>>) -> Standing {
    let role = match metrics.state {
        ServerState::Learner => Role::Learner,
        ServerState::Follower => Role::Follower,
        ServerState::Candidate => Role::Candidate,
        ServerState::Leader => Role::Leader,
        ServerState::Shutdown => Role::Stopped,
    };
    let leader = codec::leader_to_store(&metrics.vote.leader_id);
    let leads = role == Role::Leader && metrics.vote.committed && leader.node == metrics.id;
    Standing { role, term: leader.term, leader: metrics.current_leader, leading: leads.then_some(leader) }
}

fn members_of<R: AsyncRuntime>(metrics: &RaftServerMetrics<Types<R>>) -> Members {
    let membership = metrics.membership_config.membership();
    Members {
        voters: membership.get_joint_config().clone(),
        nodes: membership.nodes().map(|(id, member)| (*id, member.clone())).collect(),
        committed: metrics.membership_config == metrics.committed_membership_config,
        at: metrics.membership_config.log_id().as_ref().map(codec::log_id_to_store),
    }
}

fn not_changed<R: AsyncRuntime>(error: RaftError<Types<R>, ClientWriteError<Types<R>>>) -> NotChanged {
    match error {
        RaftError::APIError(ClientWriteError::ForwardToLeader(_)) => NotChanged::NotLeader,
        RaftError::APIError(ClientWriteError::ChangeMembershipError(error)) => NotChanged::Refused(error.to_string()),
        RaftError::APIError(ClientWriteError::PreconditionFailed(error)) => NotChanged::Refused(error.to_string()),
        RaftError::APIError(ClientWriteError::LogEntryDiscarded(_)) | RaftError::Fatal(_) => NotChanged::Unknown,
    }
}

/// openraft behind [`Consensus`].
struct Group<R: AsyncRuntime, L, S: StateStore> {
    raft: Raft<Types<R>, Machine<R, S>>,
    log: GroupLog<L>,
}

impl<R: AsyncRuntime, L: RaftLog, S: StateStore> Consensus for Group<R, L, S> {
    fn propose(&self, leader: LeaderId, entry: Bytes) -> BoxFuture<'_, Outcome> {
        Box::pin(async move {
            let (responder, outcome) = ProgressResponder::complete_only();
            let leader = codec::elected_from_store(&leader);
            let written = self.raft.write(Proposal(entry)).with_leader(leader).responder(responder).await;
            Outcome(Box::pin(async move {
                if written.is_err() {
                    return Proposed::Stopped;
                }
                match outcome.await {
                    Ok(Ok(response)) => Proposed::Applied { replies: response.data.0 },
                    Ok(Err(ClientWriteError::ForwardToLeader(_))) => Proposed::NotLeader,
                    Ok(Err(ClientWriteError::LogEntryDiscarded(_))) | Err(_) => Proposed::Unknown,
                    // Only changes of membership are answered so.
                    Ok(Err(ClientWriteError::ChangeMembershipError(_) | ClientWriteError::PreconditionFailed(_))) => {
                        Proposed::Unknown
                    }
                }
            }))
        })
    }

    fn read_index(&self) -> BoxFuture<'_, Result<(), ReadRefused>> {
        Box::pin(async move {
            match self.raft.ensure_linearizable(ReadPolicy::ReadIndex).await {
                Ok(_) => Ok(()),
                Err(RaftError::APIError(LinearizableReadError::ForwardToLeader(to))) => {
                    Err(ReadRefused::NotLeader { leader: to.leader_id })
                }
                Err(RaftError::APIError(LinearizableReadError::QuorumNotEnough(_))) => Err(ReadRefused::NoQuorum),
                Err(RaftError::Fatal(_)) => Err(ReadRefused::Stopped),
            }
        })
    }

    fn acknowledged_ago(&self) -> Option<Duration> {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        let voters = metrics.membership_config.membership().get_joint_config();
        if voters.iter().all(|voters| voters.iter().eq([&metrics.id])) {
            return Some(Duration::ZERO);
        }
        metrics.last_quorum_acked.map(|at| at.elapsed())
    }

    fn figures(&self) -> Figures {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        Figures {
            last_log: metrics.last_log_index,
            committed: metrics.local_committed.as_ref().map(|id| id.index),
            snapshot: metrics.snapshot.as_ref().map(|id| id.index),
            purged: metrics.purged.as_ref().map(|id| id.index),
        }
    }

    fn appended_bytes(&self) -> u64 {
        self.log.appended_bytes()
    }

    fn held_bytes(&self) -> u64 {
        self.log.held_bytes()
    }

    fn take_snapshot(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            // Fails only where openraft has stopped, of which the watcher tells.
            let _ = self.raft.trigger().snapshot().await;
        })
    }

    fn purge(&self, index: u64) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            // As above.
            let _ = self.raft.trigger().purge_log(index).await;
        })
    }

    fn stop(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            // A core that has panicked has been reported by the watcher.
            let _ = self.raft.shutdown().await;
        })
    }
}

impl<R: AsyncRuntime, L: RaftLog, S: StateStore> Membership for Group<R, L, S> {
    fn last_log_index(&self) -> Option<u64> {
        self.figures().last_log
    }

    fn committed_index(&self) -> Option<u64> {
        self.figures().committed
    }

    fn replicated(&self) -> BTreeMap<u64, Option<u64>> {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        let known = metrics.replication.iter().flatten();
        known.map(|(node, last)| (*node, last.as_ref().map(|id| id.index))).collect()
    }

    fn membership_is_committed(&self) -> bool {
        let metrics = self.raft.server_metrics();
        let metrics = metrics.borrow_watched();
        metrics.membership_config == metrics.committed_membership_config
    }

    fn found(&self, members: BTreeMap<u64, Member>) -> BoxFuture<'_, Result<(), StartError>> {
        Box::pin(async move {
            if self.raft.is_initialized().await.map_err(stopped)? {
                return Ok(());
            }
            // This campaigns by itself.
            self.raft.initialize(members).await.map_err(|error| match error {
                RaftError::APIError(InitializeError::NotAllowed(e)) => StartError::Consensus(e.to_string()),
                RaftError::APIError(InitializeError::NotInMembers(e)) => StartError::Consensus(e.to_string()),
                RaftError::Fatal(fatal) => stopped(fatal),
            })
        })
    }

    fn campaign(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            // As in `take_snapshot`.
            let _ = self.raft.trigger().elect(false).await;
        })
    }

    fn mark(&self) -> BoxFuture<'_, Result<u64, NotChanged>> {
        Box::pin(async move {
            let written = self.raft.write_blank().await.map_err(not_changed)?;
            Ok(written.log_id.index)
        })
    }

    fn change(&self, change: Change) -> BoxFuture<'_, Result<(), NotChanged>> {
        let change = match change {
            Change::Set(node, member) => ChangeMembers::SetNodes(BTreeMap::from([(node, member)])),
            Change::Voters(voters) => ChangeMembers::ReplaceAllVoters(voters),
            Change::Remove(nodes) => ChangeMembers::RemoveNodes(nodes),
        };
        Box::pin(async move {
            // A leader that has removed itself leads until that is committed. openraft does not expect more of it.
            let leaves = {
                let metrics = self.raft.server_metrics();
                let metrics = metrics.borrow_watched();
                !metrics.membership_config.membership().voter_ids().any(|voter| voter == metrics.id)
            };
            if leaves {
                return Err(NotChanged::NotLeader);
            }
            self.raft.change_membership(change, false).await.map(drop).map_err(not_changed)
        })
    }

    fn transfer_leader(&self, node: u64) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            // As in `take_snapshot`.
            let _ = self.raft.trigger().transfer_leader(node).await;
        })
    }

    fn allow_elections(&self, allowed: bool) {
        self.raft.runtime_config().elect(allowed);
    }
}
