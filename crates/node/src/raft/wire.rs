//! From openraft's messages to those between peers, and back.

use openraft::entry::RaftEntry as _;
use openraft::raft::{
    AppendEntriesRequest, StreamAppendError, StreamAppendResult, TransferLeaderError, TransferLeaderRequest,
    VoteRequest, VoteResponse,
};
use openraft::vote::RaftLeaderId as _;
use openraft::{AsyncRuntime, EntryPayload};
use ticketrail_proto::raft as pb;
use tonic::Status;

use super::codec::{
    membership_from_bytes, membership_to_bytes, stored_membership_from_bytes, stored_membership_to_bytes,
};
use super::leader::LeaderId;
use super::types::{Entry, LogId, Proposal, SnapshotMeta, Types, Vote};

/// A message that lacks what it must have, or holds what makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected {0} in a message between peers, but there is none that makes sense")]
pub(crate) struct WireError(&'static str);

impl From<WireError> for Status {
    fn from(error: WireError) -> Self {
        Status::invalid_argument(error.to_string())
    }
}

pub(crate) fn log_id(id: &LogId) -> pb::LogId {
    let leader = pb::LeaderId { term: id.leader_id.term, node: id.leader_id.node_id };
    pb::LogId { leader: Some(leader), index: id.index }
}

fn leader_from(leader: Option<pb::LeaderId>) -> Result<LeaderId, WireError> {
    let pb::LeaderId { term, node } = leader.ok_or(WireError("a leader"))?;
    Ok(LeaderId { term, node_id: node })
}

pub(crate) fn log_id_from(id: pb::LogId) -> Result<LogId, WireError> {
    Ok(LogId::new(leader_from(id.leader)?.to_committed(), id.index))
}

fn optional(id: Option<pb::LogId>) -> Result<Option<LogId>, WireError> {
    id.map(log_id_from).transpose()
}

pub(crate) fn vote(vote: &Vote) -> pb::Vote {
    let leader = pb::LeaderId { term: vote.leader_id.term, node: vote.leader_id.node_id };
    pb::Vote { leader: Some(leader), committed: vote.committed }
}

pub(crate) fn vote_from(vote: Option<pb::Vote>) -> Result<Vote, WireError> {
    let pb::Vote { leader, committed } = vote.ok_or(WireError("a vote"))?;
    Ok(Vote { leader_id: leader_from(leader)?, committed })
}

fn entry(entry: Entry) -> pb::LogEntry {
    let payload = match entry.payload {
        EntryPayload::Blank => None,
        EntryPayload::Normal(Proposal(bytes)) => Some(pb::log_entry::Payload::Normal(bytes)),
        EntryPayload::Membership(membership) => {
            Some(pb::log_entry::Payload::Membership(membership_to_bytes(&membership)))
        }
    };
    pb::LogEntry { id: Some(log_id(&entry.log_id)), payload }
}

fn entry_from(entry: pb::LogEntry) -> Result<Entry, WireError> {
    let id = log_id_from(entry.id.ok_or(WireError("an entry's id"))?)?;
    let payload = match entry.payload {
        None => EntryPayload::Blank,
        Some(pb::log_entry::Payload::Normal(bytes)) => EntryPayload::Normal(Proposal(bytes)),
        Some(pb::log_entry::Payload::Membership(bytes)) => {
            EntryPayload::Membership(membership_from_bytes(bytes).map_err(|_| WireError("a membership"))?)
        }
    };
    Ok(Entry::new(id, payload))
}

pub(crate) fn append<R: AsyncRuntime>(
    header: Option<pb::Header>,
    request: AppendEntriesRequest<Types<R>>,
) -> pb::AppendRequest {
    pb::AppendRequest {
        header,
        vote: Some(vote(&request.vote)),
        previous: request.prev_log_id.as_ref().map(log_id),
        entries: request.entries.into_iter().map(entry).collect(),
        committed: request.leader_commit.as_ref().map(log_id),
    }
}

pub(crate) fn append_from<R: AsyncRuntime>(
    request: pb::AppendRequest,
) -> Result<AppendEntriesRequest<Types<R>>, WireError> {
    Ok(AppendEntriesRequest {
        vote: vote_from(request.vote)?,
        prev_log_id: optional(request.previous)?,
        entries: request.entries.into_iter().map(entry_from).collect::<Result<_, _>>()?,
        leader_commit: optional(request.committed)?,
    })
}

pub(crate) fn append_result<R: AsyncRuntime>(
    header: Option<pb::Header>,
    result: &StreamAppendResult<Types<R>>,
) -> pb::AppendResponse {
    let result = match result {
        Ok(last) => pb::append_response::Result::Matched(pb::Matched { last: last.as_ref().map(log_id) }),
        Err(StreamAppendError::Conflict(at)) => pb::append_response::Result::Conflict(log_id(at)),
        Err(StreamAppendError::HigherVote(higher)) => pb::append_response::Result::HigherVote(vote(higher)),
    };
    pb::AppendResponse { header, result: Some(result) }
}

pub(crate) fn append_result_from<R: AsyncRuntime>(
    response: pb::AppendResponse,
) -> Result<StreamAppendResult<Types<R>>, WireError> {
    Ok(match response.result.ok_or(WireError("a result"))? {
        pb::append_response::Result::Matched(matched) => Ok(optional(matched.last)?),
        pb::append_response::Result::Conflict(at) => Err(StreamAppendError::Conflict(log_id_from(at)?)),
        pb::append_response::Result::HigherVote(vote) => Err(StreamAppendError::HigherVote(vote_from(Some(vote))?)),
    })
}

pub(crate) fn vote_request<R: AsyncRuntime>(
    header: Option<pb::Header>,
    request: &VoteRequest<Types<R>>,
) -> pb::VoteRequest {
    pb::VoteRequest {
        header,
        vote: Some(vote(&request.vote)),
        last_log: request.last_log_id.as_ref().map(log_id),
        leadership_transfer: request.leadership_transfer,
    }
}

pub(crate) fn vote_request_from<R: AsyncRuntime>(request: pb::VoteRequest) -> Result<VoteRequest<Types<R>>, WireError> {
    let mut asked = VoteRequest::new(vote_from(request.vote)?, optional(request.last_log)?);
    asked.leadership_transfer = request.leadership_transfer;
    Ok(asked)
}

pub(crate) fn vote_response<R: AsyncRuntime>(
    header: Option<pb::Header>,
    response: &VoteResponse<Types<R>>,
) -> pb::VoteResponse {
    pb::VoteResponse {
        header,
        vote: Some(vote(&response.vote)),
        granted: response.vote_granted,
        last_log: response.last_log_id.as_ref().map(log_id),
    }
}

pub(crate) fn vote_response_from<R: AsyncRuntime>(
    response: pb::VoteResponse,
) -> Result<VoteResponse<Types<R>>, WireError> {
    Ok(VoteResponse::new(vote_from(response.vote)?, optional(response.last_log)?, response.granted))
}

pub(crate) fn transfer<R: AsyncRuntime>(
    header: Option<pb::Header>,
    request: &TransferLeaderRequest<Types<R>>,
) -> pb::TransferLeaderRequest {
    pb::TransferLeaderRequest {
        header,
        from: Some(vote(request.from_leader())),
        to: *request.to_node_id(),
        last_log: request.last_log_id().map(log_id),
    }
}

pub(crate) fn transfer_from<R: AsyncRuntime>(
    request: pb::TransferLeaderRequest,
) -> Result<TransferLeaderRequest<Types<R>>, WireError> {
    Ok(TransferLeaderRequest::new(vote_from(request.from)?, request.to, optional(request.last_log)?))
}

pub(crate) fn transferred<R: AsyncRuntime>(
    header: Option<pb::Header>,
    result: Result<(), TransferLeaderError<Types<R>>>,
) -> pb::TransferLeaderResponse {
    use pb::transfer_leader_response::Refusal;
    let (refusal, vote, last_log) = match result {
        Ok(()) => (Refusal::Unspecified, None, None),
        Err(TransferLeaderError::VoteChanged { actual, .. }) => (Refusal::VoteChanged, Some(vote(&actual)), None),
        Err(TransferLeaderError::LogNotFlushed { actual, .. }) => {
            (Refusal::LogNotFlushed, None, actual.as_ref().map(log_id))
        }
    };
    pb::TransferLeaderResponse { header, refusal: refusal.into(), vote, last_log }
}

pub(crate) fn transferred_from<R: AsyncRuntime>(
    asked: &TransferLeaderRequest<Types<R>>,
    response: pb::TransferLeaderResponse,
) -> Result<Result<(), TransferLeaderError<Types<R>>>, WireError> {
    use pb::transfer_leader_response::Refusal;
    match Refusal::try_from(response.refusal) {
        Ok(Refusal::Unspecified) => Ok(Ok(())),
        Ok(Refusal::VoteChanged) => {
            let (expected, actual) = (*asked.from_leader(), vote_from(response.vote)?);
            Ok(Err(TransferLeaderError::VoteChanged { expected, actual }))
        }
        Ok(Refusal::LogNotFlushed) => {
            let (expected, actual) = (asked.last_log_id().copied(), optional(response.last_log)?);
            Ok(Err(TransferLeaderError::LogNotFlushed { expected, actual }))
        }
        Err(_) => Err(WireError("a known refusal")),
    }
}

pub(crate) fn snapshot_start(vote: &Vote, meta: &SnapshotMeta, files: Vec<pb::SnapshotFile>) -> pb::SnapshotStart {
    pb::SnapshotStart {
        vote: Some(self::vote(vote)),
        last_log: meta.last_log_id.as_ref().map(log_id),
        membership: stored_membership_to_bytes(&meta.last_membership),
        files,
    }
}

pub(crate) fn snapshot_start_from(start: &pb::SnapshotStart) -> Result<(Vote, SnapshotMeta), WireError> {
    let meta = SnapshotMeta {
        last_log_id: optional(start.last_log)?,
        last_membership: stored_membership_from_bytes(start.membership.clone())
            .map_err(|_| WireError("a membership"))?,
    };
    Ok((vote_from(start.vote)?, meta))
}
