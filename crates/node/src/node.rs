//! A node: what owns the tasks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use ticketrail_core::GroupId;
use ticketrail_proto::raft as pb;
use ticketrail_storage::home::{Home as _, MemHome};
use ticketrail_storage::log::RaftLog;
use ticketrail_storage::state::StateStore;
use ticketrail_storage::{ClusterId, Identity};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::broken::Broken;
use crate::call::Unavailable;
use crate::clock::Ahead;
use crate::config::NodeConfig;
use crate::consensus::{AppliedState, Stored};
use crate::disk::Disk;
use crate::error::{ShutdownError, StartError};
use crate::flight::Flight;
use crate::forward::client::{self, Forwards};
use crate::forward::server::Served;
use crate::handle::Handle;
use crate::lead::Leading;
use crate::member::{Member, Members};
use crate::peering::{Greeter, NodeSide, Peering, PeeringConfig, SettleError, Wishes, steward};
use crate::peers::Peers;
use crate::precheck::Precheck;
use crate::proposer::{Progress, Proposer};
use crate::queue::Queue;
use crate::raft::{Production, Runtime};
use crate::record::Record;
use crate::release::Releases;
use crate::sessions::Sessions;
use crate::shared::Shared;
use crate::signals::Signals;
use crate::waiters::Waiters;
use crate::{keeper, raft, reach, release, retention, scheduler};

/// One replica. Owns every task of it; to be ended with [`Node::shutdown`]. Where it is dropped instead, its tasks end
/// soon, as after a loss of power.
pub struct Node {
    shared: Arc<Shared>,
    tasks: Vec<JoinHandle<()>>,
    watcher: Option<JoinHandle<()>>,
    stop: watch::Sender<bool>,
}

impl Drop for Node {
    fn drop(&mut self) {
        self.stop.send_replace(true);
    }
}

impl Node {
    /// Starts a replica on its stores, with the place among its peers that `config` gives it. Where the stores hold
    /// nothing, it founds the group, if that is its part, or waits to be let in.
    pub async fn start<L: RaftLog, S: StateStore>(
        config: NodeConfig,
        log: Arc<L>,
        state: Arc<S>,
        disk: Disk,
    ) -> Result<Node, StartError> {
        Self::start_on::<Production, L, S>(config, log, state, disk).await
    }

    /// As [`Node::start`], with a Raft that runs on `R`.
    pub async fn start_on<R: Runtime, L: RaftLog, S: StateStore>(
        config: NodeConfig,
        log: Arc<L>,
        state: Arc<S>,
        disk: Disk,
    ) -> Result<Node, StartError> {
        let started = config.clock.now();
        let broken = Arc::new(Broken::default());
        let signals = Arc::new(Signals::default());
        let (peering, identity) = place(&config)?;
        let (members, group) = watch::channel(Arc::new(Members::default()));
        let me = (config.node_id, config.cluster_id, GroupId::QUEUES);
        let connector = peering.config().connector.clone();
        let peers = Arc::new(Peers::new(me, config.clock.clone(), disk.clone(), connector, group.clone()));
        let record = Arc::new(Record::default());
        let (clear, cleared) = watch::channel(false);
        let snapshots = raft::Snapshots::default();
        let surroundings = raft::Surroundings {
            signals: signals.clone(),
            broken: broken.clone(),
            peers: peers.clone(),
            record: record.clone(),
            members,
            cleared,
            snapshots: snapshots.clone(),
        };
        let raft::Started { consensus, membership, standing, service, initialized, watcher } =
            raft::start::<R, L, S>(&config, log.clone(), state.clone(), surroundings).await?;
        check_disk(&identity, peering.member(), &group.borrow(), initialized)?;
        peering.attach(NodeSide {
            service,
            membership,
            standing: standing.clone(),
            members: group,
            peers: peers.clone(),
            record,
            broken: broken.clone(),
            cleared: clear,
            wishes: Wishes::default(),
        });
        peering.begin(initialized).await?;
        let last_log: Arc<dyn Fn() -> Option<pb::LogId> + Send + Sync> =
            Arc::new(move || log.state(GroupId::QUEUES).last.as_ref().map(raft::log_id_to_wire));
        let greeter = Greeter { peering: peering.clone(), last_log, identity };
        tracing::info!(
            node = config.node_id,
            took_us = config.clock.now().saturating_duration_since(started).as_micros(),
            applied = state.applied().last.map(|id| id.index),
            "raft runs"
        );
        let state: Arc<dyn AppliedState> = Arc::new(Stored(state));
        let queue = Arc::new(Queue::new(config.proposal_queue_bytes));
        let flight = Arc::new(Flight::default());
        let waiters = Arc::new(Waiters::new(
            config.parked_receives,
            signals.clone(),
            flight.clone(),
            state.clone(),
            queue.clone(),
            broken.clone(),
            config.clock.clone(),
        ));
        let releases = Arc::new(Releases::new(state.clone(), queue.clone(), flight.clone(), broken.clone()));
        let forwards = Arc::new(Forwards::new(config.proposal_queue_bytes, config.parked_receives));
        let (tell, lead) = watch::channel(None);
        let (tell_cut_off, cut_off) = watch::channel(false);
        let shared = Arc::new(Shared {
            started,
            consensus,
            state,
            disk,
            broken,
            signals,
            queue,
            flight,
            sessions: Arc::new(Sessions::new(1)),
            poll_sessions: Arc::new(Sessions::new(0)),
            waiters,
            releases,
            peers,
            forwards,
            served: Served::default(),
            precheck: Precheck::default(),
            progress: Arc::new(Progress::new(started)),
            passes: scheduler::Passes::default(),
            standing,
            lead,
            cut_off,
            draining: AtomicBool::new(false),
            peering,
            snapshots,
            config,
        });
        let (stop, stopping) = watch::channel(false);
        shared.peering.forward_to(&shared);
        let mut jobs = jobs(&shared, tell, &stopping);
        jobs.push(Box::pin(greeter.run(stopping.clone())));
        jobs.push(Box::pin(reach::run(shared.clone(), tell_cut_off, stopping.clone())));
        jobs.push(Box::pin(steward::run(shared.peering.clone(), stopping)));
        let tasks = jobs.into_iter().map(tokio::spawn).collect();
        Ok(Node { shared, tasks, watcher: Some(watcher), stop })
    }

    /// For its callers.
    pub fn handle(&self) -> Handle {
        Handle { shared: self.shared.clone() }
    }

    /// Waits until this replica is broken, and says why. The process should then end: what is on the disk is the truth.
    pub async fn failed(&self) -> String {
        self.shared.broken.wait().await
    }

    /// Stops in order: hands leadership over, refuses new calls, ends the polls with `Draining`, waits for what is on its way, flushes, and
    /// ends every task.
    pub async fn shutdown(mut self) -> Result<(), ShutdownError> {
        let tasks = std::mem::take(&mut self.tasks);
        let watcher = self.watcher.take();
        let shared = &self.shared;
        if let Ok(node) = shared.peering.node() {
            node.step_aside().await;
        }
        shared.draining.store(true, Ordering::SeqCst);
        shared.waiters.close(&Unavailable::Draining);
        shared.forwards.drain();
        self.drained().await;
        self.stop.send_replace(true);
        for task in tasks {
            if let Err(error) = task.await {
                shared.broken.report(format!("a task has panicked: {error}"));
            }
        }
        let flushed = if shared.broken.reason().is_none() {
            let state = shared.state.clone();
            shared.config.work.run(move || state.flush()).await.map_err(|e| ShutdownError::Flush(e.to_string()))
        } else {
            Ok(())
        };
        shared.consensus.stop().await;
        if let Some(watcher) = watcher {
            // It ends with openraft.
            let _ = watcher.await;
        }
        match shared.broken.reason() {
            Some(reason) => Err(ShutdownError::Broken(reason)),
            None => flushed,
        }
    }

    /// Waits until nothing is on its way, for so long as a stop may.
    async fn drained(&self) {
        let shared = &self.shared;
        let deadline = shared.config.clock.now() + Duration::from_millis(shared.config.drain_ms);
        let busy = || {
            let proposing = shared.leads() && !(shared.queue.is_empty() && shared.progress.in_flight() == 0);
            proposing || shared.forwards.calls() > 0
        };
        while busy() && shared.broken.reason().is_none() && shared.config.clock.now() < deadline {
            sleep(Duration::from_millis(2)).await;
        }
    }
}

/// A node's place among its peers, and whose its disk is.
fn place(config: &NodeConfig) -> Result<(Peering, Identity), StartError> {
    let identity =
        Identity { cluster: ClusterId(config.cluster_id), node: config.node_id, incarnation: 1, was_member: false };
    let peering = match &config.peering {
        Some(peering) => peering.clone(),
        None => {
            let mut home = MemHome::default();
            home.set_identity(identity).map_err(SettleError::from)?;
            let alone = PeeringConfig {
                clock: config.clock.clone(),
                random: config.random.clone(),
                work: config.work,
                ..PeeringConfig::alone()
            };
            Peering::new(alone, Box::new(home))?
        }
    };
    let identity = peering.identity().unwrap_or(identity);
    Ok((peering, identity))
}

/// Refuses a disk that has lost its log, or that is another member's.
fn check_disk(identity: &Identity, me: &Member, group: &Members, initialized: bool) -> Result<(), StartError> {
    if identity.was_member && !initialized {
        return Err(StartError::Disk(format!(
            "expected the log of {identity}, but it is empty: the disk has lost it. Empty the data directory, and the node \
             joins anew by itself under a new id"
        )));
    }
    match group.nodes.get(&identity.node) {
        // One without a name was a cluster of its own: it gets a name when it leads.
        Some(known) if !known.name.is_empty() && known.name != me.name => Err(StartError::Disk(format!(
            "expected the disk of {:?}, but it is the one of {:?} (node {}): mount each disk where it belongs, or start \
             the node under its name",
            me.name, known.name, identity.node
        ))),
        Some(_) | None => Ok(()),
    }
}

pub(crate) fn jobs(
    shared: &Arc<Shared>,
    tell: watch::Sender<Option<crate::lead::Lead>>,
    stop: &watch::Receiver<bool>,
) -> Vec<BoxFuture<'static, ()>> {
    let peers = shared.peers.clone();
    let ahead: Ahead = Arc::new(move || peers.wall_ahead_ms());
    let leading = Leading {
        consensus: shared.consensus.clone(),
        state: shared.state.clone(),
        signals: shared.signals.clone(),
        queue: shared.queue.clone(),
        broken: shared.broken.clone(),
        clock: shared.config.clock.clone(),
        random: shared.config.random.clone(),
        ahead,
        standing: shared.standing.clone(),
        tell,
    };
    let proposer = Proposer {
        queue: shared.queue.clone(),
        consensus: shared.consensus.clone(),
        lead: shared.lead.clone(),
        standing: shared.standing.clone(),
        waiters: shared.waiters.clone(),
        releases: shared.releases.clone(),
        progress: shared.progress.clone(),
        clock: shared.config.clock.clone(),
    };
    vec![
        Box::pin(leading.run(stop.clone())),
        Box::pin(proposer.run(stop.clone())),
        Box::pin(shared.waiters.clone().run(stop.clone())),
        Box::pin(scheduler::run(shared.clone(), stop.clone())),
        Box::pin(keeper::run(shared.clone(), stop.clone())),
        Box::pin(retention::run(shared.clone(), stop.clone())),
        Box::pin(release::run(shared.clone(), stop.clone())),
        Box::pin(client::run(shared.clone(), stop.clone())),
    ]
}
