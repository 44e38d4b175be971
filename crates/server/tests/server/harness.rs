//! A server on a free port, with a directory of its own.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use tempfile::TempDir;
use ticketrail_proto::v1;
use ticketrail_proto::v1::admin_service_client::AdminServiceClient;
use ticketrail_proto::v1::queue_service_client::QueueServiceClient;
use ticketrail_server::config::{Age, MaybeAddress, Size};
use ticketrail_server::{Config, Mode};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tonic::transport::Channel;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

pub(crate) use crate::poll::{DEADLINE, poll};

/// A configuration for a server in `dir`: quick elections, a free port, no ballast.
pub(crate) fn config(dir: &Path) -> Config {
    Config {
        data_dir: dir.join("data"),
        http_listen: MaybeAddress(Some(SocketAddr::from(([127, 0, 0, 1], 0)))),
        http_ready_file: dir.join("http"),
        ready_file: dir.join("ready"),
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        heartbeat: Age::millis(20),
        election_timeout_min: Age::millis(50),
        election_timeout_max: Age::millis(100),
        disk_low_bytes: Size::mib(64),
        disk_critical_bytes: Size(0),
        ballast_bytes: Size(0),
        ..Config::defaults(Mode::Dev)
    }
}

/// A running server.
pub(crate) struct Server {
    pub(crate) address: String,
    pub(crate) dir: TempDir,
    stop: oneshot::Sender<()>,
    task: JoinHandle<anyhow::Result<()>>,
}

impl Server {
    /// Starts one with the default configuration.
    pub(crate) async fn start() -> Self {
        Self::start_with(|config| config).await
    }

    /// Starts one with a configuration changed by `change`.
    pub(crate) async fn start_with(change: impl FnOnce(Config) -> Config) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let config = change(config(dir.path()));
        Self::start_in(dir, config).await
    }

    /// Starts one, and waits until it serves.
    pub(crate) async fn start_in(dir: TempDir, config: Config) -> Self {
        let ready = config.ready_file.clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let mut task = tokio::spawn(ticketrail_server::run(config, async {
            let _ = stopped.await;
        }));
        let address = tokio::select! {
            ended = &mut task => panic!("expected a server, but it ended: {ended:?}"),
            address = ready_address(ready) => address,
        };
        Self { address, dir, stop, task }
    }

    /// Asks it to stop, without waiting.
    pub(crate) fn begin_stop(self) -> Stopping {
        let Self { dir, stop, task, .. } = self;
        stop.send(()).expect("a running server");
        Stopping { dir, task }
    }

    /// Stops it in order; returns its directory.
    pub(crate) async fn stop(self) -> TempDir {
        self.begin_stop().wait().await
    }

    /// Where it answers probes.
    pub(crate) fn http(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("http")).expect("an HTTP address")
    }

    /// A connection of its own.
    pub(crate) async fn channel(&self) -> Channel {
        let endpoint = Channel::from_shared(format!("http://{}", self.address)).expect("an address");
        endpoint.connect().await.expect("a connection")
    }

    pub(crate) async fn queues(&self) -> QueueServiceClient<Channel> {
        QueueServiceClient::new(self.channel().await).max_decoding_message_size(16 << 20)
    }

    pub(crate) async fn admin(&self) -> AdminServiceClient<Channel> {
        AdminServiceClient::new(self.channel().await)
    }
}

/// A server that stops.
pub(crate) struct Stopping {
    dir: TempDir,
    task: JoinHandle<anyhow::Result<()>>,
}

impl Stopping {
    pub(crate) async fn wait(self) -> TempDir {
        let ended = tokio::time::timeout(DEADLINE, self.task).await.expect("a stop within the deadline");
        ended.expect("no panic").expect("an orderly stop");
        self.dir
    }
}

async fn ready_address(file: PathBuf) -> String {
    poll("the ready file", async || std::fs::read_to_string(&file).ok()).await
}

/// Waits until `count` receives are parked, as the node's status tells.
pub(crate) async fn parked(server: &Server, count: u64) {
    let mut admin = server.admin().await;
    poll(&format!("{count} parked receives"), async || {
        let status = admin.get_status(v1::GetStatusRequest {}).await.expect("a status").into_inner();
        (status.parked_receives == count).then_some(())
    })
    .await;
}

pub(crate) fn message(body: &str) -> v1::NewMessage {
    v1::NewMessage { body: Bytes::copy_from_slice(body.as_bytes()), ..Default::default() }
}

pub(crate) fn enqueue(queue: &str, messages: Vec<v1::NewMessage>) -> v1::EnqueueRequest {
    v1::EnqueueRequest { queue: queue.into(), messages, ..Default::default() }
}

/// Puts `bodies` on `queue`; returns their ids.
pub(crate) async fn send(client: &mut QueueServiceClient<Channel>, queue: &str, bodies: &[&str]) -> Vec<String> {
    let request = enqueue(queue, bodies.iter().map(|body| message(body)).collect());
    let response = client.enqueue(request).await.expect("an enqueue").into_inner();
    response.results.iter().map(|result| enqueued(result).message_id.clone()).collect()
}

pub(crate) fn enqueued(result: &v1::EnqueueResult) -> &v1::Enqueued {
    match &result.outcome {
        Some(v1::enqueue_result::Outcome::Enqueued(enqueued)) => enqueued,
        other => panic!("expected a message on its queue, but {other:?}"),
    }
}

pub(crate) fn refused(result: &v1::EnqueueResult) -> &v1::ItemError {
    match &result.outcome {
        Some(v1::enqueue_result::Outcome::Error(error)) => error,
        other => panic!("expected a refusal, but {other:?}"),
    }
}

pub(crate) fn receive(queue: &str, max_messages: u32, wait: Duration) -> v1::ReceiveRequest {
    v1::ReceiveRequest {
        queue: queue.into(),
        max_messages,
        wait: Some(wait.try_into().expect("a wait")),
        worker: "tester".into(),
        ..Default::default()
    }
}

/// Receives at most `max` messages, waiting as long as it takes for a first.
pub(crate) async fn take(client: &mut QueueServiceClient<Channel>, queue: &str, max: u32) -> Vec<v1::Delivery> {
    let response = client.receive(receive(queue, max, Duration::from_secs(15))).await.expect("a receive");
    response.into_inner().deliveries
}

/// Receives at most `max` messages, waiting for none.
pub(crate) async fn glance(client: &mut QueueServiceClient<Channel>, queue: &str, max: u32) -> Vec<v1::Delivery> {
    client.receive(receive(queue, max, Duration::ZERO)).await.expect("a receive").into_inner().deliveries
}

pub(crate) fn body(delivery: &v1::Delivery) -> &[u8] {
    &delivery.message.as_ref().expect("a message").body
}

pub(crate) fn settlement(delivery: &v1::Delivery, verdict: v1::settlement::Verdict) -> v1::Settlement {
    v1::Settlement { lease_token: delivery.lease_token.clone(), verdict: Some(verdict) }
}

pub(crate) fn ack(delivery: &v1::Delivery) -> v1::Settlement {
    settlement(delivery, v1::settlement::Verdict::Ack(v1::Ack::default()))
}

pub(crate) async fn settle(
    client: &mut QueueServiceClient<Channel>,
    settlements: Vec<v1::Settlement>,
) -> Vec<v1::settle_result::Outcome> {
    let request = v1::SettleRequest { settlements, ..Default::default() };
    let response = client.settle(request).await.expect("a settle").into_inner();
    response.results.into_iter().map(|result| result.outcome.expect("an outcome")).collect()
}

/// Code, reason and metadata of a refused call.
pub(crate) fn why(status: &Status) -> (Code, String, Vec<(String, String)>) {
    let details = status.get_error_details();
    let info = details.error_info().unwrap_or_else(|| panic!("expected a reason, but {status:?}"));
    assert_eq!(info.domain, "ticketrail");
    let mut metadata: Vec<_> = info.metadata.clone().into_iter().collect();
    metadata.sort();
    (status.code(), info.reason.clone(), metadata)
}

pub(crate) fn code_and_reason(status: &Status) -> (Code, String) {
    let (code, reason, _) = why(status);
    (code, reason)
}
