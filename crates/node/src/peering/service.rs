//! What other nodes ask about identity and membership.

use ticketrail_proto::raft as pb;
use ticketrail_proto::raft::member_service_server::MemberService;
use ticketrail_storage::home::Seen;
use ticketrail_storage::{ClusterId, Identity, OpenError};
use tonic::{Request, Response, Status};

use super::wishes::Wish;
use super::{JOINED, NodeSide, Peering, cluster_from, from_wire, membership_to_wire};
use crate::peers::{PROTOCOL, hex};

fn check_protocol(protocol: u32) -> Result<(), Status> {
    if protocol == PROTOCOL {
        return Ok(());
    }
    Err(Status::failed_precondition(format!(
        "expected version {PROTOCOL} of the protocol between peers, but got version {protocol}; upgrade one node at a \
         time and let no version be left out"
    )))
}

fn kept(error: &OpenError) -> Status {
    Status::internal(error.to_string())
}

impl Peering {
    /// What this node has against a disk that starts; `None`: nothing.
    async fn judge(&self, asked: &pb::HelloRequest, theirs: &pb::Identity) -> Result<Option<String>, Status> {
        let Some(mine) = self.identity() else { return Ok(None) };
        let member = from_wire(asked.member.clone())?;
        let name = &member.name;
        if theirs.cluster != mine.cluster.0.as_slice() {
            return Ok(Some(format!(
                "expected a disk of cluster {}, but {name} has one of cluster {}: mount the disk of this node, or empty \
                 the data directory to join",
                mine.cluster,
                hex(&theirs.cluster)
            )));
        }
        if theirs.node == mine.node {
            // Which of the two is the copy, the others know. One that they have not cleared has no say.
            if !self.node().is_ok_and(|node| *node.cleared.borrow()) {
                return Ok(None);
            }
            return Ok(Some(format!(
                "expected one disk of node {}, but {name} has a copy of the one that {} uses: empty the data directory \
                 of the copy",
                mine.node,
                self.member().name
            )));
        }
        let Ok(node) = self.node() else { return self.judge_start(theirs).await };
        let members = node.members.borrow().clone();
        if let Some(known) = members.nodes.get(&theirs.node)
            && !known.name.is_empty()
            && known.name != *name
        {
            return Ok(Some(format!(
                "expected the disk of node {} at {}, whose it is, but {name} has it: the disks were swapped; mount each \
                 where it belongs",
                theirs.node, known.name
            )));
        }
        let last = asked.last_log.as_ref().map(|id| id.index);
        if let Err(refusal) = node.record.check_end(theirs.node, last, asked.cleared) {
            return Ok(Some(refusal));
        }
        if asked.was_member && node.leads() && !members.nodes.contains_key(&theirs.node) {
            return Ok(Some(format!(
                "expected a member, but node {} ({name}) was removed from the cluster: empty its data directory, and it \
                 joins anew by itself under a new id",
                theirs.node
            )));
        }
        self.judge_start(theirs).await
    }

    /// Compares a start with those on record, and notes it.
    async fn judge_start(&self, theirs: &pb::Identity) -> Result<Option<String>, Status> {
        let now = Seen { incarnation: theirs.incarnation, boot: theirs.boot };
        let node = theirs.node;
        let noted = {
            let mut seen = self.0.seen.lock();
            match seen.get(&node) {
                Some(known) if *known == now => return Ok(None),
                Some(known) if known.incarnation >= now.incarnation => {
                    return Ok(Some(format!(
                        "expected start number {} of node {node} or a later one, but its disk says that this is number \
                         {}: the disk is a copy or was rolled back. Do not use it: empty the data directory, and the \
                         node joins anew by itself under a new id",
                        known.incarnation + 1,
                        now.incarnation
                    )));
                }
                Some(_) | None => {}
            }
            seen.insert(node, now);
            seen.clone()
        };
        self.keep(move |home| home.set_seen(&noted)).await.map_err(|error| kept(&error))?;
        Ok(None)
    }

    /// The leader takes note of what a node wants.
    fn wish(&self, node: &NodeSide, asked: &pb::HelloRequest, theirs: &pb::Identity) -> Result<(), Status> {
        let member = from_wire(asked.member.clone())?;
        let wish = Wish { member, wants_vote: asked.wants_vote, was_member: asked.was_member };
        let members = node.members.borrow().clone();
        node.wishes.say(theirs.node, wish, &members, node.clock_now());
        Ok(())
    }

    /// The answer of the leader to a newcomer: a new id.
    pub(super) async fn admit(&self, node: &NodeSide) -> Result<(ClusterId, u64), String> {
        let identity = self.identity().ok_or("this node has no identity")?;
        let index = node.membership.mark().await.map_err(|error| error.to_string())?;
        Ok((identity.cluster, JOINED + index))
    }
}

#[tonic::async_trait]
impl MemberService for Peering {
    async fn hello(&self, request: Request<pb::HelloRequest>) -> Result<Response<pb::HelloResponse>, Status> {
        let asked = request.into_inner();
        check_protocol(asked.protocol)?;
        let mut refusal = None;
        if let Some(theirs) = &asked.identity {
            refusal = self.judge(&asked, theirs).await?;
            match (&refusal, self.node()) {
                (Some(refusal), _) => tracing::warn!(node = theirs.node, refusal, "refuses a disk"),
                (None, Ok(node)) if node.leads() => self.wish(node, &asked, theirs)?,
                (None, _) => {}
            }
        }
        let leader = self.node().ok().and_then(|node| node.standing.borrow().leader).unwrap_or(0);
        let leader_address = self.node().ok().filter(|node| !node.leads()).and_then(NodeSide::other_leader);
        Ok(Response::new(pb::HelloResponse {
            identity: self.wire_identity(),
            name: self.member().name.clone(),
            refusal: refusal.unwrap_or_default(),
            leader,
            leader_address: leader_address.map(|(_, address)| address).unwrap_or_default(),
            membership: self.node().ok().map(|node| membership_to_wire(&node.members.borrow())),
        }))
    }

    async fn promise(&self, request: Request<pb::PromiseRequest>) -> Result<Response<pb::PromiseResponse>, Status> {
        let asked = request.into_inner();
        check_protocol(asked.protocol)?;
        let (name, founder) = (&self.member().name, &asked.founder);
        let veto = |veto: String| Ok(Response::new(pb::PromiseResponse { granted: None, veto }));
        if asked.name != *name {
            return veto(format!(
                "expected to be {}, as {founder} has it, but this is {name}: see to the list of peers",
                asked.name
            ));
        }
        let Some(cluster) = cluster_from(&asked.cluster) else {
            return Err(Status::invalid_argument("expected a cluster id of 16 bytes"));
        };
        let identity = Identity { cluster, node: asked.node, incarnation: 0, was_member: false };
        let founding = self.keep(|home| home.founding()).await.map_err(|error| kept(&error))?;
        if founding.is_some() && self.identity().is_none() {
            return veto(format!("{name} is about to found a cluster itself: all nodes must have one list of peers"));
        }
        if self.give(identity).await.map_err(|error| kept(&error))? {
            tracing::info!(%identity, founder, "promises to belong to a new cluster");
        }
        match self.identity() {
            Some(mine) if mine.is_same_node(&identity) => {
                Ok(Response::new(pb::PromiseResponse { granted: Some(self.wire_member()), veto: String::new() }))
            }
            Some(mine) => veto(format!("{name} is node {} of cluster {} already", mine.node, mine.cluster)),
            None => Err(Status::internal("expected an identity that was just written, but there is none")),
        }
    }

    async fn join(&self, request: Request<pb::JoinRequest>) -> Result<Response<pb::JoinResponse>, Status> {
        let asked = request.into_inner();
        check_protocol(asked.protocol)?;
        let member = from_wire(asked.member.clone())?;
        let not_now =
            |reason: String| Ok(Response::new(pb::JoinResponse { cluster: bytes::Bytes::new(), node: 0, reason }));
        let Ok(node) = self.node() else { return not_now("is no member of a cluster yet".into()) };
        if node.leads() {
            return match self.admit(node).await {
                Ok((cluster, id)) => {
                    tracing::info!(node = id, name = member.name, "admits a newcomer");
                    Ok(Response::new(pb::JoinResponse {
                        cluster: cluster.0.to_vec().into(),
                        node: id,
                        reason: String::new(),
                    }))
                }
                Err(why) => not_now(why),
            };
        }
        match node.other_leader() {
            Some((_, address)) if !asked.passed_on => {
                let request = pb::JoinRequest { passed_on: true, ..asked };
                match self.ask(&address, async move |mut client| client.join(request).await).await {
                    Ok(answer) => Ok(Response::new(answer)),
                    Err(why) => not_now(why),
                }
            }
            Some(_) | None => not_now("knows of no leader".into()),
        }
    }

    async fn invite(&self, request: Request<pb::InviteRequest>) -> Result<Response<pb::InviteResponse>, Status> {
        let asked = request.into_inner();
        check_protocol(asked.protocol)?;
        let Some(cluster) = cluster_from(&asked.cluster) else {
            return Err(Status::invalid_argument("expected a cluster id of 16 bytes"));
        };
        let identity = Identity { cluster, node: asked.node, incarnation: 0, was_member: false };
        let (accepted, reason) = if self.give(identity).await.map_err(|error| kept(&error))? {
            tracing::info!(%identity, "follows an invitation");
            (Some(self.wire_member()), String::new())
        } else {
            let mine = self.identity().map_or("nobody".to_owned(), |mine| mine.to_string());
            (None, format!("{} is {mine} already", self.member().name))
        };
        Ok(Response::new(pb::InviteResponse { accepted, reason }))
    }

    async fn change(&self, request: Request<pb::ChangeRequest>) -> Result<Response<pb::ChangeResponse>, Status> {
        let asked = request.into_inner();
        check_protocol(asked.protocol)?;
        let mine = self.identity().map(|identity| identity.cluster.0);
        if mine.is_none_or(|mine| mine != *asked.cluster) {
            return Err(Status::failed_precondition("expected a change of this cluster, but it is for another one"));
        }
        Ok(Response::new(self.change_on_wire(asked).await))
    }
}
