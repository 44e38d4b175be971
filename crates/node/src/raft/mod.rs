//! The only place that names openraft.

mod codec;
mod log;
mod machine;
mod network;
mod snapshot;
#[cfg(test)]
mod suite;
mod types;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use openraft::async_runtime::watch::WatchReceiver as _;
use openraft::errors::{ClientWriteError, Fatal, InitializeError, LinearizableReadError, RaftError};
use openraft::impls::ProgressResponder;
use openraft::metrics::RaftServerMetrics;
use openraft::raft::ReadPolicy;
use openraft::{AsyncRuntime, BasicNode, Config, Raft, ServerState, SnapshotPolicy};
use ticketrail_core::GroupId;
use ticketrail_storage::log::{LeaderId, RaftLog};
use ticketrail_storage::state::StateStore;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use self::log::GroupLog;
use self::machine::Machine;
use self::network::NoPeers;
use self::types::{Production, Proposal, Types};
use crate::broken::Broken;
use crate::config::NodeConfig;
use crate::consensus::{Consensus, Figures, Outcome, Proposed, ReadRefused, Role, Standing};
use crate::error::StartError;
use crate::signals::Signals;

/// A group of one voter that runs.
pub(crate) struct Started {
    pub(crate) consensus: Arc<dyn Consensus>,
    pub(crate) standing: watch::Receiver<Standing>,
    /// Ends when openraft does.
    pub(crate) watcher: JoinHandle<()>,
}

/// Starts the group of all queues on the runtime of production; founds it where the log is empty.
pub(crate) async fn start<L: RaftLog, S: StateStore>(
    config: &NodeConfig,
    log: Arc<L>,
    state: Arc<S>,
    signals: Arc<Signals>,
    broken: Arc<Broken>,
) -> Result<Started, StartError> {
    start_on::<Production, L, S>(config, log, state, signals, broken).await
}

async fn start_on<R: AsyncRuntime, L: RaftLog, S: StateStore>(
    config: &NodeConfig,
    log: Arc<L>,
    state: Arc<S>,
    signals: Arc<Signals>,
    broken: Arc<Broken>,
) -> Result<Started, StartError> {
    let log = GroupLog::new(log, GroupId::QUEUES);
    let machine = Machine::<R, S>::new(state, signals, broken.clone(), config.work)?;
    let raft_config = Arc::new(raft_config(config)?);
    let raft = Raft::new(config.node_id, raft_config, NoPeers::new(), log.clone(), machine).await.map_err(stopped)?;
    let metrics = raft.server_metrics();
    let (tell, standing) = watch::channel(standing_of::<R>(&metrics.borrow_watched().clone()));
    let watcher = tokio::spawn(watch_standing::<R, S>(raft.clone(), tell, broken));
    // A voter without peers has nobody to wait for.
    let peers = raft.voter_ids().any(|id| id != config.node_id);
    if !raft.is_initialized().await.map_err(stopped)? {
        // This campaigns by itself.
        let alone = BTreeMap::from([(config.node_id, BasicNode { addr: String::new() })]);
        raft.initialize(alone).await.map_err(|error| match error {
            RaftError::APIError(InitializeError::NotAllowed(e)) => StartError::Consensus(e.to_string()),
            RaftError::APIError(InitializeError::NotInMembers(e)) => StartError::Consensus(e.to_string()),
            RaftError::Fatal(fatal) => stopped(fatal),
        })?;
    } else if !peers {
        raft.trigger().elect(false).await.map_err(stopped)?;
    }
    Ok(Started { consensus: Arc::new(Group { raft, log }), standing, watcher })
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
    broken: Arc<Broken>,
) {
    let mut metrics = raft.server_metrics();
    loop {
        let now = standing_of::<R>(&metrics.borrow_watched().clone());
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

/// openraft behind [`Consensus`].
struct Group<R: AsyncRuntime, L, S: StateStore> {
    raft: Raft<Types<R>, Machine<R, S>>,
    log: GroupLog<L>,
}

impl<R: AsyncRuntime, L: RaftLog, S: StateStore> Consensus for Group<R, L, S> {
    fn propose(&self, leader: LeaderId, entry: Bytes) -> BoxFuture<'_, Outcome> {
        Box::pin(async move {
            let (responder, outcome) = ProgressResponder::complete_only();
            let leader = codec::leader_from_store(&leader);
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
