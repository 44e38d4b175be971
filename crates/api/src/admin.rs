//! `AdminService`: what operators call.

use std::collections::BTreeMap;
use std::time::Duration;

use ticketrail_core::command::{
    CloseQueue, CreateQueue, DeleteNamespace, DeleteQueue, PauseQueue, PurgeQueue, QueueRef, QueueSettings,
    SetNamespace, UpdateQueue,
};
use ticketrail_core::query::{Clock, NamespaceInfo, QueueInfo};
use ticketrail_core::reply::Removed;
use ticketrail_core::{Answer, Answered, Command, Query};
use ticketrail_node::Handle;
use ticketrail_node::call::Freshness;
use ticketrail_proto::v1;
use ticketrail_proto::v1::admin_service_server::AdminService;
use tonic::{Request, Response, Status};

use crate::About;
use crate::call::{self, Changed};
use crate::convert::{field, node, settings};
use crate::status::{FieldError, Refusal};

/// The service. Cheap to clone.
#[derive(Clone)]
pub struct AdminApi {
    handle: Handle,
    about: About,
}

/// Which queue of which namespace a change speaks of, and how long it may take.
struct Target {
    queue: QueueRef,
    request_id: Option<v1::RequestId>,
    timeout: Duration,
}

impl AdminApi {
    /// The service on the node behind `handle`, in the server that `about` tells of.
    pub fn new(handle: Handle, about: About) -> Self {
        Self { handle, about }
    }

    async fn change(&self, target: Target, command: impl FnOnce(QueueRef) -> Command) -> Result<Changed, Refusal> {
        let Target { queue, request_id, timeout } = target;
        call::propose(&self.handle, command(queue), request_id, timeout).await
    }

    /// A change that answers with the queue's id.
    async fn alter(
        &self,
        target: Target,
        command: impl FnOnce(QueueRef) -> Command,
    ) -> Result<(v1::Commit, u64), Refusal> {
        let Changed { commit, answered } = self.change(target, command).await?;
        let Answered::QueueChanged(changed) = answered else {
            return Err(Refusal::mismatch("a queue made or changed"));
        };
        Ok((commit, changed.queue))
    }

    /// A change that answers with the number of messages removed.
    async fn remove(
        &self,
        target: Target,
        command: impl FnOnce(QueueRef) -> Command,
    ) -> Result<(v1::Commit, u64), Refusal> {
        let Changed { commit, answered } = self.change(target, command).await?;
        let (Answered::QueueDeleted(Removed { count }) | Answered::QueuePurged(Removed { count })) = answered else {
            return Err(Refusal::mismatch("a number of messages removed"));
        };
        Ok((commit, count))
    }

    /// Queues for the wire, each with the depth of its dead-letter queue.
    async fn to_wire(
        &self,
        queues: Vec<QueueInfo>,
        clock: &Clock,
        timeout: Duration,
    ) -> Result<Vec<v1::QueueInfo>, Refusal> {
        let known: BTreeMap<QueueRef, u64> = queues.iter().map(|q| (q.name.clone(), q.stats.depth())).collect();
        let mut wire = Vec::with_capacity(queues.len());
        for queue in queues {
            let name = settings::dead_letter_queue(&queue);
            let dead_letters = QueueRef { namespace: queue.name.namespace.clone(), name };
            let dead = match known.get(&dead_letters) {
                Some(depth) => *depth,
                None => self.depth(dead_letters, timeout).await?,
            };
            wire.push(settings::queue_info(queue, dead, clock));
        }
        Ok(wire)
    }

    /// The messages in a queue; 0 where there is none.
    async fn depth(&self, queue: QueueRef, timeout: Duration) -> Result<u64, Refusal> {
        let (answer, _) = call::ask(&self.handle, Query::Queue(queue), Freshness::StaleOk, timeout).await?;
        let Answer::Queue(queue) = answer else { return Err(Refusal::mismatch("a queue")) };
        Ok(queue.map_or(0, |queue| queue.stats.depth()))
    }
}

impl AdminApi {
    /// A change of a namespace's defaults.
    async fn change_namespace(
        &self,
        command: Command,
        request_id: Option<v1::RequestId>,
        timeout: Duration,
    ) -> Result<v1::Commit, Refusal> {
        let Changed { commit, answered } = call::propose(&self.handle, command, request_id, timeout).await?;
        match answered {
            Answered::NamespaceChanged(_) => Ok(commit),
            Answered::Committed(_)
            | Answered::Received(_)
            | Answered::Expired(_)
            | Answered::Ticked(_)
            | Answered::Initialized(_)
            | Answered::SessionOpened(_)
            | Answered::QueueChanged(_)
            | Answered::QueueDeleted(_)
            | Answered::QueuePurged(_) => Err(Refusal::mismatch("a namespace changed")),
        }
    }
}

fn target(
    timeout: Duration,
    request_id: Option<v1::RequestId>,
    namespace: String,
    queue: String,
) -> Result<Target, FieldError> {
    Ok(Target { queue: field::queue(namespace, queue)?, request_id, timeout })
}

#[tonic::async_trait]
impl AdminService for AdminApi {
    async fn create_queue(
        &self,
        request: Request<v1::CreateQueueRequest>,
    ) -> Result<Response<v1::CreateQueueResponse>, Status> {
        let timeout = call::timeout(request.metadata());
        let v1::CreateQueueRequest { request_id, namespace, queue, settings } = request.into_inner();
        let target = target(timeout, request_id, namespace, queue)?;
        let settings = settings::settings(settings.unwrap_or_default())?;
        let command = |queue| Command::CreateQueue(CreateQueue { queue: Some(queue), settings: Some(settings) });
        let (commit, queue_id) = self.alter(target, command).await?;
        Ok(Response::new(v1::CreateQueueResponse { commit: Some(commit), queue_id }))
    }

    async fn update_queue(
        &self,
        request: Request<v1::UpdateQueueRequest>,
    ) -> Result<Response<v1::UpdateQueueResponse>, Status> {
        let timeout = call::timeout(request.metadata());
        let v1::UpdateQueueRequest { request_id, namespace, queue, settings } = request.into_inner();
        let target = target(timeout, request_id, namespace, queue)?;
        let settings = settings::changed_settings(settings)?;
        let command = |queue| Command::UpdateQueue(UpdateQueue { queue: Some(queue), settings: Some(settings) });
        let (commit, queue_id) = self.alter(target, command).await?;
        Ok(Response::new(v1::UpdateQueueResponse { commit: Some(commit), queue_id }))
    }

    async fn delete_queue(
        &self,
        request: Request<v1::DeleteQueueRequest>,
    ) -> Result<Response<v1::DeleteQueueResponse>, Status> {
        let timeout = call::timeout(request.metadata());
        let v1::DeleteQueueRequest { request_id, namespace, queue } = request.into_inner();
        let target = target(timeout, request_id, namespace, queue)?;
        let command = |queue| Command::DeleteQueue(DeleteQueue { queue: Some(queue) });
        let (commit, messages) = self.remove(target, command).await?;
        Ok(Response::new(v1::DeleteQueueResponse { commit: Some(commit), messages }))
    }

    async fn purge_queue(
        &self,
        request: Request<v1::PurgeQueueRequest>,
    ) -> Result<Response<v1::PurgeQueueResponse>, Status> {
        let timeout = call::timeout(request.metadata());
        let v1::PurgeQueueRequest { request_id, namespace, queue } = request.into_inner();
        let target = target(timeout, request_id, namespace, queue)?;
        let command = |queue| Command::PurgeQueue(PurgeQueue { queue: Some(queue) });
        let (commit, messages) = self.remove(target, command).await?;
        Ok(Response::new(v1::PurgeQueueResponse { commit: Some(commit), messages }))
    }

    async fn pause_queue(
        &self,
        request: Request<v1::PauseQueueRequest>,
    ) -> Result<Response<v1::PauseQueueResponse>, Status> {
        let timeout = call::timeout(request.metadata());
        let v1::PauseQueueRequest { request_id, namespace, queue, pause } = request.into_inner();
        let target = target(timeout, request_id, namespace, queue)?;
        let pause = settings::pause(pause)?;
        let command = |queue| Command::PauseQueue(PauseQueue { queue: Some(queue), pause: Some(pause) });
        let (commit, _) = self.alter(target, command).await?;
        Ok(Response::new(v1::PauseQueueResponse { commit: Some(commit) }))
    }

    async fn resume_queue(
        &self,
        request: Request<v1::ResumeQueueRequest>,
    ) -> Result<Response<v1::ResumeQueueResponse>, Status> {
        let timeout = call::timeout(request.metadata());
        let v1::ResumeQueueRequest { request_id, namespace, queue } = request.into_inner();
        let target = target(timeout, request_id, namespace, queue)?;
        let command = |queue| Command::PauseQueue(PauseQueue { queue: Some(queue), pause: None });
        let (commit, _) = self.alter(target, command).await?;
        Ok(Response::new(v1::ResumeQueueResponse { commit: Some(commit) }))
    }

    async fn close_queue(
        &self,
        request: Request<v1::CloseQueueRequest>,
    ) -> Result<Response<v1::CloseQueueResponse>, Status> {
        let timeout = call::timeout(request.metadata());
        let v1::CloseQueueRequest { request_id, namespace, queue } = request.into_inner();
        let target = target(timeout, request_id, namespace, queue)?;
        let command = |queue| Command::CloseQueue(CloseQueue { queue: Some(queue), closed: true });
        let (commit, _) = self.alter(target, command).await?;
        Ok(Response::new(v1::CloseQueueResponse { commit: Some(commit) }))
    }

    async fn reopen_queue(
        &self,
        request: Request<v1::ReopenQueueRequest>,
    ) -> Result<Response<v1::ReopenQueueResponse>, Status> {
        let timeout = call::timeout(request.metadata());
        let v1::ReopenQueueRequest { request_id, namespace, queue } = request.into_inner();
        let target = target(timeout, request_id, namespace, queue)?;
        let command = |queue| Command::CloseQueue(CloseQueue { queue: Some(queue), closed: false });
        let (commit, _) = self.alter(target, command).await?;
        Ok(Response::new(v1::ReopenQueueResponse { commit: Some(commit) }))
    }

    async fn get_queue(&self, request: Request<v1::GetQueueRequest>) -> Result<Response<v1::GetQueueResponse>, Status> {
        let timeout = call::timeout(request.metadata());
        let v1::GetQueueRequest { namespace, queue, stale_ok } = request.into_inner();
        let name = field::queue(namespace, queue)?;
        let query = Query::Queue(name.clone());
        let (answer, origin) = call::ask(&self.handle, query, call::freshness(stale_ok), timeout).await?;
        let Answer::Queue(info) = answer else { return Err(Refusal::mismatch("a queue").into()) };
        let Some(info) = info else { return Err(Refusal::queue_not_found(&name.namespace, &name.name).into()) };
        let clock = call::clock(&self.handle, timeout).await?;
        let queue = self.to_wire(vec![info], &clock, timeout).await?.pop();
        Ok(Response::new(v1::GetQueueResponse { queue, origin: Some(call::origin(origin)) }))
    }

    async fn list_queues(
        &self,
        request: Request<v1::ListQueuesRequest>,
    ) -> Result<Response<v1::ListQueuesResponse>, Status> {
        let timeout = call::timeout(request.metadata());
        let v1::ListQueuesRequest { namespace, page_size, page_token, stale_ok } = request.into_inner();
        let namespace = field::namespace(namespace)?;
        let after = field::name_cursor(&page_token)?;
        let limit = call::page_size(page_size)?;
        let query = Query::Queues { namespace, after, limit };
        let (answer, origin) = call::ask(&self.handle, query, call::freshness(stale_ok), timeout).await?;
        let Answer::Queues(queues) = answer else { return Err(Refusal::mismatch("a page of queues").into()) };
        let next = queues.last().filter(|_| queues.len() >= limit).map(|last| last.name.name.clone());
        let clock = call::clock(&self.handle, timeout).await?;
        Ok(Response::new(v1::ListQueuesResponse {
            queues: self.to_wire(queues, &clock, timeout).await?,
            next_page_token: field::page_token(next.unwrap_or_default().as_bytes()),
            origin: Some(call::origin(origin)),
        }))
    }

    async fn set_namespace(
        &self,
        request: Request<v1::SetNamespaceRequest>,
    ) -> Result<Response<v1::SetNamespaceResponse>, Status> {
        let timeout = call::timeout(request.metadata());
        let v1::SetNamespaceRequest { request_id, namespace, defaults, auto_create } = request.into_inner();
        let namespace = field::namespace(namespace)?;
        let defaults = Some(settings::defaults(defaults)?);
        let command = Command::SetNamespace(SetNamespace { namespace, defaults, auto_create });
        let commit = self.change_namespace(command, request_id, timeout).await?;
        Ok(Response::new(v1::SetNamespaceResponse { commit: Some(commit) }))
    }

    async fn delete_namespace(
        &self,
        request: Request<v1::DeleteNamespaceRequest>,
    ) -> Result<Response<v1::DeleteNamespaceResponse>, Status> {
        let timeout = call::timeout(request.metadata());
        let v1::DeleteNamespaceRequest { request_id, namespace } = request.into_inner();
        let command = Command::DeleteNamespace(DeleteNamespace { namespace: field::namespace(namespace)? });
        let commit = self.change_namespace(command, request_id, timeout).await?;
        Ok(Response::new(v1::DeleteNamespaceResponse { commit: Some(commit) }))
    }

    async fn get_namespace(
        &self,
        request: Request<v1::GetNamespaceRequest>,
    ) -> Result<Response<v1::GetNamespaceResponse>, Status> {
        let timeout = call::timeout(request.metadata());
        let v1::GetNamespaceRequest { namespace, stale_ok } = request.into_inner();
        let name = field::namespace(namespace)?;
        let query = Query::Namespace(name.clone());
        let (answer, origin) = call::ask(&self.handle, query, call::freshness(stale_ok), timeout).await?;
        let Answer::Namespaces(found) = answer else { return Err(Refusal::mismatch("a namespace").into()) };
        let namespace = match found.into_iter().next() {
            Some(info) => settings::namespace_info(info, true),
            None => {
                let built_in = NamespaceInfo { name, defaults: QueueSettings::default(), auto_create: true };
                settings::namespace_info(built_in, false)
            }
        };
        let origin = Some(call::origin(origin));
        Ok(Response::new(v1::GetNamespaceResponse { namespace: Some(namespace), origin }))
    }

    async fn list_namespaces(
        &self,
        request: Request<v1::ListNamespacesRequest>,
    ) -> Result<Response<v1::ListNamespacesResponse>, Status> {
        let timeout = call::timeout(request.metadata());
        let v1::ListNamespacesRequest { page_size, page_token, stale_ok } = request.into_inner();
        let after = field::name_cursor(&page_token)?;
        let limit = call::page_size(page_size)?;
        let query = Query::Namespaces { after, limit };
        let (answer, origin) = call::ask(&self.handle, query, call::freshness(stale_ok), timeout).await?;
        let Answer::Namespaces(found) = answer else { return Err(Refusal::mismatch("a page of namespaces").into()) };
        let next = found.last().filter(|_| found.len() >= limit).map(|last| last.name.clone());
        Ok(Response::new(v1::ListNamespacesResponse {
            namespaces: found.into_iter().map(|info| settings::namespace_info(info, true)).collect(),
            next_page_token: field::page_token(next.unwrap_or_default().as_bytes()),
            origin: Some(call::origin(origin)),
        }))
    }

    async fn get_status(
        &self,
        request: Request<v1::GetStatusRequest>,
    ) -> Result<Response<v1::GetStatusResponse>, Status> {
        // A broken node still shows itself, without a clock.
        let clock = call::clock(&self.handle, call::timeout(request.metadata())).await.ok();
        let status = node::status(self.handle.status(), &self.about, clock.as_ref());
        Ok(Response::new(status))
    }
}
