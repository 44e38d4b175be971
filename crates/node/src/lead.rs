//! This node's leadership: what a new leader does before it serves.
//!
//! It waits until it has applied all earlier entries, takes the cluster's time from there, and proposes at once the
//! secret, where there is none, and a tick. Only then do callers' requests follow.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ticketrail_core::Command;
use ticketrail_core::command::{InitCluster, Tick};
use ticketrail_storage::log::LeaderId;
use tokio::sync::watch;
use tokio::time::sleep;

use crate::broken::Broken;
use crate::clock::{Ahead, Clock, ClusterClock};
use crate::consensus::{AppliedState, Consensus, ReadRefused, Standing};
use crate::queue::{Pending, Queue};
use crate::random::Random;
use crate::signals::Signals;

/// How long it waits where a leader is not confirmed yet.
const AGAIN: Duration = Duration::from_millis(10);

/// A term in which this node leads and has applied all earlier entries.
#[derive(Debug, Clone)]
pub(crate) struct Lead {
    pub(crate) leader: LeaderId,
    /// Cluster time.
    pub(crate) clock: Arc<ClusterClock>,
}

/// The task that turns elections into leads.
pub(crate) struct Leading {
    pub(crate) consensus: Arc<dyn Consensus>,
    pub(crate) state: Arc<dyn AppliedState>,
    pub(crate) signals: Arc<Signals>,
    pub(crate) queue: Arc<Queue>,
    pub(crate) broken: Arc<Broken>,
    pub(crate) clock: Clock,
    pub(crate) random: Random,
    pub(crate) ahead: Ahead,
    pub(crate) standing: watch::Receiver<Standing>,
    pub(crate) tell: watch::Sender<Option<Lead>>,
}

impl Leading {
    pub(crate) async fn run(mut self, mut stop: watch::Receiver<bool>) {
        tokio::select! {
            () = self.follow() => {}
            // The sender lives as long as the node.
            _ = stop.wait_for(|stop| *stop) => {}
        }
        self.tell.send_replace(None);
        self.signals.end();
    }

    async fn follow(&mut self) {
        loop {
            let leading = self.standing.borrow_and_update().leading;
            let led = self.tell.borrow().as_ref().map(|lead| lead.leader);
            if leading != led {
                self.tell.send_replace(None);
                self.signals.end();
                if let Some(leader) = leading {
                    self.begin(leader).await;
                }
            }
            if self.standing.changed().await.is_err() {
                return;
            }
        }
    }

    async fn begin(&self, leader: LeaderId) {
        let elected = self.clock.now();
        self.signals.begin();
        loop {
            match self.consensus.read_index().await {
                Ok(()) => break,
                Err(ReadRefused::Stopped) => return,
                Err(ReadRefused::NotLeader { .. } | ReadRefused::NoQuorum) => {
                    if self.standing.borrow().leading != Some(leader) {
                        return;
                    }
                    sleep(AGAIN).await;
                }
            }
        }
        let stored = match self.state.clock() {
            Ok(stored) => stored,
            Err(fault) => return self.broken.report(fault.to_string()),
        };
        let mut first = Vec::new();
        if !stored.initialized {
            match self.random.bytes::<32>() {
                Ok(secret) => {
                    first.push(Command::InitCluster(InitCluster { secret: Bytes::copy_from_slice(&secret) }));
                }
                Err(error) => return self.broken.report(error.to_string()),
            }
        }
        first.push(Command::Tick(Tick {}));
        self.queue.push_front(vec![first.into_iter().map(|command| Pending::own(command).0).collect()]);
        let clock = Arc::new(ClusterClock::start(self.clock.clone(), self.ahead.clone(), stored.cluster));
        tracing::info!(
            term = leader.term,
            index = stored.index,
            cluster_ms = stored.cluster.0,
            took_us = self.clock.now().saturating_duration_since(elected).as_micros(),
            "leads"
        );
        self.tell.send_replace(Some(Lead { leader, clock }));
    }
}
