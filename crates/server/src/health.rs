//! Whether the server serves, as `grpc.health.v1` says it: for each service, and for the whole under the empty name.

use std::time::Duration;

use ticketrail_api::{AdminApi, ClusterApi, CommitApi, QueueApi};
use ticketrail_node::{Handle, Role};
use ticketrail_proto::v1::admin_service_server::AdminServiceServer;
use ticketrail_proto::v1::cluster_service_server::ClusterServiceServer;
use ticketrail_proto::v1::commit_service_server::CommitServiceServer;
use ticketrail_proto::v1::queue_service_server::QueueServiceServer;
use tokio::time::MissedTickBehavior;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

/// How soon it is noticed that the node can't serve any more.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Tells of health what the node tells of itself.
#[derive(Clone)]
pub(crate) struct Health(HealthReporter);

impl Health {
    /// Starts with "not serving".
    pub(crate) async fn new(reporter: HealthReporter) -> Self {
        let health = Self(reporter);
        health.set(ServingStatus::NotServing).await;
        health
    }

    async fn set(&self, status: ServingStatus) {
        let Self(reporter) = self;
        reporter.set_service_status("", status).await;
        reporter.set_service_status(service_name::<QueueServiceServer<QueueApi>>(), status).await;
        reporter.set_service_status(service_name::<CommitServiceServer<CommitApi>>(), status).await;
        reporter.set_service_status(service_name::<AdminServiceServer<AdminApi>>(), status).await;
        reporter.set_service_status(service_name::<ClusterServiceServer<ClusterApi>>(), status).await;
    }

    /// Serves no longer.
    pub(crate) async fn stop(&self) {
        self.set(ServingStatus::NotServing).await;
    }

    /// Follows the node until it is broken or stopped: serving only while it leads or knows who does.
    pub(crate) async fn follow(self, handle: Handle) {
        let mut every = tokio::time::interval(LOOK_EVERY);
        every.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            handle.serving().await;
            let status = handle.status();
            if status.broken.is_some() || status.role == Role::Stopped {
                return;
            }
            self.set(ServingStatus::Serving).await;
            while handle.status().serving {
                every.tick().await;
            }
            self.set(ServingStatus::NotServing).await;
        }
    }
}

fn service_name<S: tonic::server::NamedService>() -> &'static str {
    S::NAME
}
