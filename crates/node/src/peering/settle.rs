//! Gives an empty disk its identity.
//!
//! Only the first of the named peers may found. It asks all the others, and each empty one answers with a promise that is
//! on its disk: cluster and id. A peer with another identity vetoes. With promises of a majority, its own included, it
//! founds; a repeat after a crash uses the same ids. All others, and a founder that was vetoed, ask to be let in.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::join_all;
use ticketrail_proto::raft as pb;
use ticketrail_storage::{ClusterId, Identity, OpenError};
use tokio::time::timeout;

use super::{Peering, cluster_from, from_wire};
use crate::consensus::Role;
use crate::error::StartError;
use crate::member::Member;
use crate::peers::PROTOCOL;
use crate::random::RandomError;

/// The pause between two rounds of asking.
const AGAIN: Duration = Duration::from_millis(200);
/// A wait is told so often.
const TELL_EVERY: u32 = 50;

/// Why a node does not come to a cluster.
#[derive(Debug, thiserror::Error)]
pub enum SettleError {
    /// What is kept beside the stores cannot be read or written.
    #[error(transparent)]
    Home(#[from] OpenError),
    /// There are no random bytes.
    #[error(transparent)]
    Random(#[from] RandomError),
}

/// What a round of asking came to.
enum Round {
    /// The disk has an identity.
    Settled,
    /// Not yet, and why.
    NotYet(String),
}

/// What the named peers say to a founder.
pub(super) struct Promises {
    /// Who belongs to the cluster, the founder included.
    pub(super) granted: BTreeMap<u64, Member>,
    /// Why one must not be founded.
    pub(super) veto: Option<String>,
    /// Who did not answer, and why.
    pub(super) silent: Vec<String>,
}

impl Peering {
    /// Waits until the disk has an identity, and notes a new start of it. To be called once, before the stores are
    /// opened, while [`Peering::routes`] are served.
    ///
    /// Errors where it cannot be kept.
    pub async fn settle(&self) -> Result<Identity, SettleError> {
        let mut may_found = self.config().is_founder();
        let mut rounds = 0u32;
        loop {
            if let Some(identity) = self.identity() {
                return self.start_again(identity).await;
            }
            let settled = self.0.settled.notified();
            let round = if self.config().peers.is_empty() {
                self.found_alone().await?
            } else if may_found {
                self.try_found(&mut may_found).await?
            } else {
                self.try_join().await?
            };
            match round {
                Round::Settled => {}
                Round::NotYet(why) => {
                    if rounds.is_multiple_of(TELL_EVERY) {
                        tracing::info!(name = self.member().name, why, "waits for a cluster");
                    }
                    rounds += 1;
                    // A promise or an invitation may come meanwhile.
                    let _ = timeout(AGAIN, settled).await;
                }
            }
        }
    }

    async fn start_again(&self, identity: Identity) -> Result<Identity, SettleError> {
        let identity = Identity { incarnation: identity.incarnation + 1, ..identity };
        self.keep(move |home| {
            home.set_identity(identity)?;
            home.set_founding(None)
        })
        .await?;
        Ok(identity)
    }

    async fn found_alone(&self) -> Result<Round, SettleError> {
        let identity =
            Identity { cluster: ClusterId(self.config().random.bytes()?), node: 1, incarnation: 0, was_member: false };
        self.keep(move |home| home.set_identity(identity)).await?;
        tracing::info!(%identity, "founded a cluster of one node");
        Ok(Round::Settled)
    }

    async fn try_found(&self, may_found: &mut bool) -> Result<Round, SettleError> {
        let drawn = ClusterId(self.config().random.bytes()?);
        let cluster = self
            .keep(move |home| {
                let cluster = home.founding()?.unwrap_or(drawn);
                home.set_founding(Some(cluster))?;
                Ok(cluster)
            })
            .await?;
        let promises = self.ask_promises(cluster).await;
        if let Some(veto) = promises.veto {
            tracing::info!(veto, "does not found a cluster, and asks to be let in");
            *may_found = false;
            self.keep(|home| home.set_founding(None)).await?;
            return Ok(Round::NotYet(veto));
        }
        if promises.granted.len() <= self.config().peers.len() / 2 {
            return Ok(Round::NotYet(format!(
                "expected promises of a majority of {} named peers, but there are {}: {}",
                self.config().peers.len(),
                promises.granted.len(),
                promises.silent.join("; ")
            )));
        }
        let identity = Identity { cluster, node: self.founding_id(), incarnation: 0, was_member: false };
        self.keep(move |home| home.set_identity(identity)).await?;
        tracing::info!(%identity, voters = promises.granted.len(), "founds a cluster");
        Ok(Round::Settled)
    }

    fn founding_id(&self) -> u64 {
        let place = self.config().peers.iter().position(|(name, _)| *name == self.member().name);
        place.map_or(1, |place| place as u64 + 1)
    }

    /// Asks the named peers to belong to `cluster`.
    pub(super) async fn ask_promises(&self, cluster: ClusterId) -> Promises {
        let named = self.config().peers.iter().enumerate().filter(|(_, (name, _))| *name != self.member().name);
        let asked = named.map(|(place, (name, address))| async move {
            let request = pb::PromiseRequest {
                protocol: PROTOCOL,
                cluster: cluster.0.to_vec().into(),
                node: place as u64 + 1,
                name: name.clone(),
                founder: self.member().name.clone(),
            };
            let answer = self.ask(address, async move |mut client| client.promise(request).await).await;
            (place as u64 + 1, answer)
        });
        let granted = BTreeMap::from([(self.founding_id(), self.member().clone())]);
        let mut promises = Promises { granted, veto: None, silent: Vec::new() };
        for (node, answer) in join_all(asked).await {
            match answer {
                Ok(answer) if answer.granted.is_some() => match from_wire(answer.granted) {
                    Ok(member) => {
                        promises.granted.insert(node, member);
                    }
                    Err(status) => promises.silent.push(status.message().to_owned()),
                },
                Ok(answer) => promises.veto = Some(answer.veto),
                Err(why) => promises.silent.push(why),
            }
        }
        promises
    }

    async fn try_join(&self) -> Result<Round, SettleError> {
        let mut reasons = Vec::new();
        let others: Vec<String> = self.config().others().map(|(_, address)| address.clone()).collect();
        for address in &others {
            let member = Some(self.wire_member());
            let request = pb::JoinRequest { protocol: PROTOCOL, member, passed_on: false };
            match self.ask(address, async move |mut client| client.join(request).await).await {
                Ok(pb::JoinResponse { cluster, node, reason }) => match cluster_from(&cluster) {
                    Some(cluster) if node != 0 => {
                        let identity = Identity { cluster, node, incarnation: 0, was_member: false };
                        if self.give(identity).await? {
                            tracing::info!(%identity, "joins a cluster");
                        }
                        return Ok(Round::Settled);
                    }
                    Some(_) | None => reasons.push(format!("{address}: {reason}")),
                },
                Err(why) => reasons.push(why),
            }
        }
        Ok(Round::NotYet(reasons.join("; ")))
    }

    /// Gives the disk an identity, unless it has got one meanwhile. Says whether it did.
    pub(super) async fn give(&self, identity: Identity) -> Result<bool, OpenError> {
        let given = self
            .keep(move |home| match home.identity() {
                Some(_) => Ok(false),
                None => home.set_identity(identity).map(|()| true),
            })
            .await?;
        self.0.settled.notify_waiters();
        Ok(given)
    }

    /// Begins the life of a node that has just started: founds what is to be founded, and lets a node without others
    /// go ahead at once.
    pub(crate) async fn begin(&self, initialized: bool) -> Result<(), StartError> {
        let Ok(node) = self.node() else { return Ok(()) };
        let members = node.members.borrow().clone();
        // Where others are named they are asked first: this disk may be in the wrong place.
        let named_alone = self.config().others().next().is_none();
        let alone = named_alone
            && if initialized {
                members.nodes.len() == 1 && self.identity().is_some_and(|mine| members.is_voter(mine.node))
            } else {
                self.config().is_founder()
            };
        if alone {
            // A voter without peers has nobody to wait for.
            node.cleared.send_replace(true);
            node.membership.allow_elections(true);
        }
        match (initialized, alone, self.identity()) {
            (true, true, _) => node.membership.campaign().await,
            (false, true, Some(mine)) => {
                node.membership.found(BTreeMap::from([(mine.node, self.member().clone())])).await?;
            }
            (false, false, Some(mine)) if self.config().is_founder() && mine.node == self.founding_id() => {
                let (peering, cluster) = (self.clone(), mine.cluster);
                tokio::spawn(async move { peering.found_with_others(cluster).await });
            }
            (false, _, _) | (true, false, _) => {}
        }
        Ok(())
    }

    /// Founds once a majority has promised; again after a crash in between.
    async fn found_with_others(&self, cluster: ClusterId) {
        let Ok(node) = self.node() else { return };
        let mut standing = node.standing.clone();
        loop {
            let promises = self.ask_promises(cluster).await;
            if let Some(veto) = promises.veto {
                return node.broken.report(format!(
                    "expected all named peers to belong to cluster {cluster}, which this node founds, but {veto}; empty \
                     the data directory of this node, which holds nothing yet, and it joins the others"
                ));
            }
            if promises.granted.len() > self.config().peers.len() / 2 {
                match node.membership.found(promises.granted).await {
                    Ok(()) => return,
                    Err(error) => return node.broken.report(error.to_string()),
                }
            }
            // Ends where the node stops.
            if timeout(AGAIN, standing.wait_for(|standing| standing.role == Role::Stopped)).await.is_ok() {
                return;
            }
        }
    }
}
