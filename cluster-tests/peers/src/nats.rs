//! NATS JetStream: a stream with three replicas, each synced before it counts, and a work queue's pull consumer.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use async_nats::jetstream::consumer::{AckPolicy, PullConsumer, pull};
use async_nats::jetstream::stream::{Config, RetentionPolicy, StorageType};
use async_nats::jetstream::{self, Message};
use bytes::Bytes;
use futures::StreamExt as _;

use crate::broker::{Broker, Consumer, Producer};
use crate::poll::poll;
use crate::process::{Process, free_ports};

/// The name of stream and subject.
const QUEUE: &str = "orders";
/// The name of the durable consumer that all connections share.
const WORKERS: &str = "workers";
/// Nodes, and replicas of the stream.
const NODES: usize = 3;

/// A cluster.
pub(crate) struct Nats {
    urls: Vec<String>,
    _nodes: Vec<Process>,
}

impl Broker for Nats {
    const NAME: &'static str = "NATS JetStream";
    type Producer = Publisher;
    type Consumer = Puller;

    async fn start(dir: &Path, program: &Path) -> anyhow::Result<Self> {
        let ports = free_ports(2 * NODES)?;
        let (clients, peers) = ports.split_at(NODES);
        let mut nodes = Vec::new();
        for (number, (client, peer)) in clients.iter().zip(peers).enumerate() {
            let home = dir.join(format!("nats-{number}"));
            std::fs::create_dir(&home)?;
            let file = home.join("nats.conf");
            std::fs::write(&file, config(number, *client, *peer, peers, &home.join("data")))?;
            let mut command = Command::new(program);
            command.arg("--config").arg(&file);
            nodes.push(Process::start(command, &home.join("log"))?);
        }
        let urls: Vec<String> = clients.iter().map(|port| format!("nats://127.0.0.1:{port}")).collect();
        poll("a stream with all its replicas", async || {
            for node in &mut nodes {
                node.check()?;
            }
            make_stream(&urls[0]).await
        })
        .await?;
        Ok(Self { urls, _nodes: nodes })
    }

    async fn producer(&self, number: usize) -> anyhow::Result<Publisher> {
        Ok(Publisher(self.connect(number).await?))
    }

    async fn consumer(&self, number: usize, prefetch: usize) -> anyhow::Result<Puller> {
        let context = self.connect(number).await?;
        let consumer: PullConsumer = context.get_consumer_from_stream(WORKERS, QUEUE).await?;
        let messages = consumer.stream().max_messages_per_batch(prefetch).messages().await?;
        Ok(Puller(messages))
    }
}

impl Nats {
    /// A connection of its own, to one node after the other.
    async fn connect(&self, number: usize) -> anyhow::Result<jetstream::Context> {
        let url = &self.urls[number % self.urls.len()];
        Ok(jetstream::new(async_nats::connect(url).await.with_context(|| format!("connect to {url}"))?))
    }
}

/// A node's configuration: each write synced before it is acknowledged.
fn config(number: usize, client: u16, peer: u16, peers: &[u16], data: &Path) -> String {
    let routes: Vec<String> = peers.iter().map(|port| format!("nats://127.0.0.1:{port}")).collect();
    format!(
        "server_name: n{number}\nlisten: 127.0.0.1:{client}\n\
         jetstream {{ store_dir: {data:?}, sync_interval: always, max_file_store: 20GB }}\n\
         cluster {{ name: peers, listen: 127.0.0.1:{peer}, routes: [{}] }}\n",
        routes.join(", ")
    )
}

/// Makes the stream and its consumer, and fails until all replicas are there and have caught up.
async fn make_stream(url: &str) -> anyhow::Result<()> {
    let context = jetstream::new(async_nats::connect(url).await?);
    let config = Config {
        name: QUEUE.to_owned(),
        subjects: vec![QUEUE.to_owned()],
        retention: RetentionPolicy::WorkQueue,
        storage: StorageType::File,
        num_replicas: NODES,
        ..Config::default()
    };
    let mut stream = context.get_or_create_stream(config).await?;
    let config = pull::Config {
        durable_name: Some(WORKERS.to_owned()),
        ack_policy: AckPolicy::Explicit,
        ack_wait: Duration::from_secs(60),
        // More than all connections have in hand: it never holds one back.
        max_ack_pending: 20_000,
        ..pull::Config::default()
    };
    stream.get_or_create_consumer(WORKERS, config).await?;
    let cluster = stream.info().await?.cluster.clone().context("expected a stream in a cluster")?;
    let current = cluster.replicas.iter().filter(|replica| replica.current).count();
    ensure!(cluster.leader.is_some() && current == NODES - 1, "expected {NODES} replicas, but {cluster:?}");
    Ok(())
}

/// A connection that publishes.
pub(crate) struct Publisher(jetstream::Context);

impl Producer for Publisher {
    async fn send(&mut self, body: Bytes) -> anyhow::Result<impl Future<Output = anyhow::Result<()>> + Send + 'static> {
        let acked = self.0.publish(QUEUE, body).await?.into_future();
        Ok(async move {
            acked.await?;
            Ok(())
        })
    }
}

/// A connection that pulls.
pub(crate) struct Puller(pull::Stream);

impl Consumer for Puller {
    type Ack = Message;

    async fn receive(&mut self) -> anyhow::Result<(Bytes, Message)> {
        let message = self.0.next().await.context("expected a message, but the stream has ended")??;
        Ok((message.payload.clone(), message))
    }

    async fn ack(&mut self, message: Message) -> anyhow::Result<()> {
        message.ack().await.map_err(|error| anyhow::anyhow!("{error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_node_has_its_own_ports_and_syncs_always() {
        let text = config(1, 4_001, 5_001, &[5_000, 5_001, 5_002], "/d".as_ref());
        for part in [
            "server_name: n1\n",
            "\nlisten: 127.0.0.1:4001\n",
            "store_dir: \"/d\", sync_interval: always",
            "listen: 127.0.0.1:5001, routes: [nats://127.0.0.1:5000, nats://127.0.0.1:5001, nats://127.0.0.1:5002]",
        ] {
            assert!(text.contains(part), "{text}");
        }
    }
}
