//! How callers reach a node.

use std::sync::Arc;

use ticketrail_core::{Answer, Query};

use crate::call::{Call, CallError, Deliveries, Done, Freshness, Origin, ReceiveCall};
use crate::member::ClusterView;
use crate::peering::{ChangeError, MemberChange};
use crate::shared::Shared;
use crate::status::NodeStatus;

/// A node, for its callers: the leader or any other, which hands their calls to the leader. Clones are cheap; a handle
/// that outlives its node is refused everything.
#[derive(Clone)]
pub struct Handle {
    pub(crate) shared: Arc<Shared>,
}

/// The node that leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leader {
    /// Its Raft id.
    pub node: u64,
    /// Where clients reach it, as `HOST:PORT`; empty: not told.
    pub client_address: String,
}

impl Handle {
    /// Puts a command through the log and waits for its outcome. Where the future is dropped, it may happen or not.
    pub async fn call(&self, call: Call) -> Result<Done, CallError> {
        self.shared.call(call).await
    }

    /// Waits for messages of one queue. Dropping the future means that the receiver has gone: what was leased for it
    /// and not handed out is released, and nothing is counted.
    pub async fn receive(&self, call: ReceiveCall) -> Result<Deliveries, CallError> {
        self.shared.receive(call).await
    }

    /// Answers a question.
    pub async fn query(&self, query: Query, freshness: Freshness) -> Result<(Answer, Origin), CallError> {
        self.shared.query(query, freshness).await
    }

    /// The cluster, as this node sees it.
    pub fn cluster(&self) -> ClusterView {
        self.shared.cluster()
    }

    /// Changes the membership, at the leader. Returns the id of the member that was added or changed, or that leads now.
    pub async fn change_members(&self, change: MemberChange) -> Result<u64, ChangeError> {
        self.shared.peering.change(change).await
    }

    /// What the node tells of itself.
    pub fn status(&self) -> NodeStatus {
        self.shared.status()
    }

    /// Who leads, where known.
    pub fn leader(&self) -> Option<Leader> {
        let node = self.shared.standing.borrow().leader?;
        let members = self.shared.peers.members();
        let client_address = members.nodes.get(&node).map(|member| member.client_address.clone()).unwrap_or_default();
        Some(Leader { node, client_address })
    }

    /// Who leads, where it is known and another node.
    pub fn other_leader(&self) -> Option<Leader> {
        self.leader().filter(|leader| leader.node != self.shared.config.node_id)
    }

    /// Waits until the node can serve clients: it leads and has applied what came before, or it follows a known leader.
    /// Ends early where it is broken: the status says so.
    pub async fn serving(&self) {
        let (mut lead, mut standing) = (self.shared.lead.clone(), self.shared.standing.clone());
        while !self.shared.serves() && self.shared.broken.reason().is_none() {
            tokio::select! {
                // They fail only where the node has stopped.
                changed = lead.changed() => if changed.is_err() { return },
                changed = standing.changed() => if changed.is_err() { return },
                _ = self.shared.broken.wait() => {}
            }
        }
    }
}
