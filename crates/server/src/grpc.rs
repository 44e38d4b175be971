//! The services on one port.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use ticketrail_api::{
    About, AdminApi, ClusterApi, CommitApi, Leader, MESSAGE_BYTES, NamesLeader, QueueApi, Settings, Streams,
};
use ticketrail_node::{Clock, Handle};
use ticketrail_proto::FILE_DESCRIPTOR_SET;
use ticketrail_proto::v1::admin_service_server::AdminServiceServer;
use ticketrail_proto::v1::cluster_service_server::ClusterServiceServer;
use ticketrail_proto::v1::commit_service_server::CommitServiceServer;
use ticketrail_proto::v1::queue_service_server::QueueServiceServer;
use tokio::sync::watch;
use tonic::transport::Server;
use tonic::transport::server::Router;
use tower::layer::util::{Identity, Stack};

use crate::config::Config;
use crate::health::Health;
use crate::metrics::calls::{Calls, CountCalls};
use crate::storage;

/// Silence after which a connection is asked whether it is still there.
const KEEPALIVE: Duration = Duration::from_secs(20);
/// How long it may take to say so.
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes that a call may send ahead; a batch of 4 MiB should not stop and go.
const STREAM_WINDOW: u32 = 1 << 20;
/// Bytes that all calls of a connection may send ahead.
const CONNECTION_WINDOW: u32 = 4 << 20;
/// Calls at one time on one connection: parked receives are calls.
const STREAMS: u32 = 4_096;

/// The services, with their calls counted.
pub(crate) type Services = Router<Stack<CountCalls, Identity>>;

/// No calls yet, of the methods that are served here.
pub(crate) fn calls() -> anyhow::Result<Arc<Calls>> {
    let described =
        [FILE_DESCRIPTOR_SET, tonic_health::pb::FILE_DESCRIPTOR_SET, tonic_reflection::pb::v1::FILE_DESCRIPTOR_SET];
    Ok(Arc::new(Calls::new(Clock::system(), &described).context("read the descriptions of the services")?))
}

/// All services of the node behind `handle`. Streams end when `closing` becomes true.
pub(crate) async fn router(
    config: &Config,
    handle: Handle,
    calls: Arc<Calls>,
    closing: watch::Receiver<bool>,
) -> anyhow::Result<(Services, Health)> {
    let of = handle.clone();
    let leader: Leader = Arc::new(move || {
        let address = of.other_leader()?.client_address;
        (!address.is_empty()).then_some(address)
    });
    let settings = Settings {
        auto_create: config.auto_create,
        max_body_bytes: usize::try_from(config.max_body_bytes.0).unwrap_or(usize::MAX),
    };
    let (dir, low) = (config.data_dir.clone(), config.disk_low_bytes.0);
    let about = About { version: env!("CARGO_PKG_VERSION"), disk: Arc::new(move || storage::figures(&dir, low)) };
    let queues =
        QueueServiceServer::new(QueueApi::new(handle.clone(), settings, Streams { closing, leader: leader.clone() }))
            .max_decoding_message_size(MESSAGE_BYTES)
            .max_encoding_message_size(MESSAGE_BYTES);
    let cluster = ClusterServiceServer::new(ClusterApi::new(handle.clone()));
    let commits = CommitServiceServer::new(CommitApi::new(handle.clone(), settings))
        .max_decoding_message_size(MESSAGE_BYTES)
        .max_encoding_message_size(MESSAGE_BYTES);
    let admin = AdminServiceServer::new(AdminApi::new(handle, about))
        .max_decoding_message_size(MESSAGE_BYTES)
        .max_encoding_message_size(MESSAGE_BYTES);
    let (reporter, health_service) = tonic_health::server::health_reporter();
    let health = Health::new(reporter).await;
    let reflection = if config.reflection {
        let builder = tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET);
        Some(builder.build_v1().context("describe the services for reflection")?)
    } else {
        None
    };
    let router = Server::builder()
        .layer(CountCalls(calls))
        .tcp_nodelay(true)
        .http2_keepalive_interval(Some(KEEPALIVE))
        .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_concurrent_streams(STREAMS)
        .add_service(NamesLeader::new(queues, leader.clone()))
        .add_service(NamesLeader::new(commits, leader.clone()))
        .add_service(NamesLeader::new(admin, leader.clone()))
        .add_service(NamesLeader::new(cluster, leader))
        .add_service(health_service)
        .add_optional_service(reflection);
    Ok((router, health))
}
