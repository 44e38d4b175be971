//! Ticketrail: a queue on three nodes, through the SDK's streams.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use ticketrail_client::{Client, Delivery, QueueSettings, Reason};

use crate::broker::{Broker, Consumer, Producer};
use crate::poll::poll;
use crate::process::{Process, free_ports};

/// The queue's name.
const QUEUE: &str = "orders";
/// How long a call may take while the cluster comes up.
const QUICK: Duration = Duration::from_secs(2);
/// Nodes, all of them voters.
const NODES: usize = 3;

/// A cluster.
pub(crate) struct Rail {
    addresses: Vec<String>,
    _nodes: Vec<Process>,
}

impl Broker for Rail {
    const NAME: &'static str = "Ticketrail";
    type Producer = Sender;
    type Consumer = Receiver;

    async fn start(dir: &Path, program: &Path) -> anyhow::Result<Self> {
        let ports = free_ports(2 * NODES)?;
        let (clients, peers) = ports.split_at(NODES);
        let named: Vec<String> =
            peers.iter().enumerate().map(|(number, port)| format!("n{number}=127.0.0.1:{port}")).collect();
        let named = named.join(",");
        let mut nodes = Vec::new();
        for (number, (client, peer)) in clients.iter().zip(peers).enumerate() {
            let home = dir.join(format!("rail-{number}"));
            std::fs::create_dir(&home)?;
            let mut command = Command::new(program);
            command
                .args(["serve", "--name", &format!("n{number}"), "--peers", &named])
                .args(["--listen", &format!("127.0.0.1:{client}"), "--peer-listen", &format!("127.0.0.1:{peer}")])
                .arg("--data-dir")
                .arg(home.join("data"))
                .args(["--http-listen", "none", "--log-level", "warn"])
                .env_remove("TICKETRAIL_CONFIG");
            nodes.push(Process::start(command, &home.join("log"))?);
        }
        let addresses: Vec<String> = clients.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        poll("a queue on all nodes", async || {
            for node in &mut nodes {
                node.check()?;
            }
            make_queue(&addresses).await
        })
        .await?;
        Ok(Self { addresses, _nodes: nodes })
    }

    async fn producer(&self, number: usize) -> anyhow::Result<Sender> {
        let client = connect(&self.addresses, number)?;
        client.warm_up().await?;
        Ok(Sender(client.queue(QUEUE).producer()))
    }

    async fn consumer(&self, number: usize, prefetch: usize) -> anyhow::Result<Receiver> {
        let client = connect(&self.addresses, number)?;
        client.warm_up().await?;
        let consumer = ticketrail_client::Consumer::builder(&client.queue(QUEUE));
        Ok(Receiver(consumer.prefetch(prefetch).worker("peers").start()))
    }
}

/// A connection of its own, to one node after the other.
fn connect(addresses: &[String], number: usize) -> anyhow::Result<Client> {
    let mut addresses = addresses.to_vec();
    addresses.rotate_left(number % NODES);
    Ok(Client::builder().addresses(addresses).connect()?)
}

/// Makes the queue, and fails until each node has applied that.
async fn make_queue(addresses: &[String]) -> anyhow::Result<()> {
    let quick = |addresses: &[String]| Client::builder().addresses(addresses).timeout(QUICK).connect();
    match quick(addresses)?.admin().create_queue(QUEUE, QueueSettings::default()).await {
        Ok(_) => {}
        Err(error) if error.reason() == Some(&Reason::QueueExists) => {}
        Err(error) => return Err(error.into()),
    }
    for address in addresses {
        quick(std::slice::from_ref(address))?.queue(QUEUE).peek().stale_ok().await.context("ask a single node")?;
    }
    Ok(())
}

/// A connection that sends.
pub(crate) struct Sender(ticketrail_client::Producer);

impl Producer for Sender {
    async fn send(&mut self, body: Bytes) -> anyhow::Result<impl Future<Output = anyhow::Result<()>> + Send + 'static> {
        let confirm = self.0.send(body).await?;
        Ok(async move {
            confirm.await?;
            Ok(())
        })
    }
}

/// A connection that receives.
pub(crate) struct Receiver(ticketrail_client::Consumer);

impl Consumer for Receiver {
    type Ack = Delivery;

    async fn receive(&mut self) -> anyhow::Result<(Bytes, Delivery)> {
        let delivery = self.0.next().await?.context("expected a delivery, but the consumer was stopped")?;
        Ok((delivery.message.body.clone(), delivery))
    }

    /// On its way when this returns. It is confirmed later, and only then is there room for the next delivery.
    async fn ack(&mut self, delivery: Delivery) -> anyhow::Result<()> {
        drop(delivery.ack());
        Ok(())
    }
}
