//! Says hello: at each start, before this node promises anything, and from time to time afterwards.
//!
//! A node is cleared once a majority of the members, itself included, know its disk and none speaks against it. That
//! costs no availability, since without a majority nothing can be done anyway; and it finds out disks that were swapped,
//! copied or rolled back before they can do harm.
//!
//! A node that was away while others were replaced knows members that are no more. The membership that counts is the
//! newest one that it has, or that a member tells of.
//!
//! A node of another cluster may itself be the one in the wrong place: what it says counts only where half of the named
//! peers say so, and not for a cleared node that has others of its own. One foreign disk must not end the nodes around it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use ticketrail_proto::raft as pb;
use ticketrail_storage::{Identity, OpenError};
use tokio::sync::watch;
use tokio::time::sleep;

use super::{NodeSide, Peering, membership_from_wire};
use crate::member::Members;
use crate::peers::PROTOCOL;

/// How long a round waits for a peer: one that does not answer must not hold up a start.
const ROUND: Duration = Duration::from_millis(500);
/// The pause between two rounds before it is cleared.
const SOON: Duration = Duration::from_millis(50);
/// While the others do not know it as it is.
const OFTEN: Duration = Duration::from_millis(500);
/// Otherwise.
const SELDOM: Duration = Duration::from_secs(5);

/// Where this node stands with the others.
pub(crate) struct Greeter {
    pub(crate) peering: Peering,
    /// The last entry of its log.
    pub(crate) last_log: Arc<dyn Fn() -> Option<pb::LogId> + Send + Sync>,
    pub(crate) identity: Identity,
}

impl Greeter {
    /// Runs until the node stops.
    pub(crate) async fn run(self, mut stop: watch::Receiver<bool>) {
        tokio::select! {
            () = self.greet() => {}
            // The sender lives as long as the node.
            _ = stop.wait_for(|stop| *stop) => {}
        }
    }

    async fn greet(&self) {
        let Ok(node) = self.peering.node() else { return };
        let mut was_member = self.identity.was_member;
        let mut leaders = BTreeSet::new();
        let mut told = Members::default();
        loop {
            let members = node.members.borrow().clone();
            let mine = self.identity.node;
            if !was_member && members.nodes.contains_key(&mine) && node.membership.membership_is_committed() {
                if let Err(error) = self.remember_membership().await {
                    return node.broken.report(error.to_string());
                }
                was_member = true;
            }
            let cleared = *node.cleared.borrow();
            let answers = self.say_hello([&members, &told], &leaders, was_member, cleared).await;
            if let Some(refusal) = answers.refusal {
                return node.broken.report(refusal);
            }
            leaders = answers.leaders.clone();
            if let Some(newer) = answers.members.clone().filter(|newer| newer.at > told.at) {
                told = newer;
            }
            if (!cleared || answers.friends.is_empty())
                && let Some(refusal) = answers.strangers.first()
                && answers.strangers.len() * 2 >= self.peering.config().peers.len()
            {
                return node.broken.report(refusal.clone());
            }
            // Without a log of its own, whoever let it in is enough.
            let newest = if members.at.is_some() && told.at > members.at { &told } else { &*members };
            if !cleared && self.is_enough(newest, &answers) {
                tracing::info!(node = mine, friends = ?answers.friends, "the others know this disk");
                node.cleared.send_replace(true);
                node.membership.allow_elections(true);
            }
            let settled = members.nodes.get(&mine) == Some(self.peering.member())
                && (members.is_voter(mine) || !self.peering.config().wants_vote);
            // What is not noted yet is noted soon: one that is removed before would come back as a newcomer.
            let pause = match (cleared, settled && was_member) {
                (false, _) => SOON,
                (true, false) => OFTEN,
                (true, true) => SELDOM,
            };
            sleep(pause).await;
        }
    }

    async fn remember_membership(&self) -> Result<(), OpenError> {
        self.peering
            .keep(|home| match home.identity() {
                Some(identity) => home.set_identity(Identity { was_member: true, ..identity }),
                None => Ok(()),
            })
            .await
    }

    fn is_enough(&self, members: &Members, answers: &Answers) -> bool {
        let friends = &answers.friends;
        if friends.is_empty() && !answers.strangers.is_empty() {
            // A voter without others would go ahead, in the middle of another cluster.
            return false;
        }
        let knows = |node: &&u64| **node == self.identity.node || friends.contains(node);
        if members.voters.is_empty() {
            // It has no log yet: whoever let it in, or founds with it, is enough.
            return !friends.is_empty() || self.peering.config().others().next().is_none();
        }
        members.voters.iter().all(|set| set.iter().filter(knows).count() > set.len() / 2)
    }

    async fn say_hello(
        &self,
        members: [&Members; 2],
        leaders: &BTreeSet<String>,
        was_member: bool,
        cleared: bool,
    ) -> Answers {
        // The newest addresses come from the log, and from others. The named peers are asked all the same: the log may be
        // another cluster's. So is whoever leads: a newcomer's list and log may both lack it, and it alone lets newcomers
        // in.
        let named = self.peering.config().others().map(|(_, address)| address.as_str());
        let known = members.into_iter().flat_map(|members| &members.nodes);
        let known = known.filter(|(node, _)| **node != self.identity.node);
        let mut addresses: BTreeSet<&str> = named
            .chain(known.map(|(_, member)| member.peer_address.as_str()))
            .chain(leaders.iter().map(String::as_str))
            .collect();
        addresses.remove(self.peering.member().peer_address.as_str());
        let asked = addresses.into_iter().map(|address| {
            let request = pb::HelloRequest {
                protocol: PROTOCOL,
                identity: self.peering.wire_identity(),
                member: Some(self.peering.wire_member()),
                last_log: (self.last_log)(),
                was_member,
                wants_vote: self.peering.config().wants_vote,
                cleared,
            };
            self.peering.ask_for(ROUND, address, async move |mut client| client.hello(request).await)
        });
        let mut answers = Answers::default();
        for answer in join_all(asked).await.into_iter().flatten() {
            let theirs = answer.identity.unwrap_or_default();
            let same_cluster = theirs.cluster == self.identity.cluster.0.as_slice();
            if !answer.refusal.is_empty() {
                if same_cluster {
                    answers.refusal = Some(answer.refusal);
                } else {
                    answers.strangers.push(answer.refusal);
                }
            } else if same_cluster && theirs.node != self.identity.node {
                answers.friends.insert(theirs.node);
                answers.leaders.extend(Some(answer.leader_address).filter(|address| !address.is_empty()));
                let ours =
                    |told: &Members| [theirs.node, self.identity.node].iter().all(|id| told.nodes.contains_key(id));
                let told = answer.membership.and_then(membership_from_wire).filter(ours);
                answers.members = answers.members.take().into_iter().chain(told).max_by_key(|members| members.at);
            }
        }
        answers
    }
}

/// What the others say.
#[derive(Default)]
struct Answers {
    /// Members of the same cluster that know this disk.
    friends: BTreeSet<u64>,
    /// Where they say that the leader is.
    leaders: BTreeSet<String>,
    /// The newest membership that a member tells of.
    members: Option<Members>,
    /// What one of this cluster has against this disk.
    refusal: Option<String>,
    /// What those of other clusters have against it.
    strangers: Vec<String>,
}

impl NodeSide {
    /// The leader, where another node leads.
    pub(super) fn other_leader(&self) -> Option<(u64, String)> {
        let leader = self.standing.borrow().leader?;
        let members = self.members.borrow().clone();
        let member = members.nodes.get(&leader)?;
        Some((leader, member.peer_address.clone()))
    }

    /// Whether this node leads.
    pub(super) fn leads(&self) -> bool {
        self.standing.borrow().leading.is_some()
    }
}
