//! What all of a node's handles and tasks share.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ticketrail_core::Fault;
use tokio::sync::watch;

use crate::attempt::Place;
use crate::broken::Broken;
use crate::call::{CallError, Origin, Unavailable};
use crate::clock::Instant;
use crate::config::NodeConfig;
use crate::consensus::{AppliedState, Consensus, Standing};
use crate::disk::Disk;
use crate::flight::Flight;
use crate::forward::client::Forwards;
use crate::forward::server::Served;
use crate::lead::Lead;
use crate::peering::Peering;
use crate::peers::Peers;
use crate::precheck::Precheck;
use crate::proposer::Progress;
use crate::queue::Queue;
use crate::raft::Snapshots;
use crate::release::Releases;
use crate::scheduler::Passes;
use crate::sessions::Sessions;
use crate::signals::Signals;
use crate::waiters::Waiters;

/// What all of a node's handles and tasks share.
pub(crate) struct Shared {
    pub(crate) config: NodeConfig,
    pub(crate) started: Instant,
    pub(crate) consensus: Arc<dyn Consensus>,
    pub(crate) state: Arc<dyn AppliedState>,
    pub(crate) disk: Disk,
    pub(crate) broken: Arc<Broken>,
    pub(crate) signals: Arc<Signals>,
    pub(crate) queue: Arc<Queue>,
    pub(crate) flight: Arc<Flight>,
    /// Sessions for calls without a request id.
    pub(crate) sessions: Arc<Sessions>,
    /// Sessions for polls that wait at another node, each under a number: among calls they would hold back what is seen.
    pub(crate) poll_sessions: Arc<Sessions>,
    pub(crate) waiters: Arc<Waiters>,
    pub(crate) releases: Arc<Releases>,
    pub(crate) peers: Arc<Peers>,
    pub(crate) forwards: Arc<Forwards>,
    pub(crate) served: Served,
    pub(crate) precheck: Precheck,
    pub(crate) progress: Arc<Progress>,
    pub(crate) passes: Passes,
    pub(crate) peering: Peering,
    pub(crate) snapshots: Snapshots,
    pub(crate) standing: watch::Receiver<Standing>,
    pub(crate) lead: watch::Receiver<Option<Lead>>,
    /// Whether it is cut off from those that it needs.
    pub(crate) cut_off: watch::Receiver<bool>,
    pub(crate) draining: AtomicBool,
}

impl Shared {
    /// Refuses what could not be served: nothing has happened.
    pub(crate) fn admit(&self) -> Result<(), CallError> {
        if let Some(reason) = self.broken.reason() {
            return Err(CallError::Broken(reason));
        }
        if self.draining.load(Ordering::SeqCst) {
            return Err(CallError::Unavailable(Unavailable::Draining));
        }
        Ok(())
    }

    /// Whether clients can be served here: this node leads and has applied what came before, or follows a known leader; and
    /// it is not cut off.
    pub(crate) fn serves(&self) -> bool {
        let reachable = self.leads() || matches!(self.place(), Place::At(_));
        reachable && !self.is_cut_off() && self.broken.reason().is_none() && !self.draining.load(Ordering::SeqCst)
    }

    /// Whether enqueues are refused for want of room: this node's disk is past its mark, or the voters whose disks are not
    /// are no quorum.
    pub(crate) fn has_no_room(&self) -> bool {
        let members = self.peers.members();
        let roomy = |set: &BTreeSet<u64>| set.iter().filter(|node| !self.peers.disk_low(**node)).count();
        self.disk.is_low() || members.voters.iter().any(|set| roomy(set) <= set.len() / 2)
    }

    /// Whether this node leads and has applied what came before.
    pub(crate) fn leads(&self) -> bool {
        self.lead.borrow().is_some()
    }

    /// Where an answer read here comes from.
    pub(crate) fn origin(&self) -> Origin {
        Origin { node: self.config.node_id, term: self.standing.borrow().term }
    }

    /// Where an outcome of `term` comes from.
    pub(crate) fn origin_of(&self, term: u64) -> Origin {
        Origin { node: self.config.node_id, term }
    }

    /// Reports that this replica is broken.
    pub(crate) fn fault(&self, fault: &Fault) -> CallError {
        let reason = fault.to_string();
        self.broken.report(reason.clone());
        CallError::Broken(reason)
    }

    /// What a lost outcome means.
    pub(crate) fn unknown(&self) -> CallError {
        self.broken.reason().map_or(CallError::Unknown, CallError::Broken)
    }
}
