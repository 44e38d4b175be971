//! `CommitService`: changes that stand or fall together, or alone.

use ticketrail_core::{Answered, Command};
use ticketrail_node::Handle;
use ticketrail_proto::v1;
use ticketrail_proto::v1::commit_service_server::CommitService;
use tonic::{Request, Response, Status};

use crate::Settings;
use crate::call::{self, Changed};
use crate::convert::{cancel, commit, message};
use crate::queue::each;
use crate::status::Refusal;

/// The service. Cheap to clone.
#[derive(Clone)]
pub struct CommitApi {
    handle: Handle,
    settings: Settings,
}

impl CommitApi {
    /// The service on the node behind `handle`.
    pub fn new(handle: Handle, settings: Settings) -> Self {
        Self { handle, settings }
    }
}

#[tonic::async_trait]
impl CommitService for CommitApi {
    async fn commit(&self, request: Request<v1::CommitRequest>) -> Result<Response<v1::CommitResponse>, Status> {
        let timeout = call::timeout(request.metadata());
        let mut wire = request.into_inner();
        let request_id = wire.request_id.take();
        let command = commit::commit(&self.settings, wire)?;
        let atomic = command.atomic;
        let asked = [command.settle.len(), command.cancel.len(), command.reschedule.len(), command.enqueue.len()];
        let Changed { commit, answered } =
            call::propose(&self.handle, Command::Commit(command), request_id, timeout).await?;
        let Answered::Committed(committed) = answered else {
            return Err(Refusal::mismatch("the results of a commit").into());
        };
        let [settles, cancels, reschedules, enqueues] = asked;
        let mut response = v1::CommitResponse {
            commit: Some(commit),
            settled: each(settles, &committed.settled, commit::settled_part)?,
            cancelled: each(cancels, &committed.cancelled, cancel::cancel_result)?,
            rescheduled: each(reschedules, &committed.rescheduled, cancel::reschedule_result)?,
            ..Default::default()
        };
        if atomic {
            response.enqueued = each(enqueues, &committed.enqueued, commit::enqueued_part)?;
        } else {
            response.enqueue_results = each(enqueues, &committed.enqueued, message::enqueue_result)?;
        }
        Ok(Response::new(response))
    }
}
