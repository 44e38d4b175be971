//! `CommitService`: changes that stand or fall together.

use ticketrail_core::{Answered, Command};
use ticketrail_node::Handle;
use ticketrail_proto::v1;
use ticketrail_proto::v1::commit_service_server::CommitService;
use tonic::{Request, Response, Status};

use crate::Settings;
use crate::call::{self, Changed};
use crate::convert::commit;
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
        let v1::CommitRequest { request_id, namespace, settle, enqueue } = request.into_inner();
        let command = commit::commit(&self.settings, namespace, settle, enqueue)?;
        let asked = (command.settle.len(), command.enqueue.len());
        let Changed { commit, answered } =
            call::propose(&self.handle, Command::Commit(command), request_id, timeout).await?;
        let Answered::Committed(committed) = answered else {
            return Err(Refusal::mismatch("the results of a commit").into());
        };
        if asked != (committed.settled.len(), committed.enqueued.len()) {
            return Err(Refusal::mismatch("a result for each part").into());
        }
        let settled = committed.settled.iter().map(commit::settled_part).collect::<Result<_, _>>()?;
        let enqueued = committed.enqueued.iter().map(commit::enqueued_part).collect::<Result<_, _>>()?;
        Ok(Response::new(v1::CommitResponse { commit: Some(commit), settled, enqueued }))
    }
}
