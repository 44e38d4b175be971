//! What an operator asks of the membership.

use std::collections::BTreeSet;
use std::time::Duration;

use ticketrail_proto::raft as pb;
use ticketrail_proto::raft::change_request::What;
use tokio::time::{timeout, timeout_at};

use super::steward::{self, CAUGHT_UP};
use super::{NodeSide, Peering, from_wire};
use crate::consensus::{Change, NotChanged};
use crate::peers::PROTOCOL;

/// How often leadership is offered.
const AGAIN: Duration = Duration::from_millis(400);
/// How long a change of leader may take, and a newcomer's answer.
const WAIT: Duration = Duration::from_secs(5);

/// A change of the membership, as an operator asks for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemberChange {
    /// Invites the empty node at this peer address, `HOST:PORT`.
    Add(String),
    /// Gives a member a vote.
    Promote(u64),
    /// Removes a member.
    Remove(u64),
    /// Has a member lead; `None`: whoever is best.
    TransferLeader(Option<u64>),
}

/// Why the membership was not changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    /// Nobody leads. Nothing happened.
    #[error("expected a leader, but {0}")]
    NoLeader(String),
    /// There is no such member. Nothing happened.
    #[error("expected a member, but there is no node {0}")]
    NotFound(u64),
    /// It would do harm, or cannot be done as things are. Nothing happened.
    #[error("{0}")]
    Precondition(String),
    /// It may have been done, or may yet be: look at the members.
    #[error("expected an outcome, but {0}; look at the members")]
    Unknown(String),
}

impl Peering {
    /// Changes the membership, at the leader. Returns the id of the member that was added, changed, or leads now.
    pub(crate) async fn change(&self, change: MemberChange) -> Result<u64, ChangeError> {
        let cluster = self.identity().map(|identity| identity.cluster.0.to_vec()).unwrap_or_default();
        let what = match change {
            MemberChange::Add(address) => What::Add(address),
            MemberChange::Promote(node) => What::Promote(node),
            MemberChange::Remove(node) => What::Remove(node),
            MemberChange::TransferLeader(node) => What::TransferLeader(node.unwrap_or(0)),
        };
        let request =
            pb::ChangeRequest { protocol: PROTOCOL, cluster: cluster.into(), passed_on: false, what: Some(what) };
        let pb::ChangeResponse { node, refusal, reason } = self.change_at_leader(request).await;
        match pb::ChangeRefusal::try_from(refusal) {
            Ok(pb::ChangeRefusal::Unspecified) => Ok(node),
            Ok(pb::ChangeRefusal::NoLeader) => Err(ChangeError::NoLeader(reason)),
            Ok(pb::ChangeRefusal::NotFound) => Err(ChangeError::NotFound(node)),
            Ok(pb::ChangeRefusal::Precondition) => Err(ChangeError::Precondition(reason)),
            Ok(pb::ChangeRefusal::Unknown) | Err(_) => Err(ChangeError::Unknown(reason)),
        }
    }

    /// Has the leader do it; waits for one for as long as a change of leader takes.
    async fn change_at_leader(&self, request: pb::ChangeRequest) -> pb::ChangeResponse {
        let deadline = self.config().clock.now() + WAIT;
        loop {
            let response = self.change_on_wire(request.clone()).await;
            let nobody = response.refusal == i32::from(pb::ChangeRefusal::NoLeader);
            // Without a leader nothing has happened, and it can be asked for again.
            let Ok(node) = self.node() else { return response };
            if !nobody || self.config().clock.now() >= deadline {
                return response;
            }
            let mut standing = node.standing.clone();
            standing.borrow_and_update();
            match timeout(AGAIN / 4, standing.changed()).await {
                // Whether or not something has changed here: another node may see more.
                Ok(Ok(())) | Err(_) => {}
                // Raft has stopped.
                Ok(Err(_)) => return response,
            }
        }
    }

    pub(super) async fn change_on_wire(&self, asked: pb::ChangeRequest) -> pb::ChangeResponse {
        let result = match self.node() {
            Err(_) => Err(ChangeError::NoLeader("this node is starting".into())),
            Ok(node) if node.leads() => self.change_here(node, asked.what).await,
            Ok(node) => match node.other_leader() {
                Some((_, address)) if !asked.passed_on => {
                    let request = pb::ChangeRequest { passed_on: true, ..asked };
                    return match self.pass_on(&address, request).await {
                        Ok(answer) => answer,
                        Err(error) => refused(error),
                    };
                }
                Some(_) | None => Err(ChangeError::NoLeader("none is known".into())),
            },
        };
        match result {
            Ok(node) => pb::ChangeResponse { node, refusal: 0, reason: String::new() },
            Err(error) => refused(error),
        }
    }

    async fn pass_on(&self, address: &str, request: pb::ChangeRequest) -> Result<pb::ChangeResponse, ChangeError> {
        let mut client = self.client(address).map_err(ChangeError::NoLeader)?;
        match timeout(4 * WAIT, client.change(request)).await {
            Ok(Ok(answer)) => Ok(answer.into_inner()),
            Ok(Err(status)) => Err(ChangeError::Unknown(format!("the leader said: {}", status.message()))),
            Err(_) => Err(ChangeError::Unknown("the leader has not answered in time".into())),
        }
    }

    async fn change_here(&self, node: &NodeSide, what: Option<What>) -> Result<u64, ChangeError> {
        match what {
            Some(What::Add(address)) => self.add(node, &address).await,
            Some(What::Promote(id)) => promote(node, id).await,
            Some(What::Remove(id)) => self.remove(node, id).await,
            Some(What::TransferLeader(id)) => self.transfer(node, (id != 0).then_some(id)).await,
            None => {
                Err(ChangeError::Precondition("expected a change, but there is none that this version knows".into()))
            }
        }
    }

    async fn add(&self, node: &NodeSide, address: &str) -> Result<u64, ChangeError> {
        let members = node.members.borrow().clone();
        if let Some((id, _)) = members.nodes.iter().find(|(_, member)| member.peer_address == address) {
            return Ok(*id);
        }
        let (cluster, id) = self.admit(node).await.map_err(ChangeError::NoLeader)?;
        let request = pb::InviteRequest { protocol: PROTOCOL, cluster: cluster.0.to_vec().into(), node: id };
        let answer = self.ask(address, async move |mut client| client.invite(request).await).await;
        let answer = answer.map_err(|why| {
            ChangeError::Precondition(format!("expected an empty node that waits at {address}, but {why}"))
        })?;
        let member = from_wire(answer.accepted).map_err(|_| {
            ChangeError::Precondition(format!("expected an empty node at {address}, but {}", answer.reason))
        })?;
        make(node, Change::Set(id, member)).await?;
        Ok(id)
    }

    async fn remove(&self, node: &NodeSide, id: u64) -> Result<u64, ChangeError> {
        let members = node.members.borrow().clone();
        if !members.nodes.contains_key(&id) {
            return Err(ChangeError::NotFound(id));
        }
        if !members.is_voter(id) {
            make(node, Change::Remove(BTreeSet::from([id]))).await?;
            node.record.forget(id);
            return Ok(id);
        }
        let rest: BTreeSet<u64> = members.voters.last().into_iter().flatten().copied().filter(|v| *v != id).collect();
        let alive = rest.iter().filter(|voter| steward::is_alive(node, **voter)).count();
        if rest.is_empty() || alive <= rest.len() / 2 {
            return Err(ChangeError::Precondition(format!(
                "expected a majority of the {} voters that would be left to be alive, but {alive} are: bring one back \
                 first",
                rest.len()
            )));
        }
        make(node, Change::Voters(rest)).await?;
        node.record.forget(id);
        Ok(id)
    }

    async fn transfer(&self, node: &NodeSide, to: Option<u64>) -> Result<u64, ChangeError> {
        let members = node.members.borrow().clone();
        let mine = node.standing.borrow().leader;
        let to = match to {
            Some(id) if !members.nodes.contains_key(&id) => return Err(ChangeError::NotFound(id)),
            Some(id) if Some(id) == mine => return Ok(id),
            Some(id) if !members.is_voter(id) => {
                return Err(ChangeError::Precondition(format!(
                    "expected a voter, but node {id} has no vote: promote it"
                )));
            }
            Some(id) => id,
            None => steward::successor(node).ok_or_else(|| {
                ChangeError::Precondition(
                    "expected another voter that is alive and caught up, but there is none".into(),
                )
            })?,
        };
        if transfer_to(node, to).await {
            Ok(to)
        } else {
            Err(ChangeError::Precondition(format!(
                "expected node {to} to take over within {WAIT:?}, but it has not: see whether it is alive and caught up"
            )))
        }
    }
}

/// Asks a member to take over, and waits until it leads.
pub(super) async fn transfer_to(node: &NodeSide, to: u64) -> bool {
    let mut standing = node.standing.clone();
    let deadline = node.clock_now() + WAIT;
    loop {
        // Refused while the newest entry is not on its disk yet: under load, again and again.
        node.membership.transfer_leader(to).await;
        let until = deadline.min(node.clock_now() + AGAIN);
        match timeout_at(until, standing.wait_for(|standing| standing.leader == Some(to))).await {
            Ok(Ok(_)) => return true,
            Ok(Err(_)) => return false,
            Err(_) if node.clock_now() >= deadline || !node.leads() => return false,
            Err(_) => {}
        }
    }
}

async fn promote(node: &NodeSide, id: u64) -> Result<u64, ChangeError> {
    let members = node.members.borrow().clone();
    if !members.nodes.contains_key(&id) {
        return Err(ChangeError::NotFound(id));
    }
    if members.is_voter(id) {
        return Ok(id);
    }
    if !steward::is_caught_up(node, id) {
        return Err(ChangeError::Precondition(format!(
            "expected node {id} to be less than {CAUGHT_UP} entries behind, but it is not: wait, then promote it"
        )));
    }
    let voters = members.voters.last().into_iter().flatten().copied().chain([id]).collect();
    make(node, Change::Voters(voters)).await?;
    Ok(id)
}

/// Changes the membership as soon as no other change is under way: the steward's, or one that was asked for before.
async fn make(node: &NodeSide, change: Change) -> Result<(), ChangeError> {
    let mut members = node.members.clone();
    let deadline = node.clock_now() + WAIT;
    loop {
        let stable = members.wait_for(|members| members.committed && members.voters.len() < 2);
        // Where it lasts too long, the change itself is refused and says why.
        let _ = timeout_at(deadline, stable).await;
        match node.membership.change(change.clone()).await {
            Err(NotChanged::Refused(_)) if node.clock_now() < deadline => {
                // Somebody else was faster.
                let _ = timeout(AGAIN / 8, members.changed()).await;
            }
            result => return changed(result),
        }
    }
}

fn changed(result: Result<(), NotChanged>) -> Result<(), ChangeError> {
    result.map_err(|error| match error {
        NotChanged::NotLeader => ChangeError::NoLeader("this node does not lead any more".into()),
        NotChanged::Refused(why) => ChangeError::Precondition(why),
        NotChanged::Unknown => ChangeError::Unknown("it was discarded or is still under way".into()),
    })
}

fn refused(error: ChangeError) -> pb::ChangeResponse {
    let reason = error.to_string();
    let (node, refusal, reason) = match error {
        ChangeError::NoLeader(why) => (0, pb::ChangeRefusal::NoLeader, why),
        ChangeError::NotFound(id) => (id, pb::ChangeRefusal::NotFound, reason),
        ChangeError::Precondition(why) => (0, pb::ChangeRefusal::Precondition, why),
        ChangeError::Unknown(why) => (0, pb::ChangeRefusal::Unknown, why),
    };
    pb::ChangeResponse { node, refusal: refusal.into(), reason }
}
