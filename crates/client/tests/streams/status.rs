//! Of the admin service, the one call that the SDK makes by itself.

use std::pin::Pin;

use ticketrail_proto::v1;
use ticketrail_proto::v1::admin_service_server::AdminService;
use tonic::{Request, Response, Status};

use crate::server::Server;

/// Says whether a server leads.
pub(crate) struct TellsStatus(pub(crate) Server);

type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<Response<T>, Status>> + Send + 'a>>;

/// The methods that the SDK does not call by itself.
macro_rules! others {
    ($($method:ident: $asked:ident, $answered:ident;)*) => {
        $(fn $method<'a, 'b>(&'a self, _: Request<v1::$asked>) -> Answer<'b, v1::$answered>
        where
            'a: 'b,
            Self: 'b,
        {
            Box::pin(async { Err(Status::unimplemented("not in these tests")) })
        })*
    };
}

impl AdminService for TellsStatus {
    fn get_status<'a, 'b>(&'a self, _: Request<v1::GetStatusRequest>) -> Answer<'b, v1::GetStatusResponse>
    where
        'a: 'b,
        Self: 'b,
    {
        let role = {
            let mut inner = self.0.lock();
            inner.asked += 1;
            if inner.leader.is_none() { v1::NodeRole::Leader } else { v1::NodeRole::Follower }
        };
        // A follower serves, too: it passes calls on.
        let status = v1::GetStatusResponse { role: role.into(), serving: true, ..Default::default() };
        Box::pin(async move { Ok(self.0.answer(status)) })
    }

    others! {
        create_queue: CreateQueueRequest, CreateQueueResponse;
        update_queue: UpdateQueueRequest, UpdateQueueResponse;
        delete_queue: DeleteQueueRequest, DeleteQueueResponse;
        purge_queue: PurgeQueueRequest, PurgeQueueResponse;
        pause_queue: PauseQueueRequest, PauseQueueResponse;
        resume_queue: ResumeQueueRequest, ResumeQueueResponse;
        close_queue: CloseQueueRequest, CloseQueueResponse;
        reopen_queue: ReopenQueueRequest, ReopenQueueResponse;
        get_queue: GetQueueRequest, GetQueueResponse;
        list_queues: ListQueuesRequest, ListQueuesResponse;
        set_namespace: SetNamespaceRequest, SetNamespaceResponse;
        delete_namespace: DeleteNamespaceRequest, DeleteNamespaceResponse;
        get_namespace: GetNamespaceRequest, GetNamespaceResponse;
        list_namespaces: ListNamespacesRequest, ListNamespacesResponse;
    }
}
