//! The load of a drill: clients that record what they ask and are told (load L1), and beside them some that use the SDK
//! and keep a ledger of their own.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use ticketrail_cluster_tests::load::{self as sdk, Tally as SdkTally};
use ticketrail_cluster_tests::server::DEADLINE;
use ticketrail_history::Recorder;
use ticketrail_history::format::Kind;
use ticketrail_load::{Dial, Load, Phase, Plan, Tally};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tonic::transport::{Channel, Endpoint};

use crate::poll::poll;
use crate::switch::client_address;

/// The queue that clients of the SDK work on.
pub const SDK_QUEUE: &str = "sdk";
/// How long a connection may take, and how long one may be silent before it is given up.
const CONNECT: Duration = Duration::from_secs(1);
const SILENT: Duration = Duration::from_secs(2);
/// Everything is finished within so long after the last message: leases that ran out and retries included.
const DRAINED: Duration = Duration::from_secs(90);

/// What the load is.
#[derive(Debug, Clone)]
pub struct Mixed {
    /// Clients that record.
    pub recorded: Plan,
    /// Clients that use the SDK; their queue is [`SDK_QUEUE`].
    pub sdk: sdk::Plan,
}

/// The usual load: paced, so that there is processor time for the nodes. In the form that the gate runs, leases are
/// short, for whoever never settles holds up the end.
pub fn usual(short: bool) -> Mixed {
    let lease = Duration::from_secs(if short { 2 } else { 5 });
    let recorded = Plan { producers: 8, rate: Some(120.0), workers: 10, lease, ..Plan::default() };
    let sdk = sdk::Plan {
        callers: 3,
        streamers: 1,
        per_second: Some(60),
        consumers: 1,
        receivers: 1,
        body: 512,
        ..sdk::Plan::of(SDK_QUEUE)
    };
    Mixed { recorded, sdk }
}

/// The load, running.
pub struct Traffic {
    recorded: Load,
    clients: Vec<JoinHandle<()>>,
    sdk: sdk::Load,
    addresses: Vec<String>,
    runtime: Runtime,
}

/// What it came to.
#[derive(Debug)]
pub struct Sum {
    /// What clients of the SDK were told.
    pub sdk: SdkTally,
    /// Calls of recording clients that were answered, of all kinds.
    pub ok: u64,
    /// Those that certainly did nothing.
    pub failed: u64,
    /// Those of which nobody knows.
    pub unknown: u64,
    /// The same as text, by kind, and what was seen beside.
    pub text: String,
}

impl Traffic {
    /// Starts the clients. Each recording one calls from an address of its own.
    ///
    /// # Errors
    /// Where an address is none.
    pub fn start(addresses: Vec<String>, load: Mixed, recorder: Recorder, seed: u64) -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let endpoints = addresses.iter().map(|address| Ok(Endpoint::from_shared(address.clone())?));
        let endpoints = endpoints.collect::<anyhow::Result<Vec<_>>>()?;
        let nodes = endpoints.len();
        let dial: Dial = Arc::new(move |client, node| channel(&endpoints, client, node));
        let entered = runtime.enter();
        let (recorded, clients) = Load::new(&load.recorded, nodes, dial, recorder, seed);
        let clients = clients.into_iter().map(|client| runtime.spawn(client.run)).collect();
        drop(entered);
        let sdk = sdk::Load::start(&addresses, load.sdk)?;
        Ok(Self { recorded, clients, sdk, addresses, runtime })
    }

    /// Calls that put messages on queues and were answered so far.
    pub fn acknowledged(&self) -> u64 {
        self.recorded.tally().of(Kind::Enqueue).ok
    }

    /// Waits until so many more messages are acknowledged to recording clients, and some to those of the SDK.
    ///
    /// # Errors
    /// Where they are not in time.
    pub fn until_more(&self, more: u64) -> anyhow::Result<()> {
        let wanted = self.acknowledged() + more;
        poll(DEADLINE, || Ok((self.acknowledged() >= wanted).then_some(()))).with_context(|| {
            let (is, calls) = (self.acknowledged(), self.recorded.tally().calls());
            format!("wait until {wanted} enqueues are acknowledged, of which there are {is}; all calls: {calls:?}")
        })
    }

    /// The same for clients of the SDK.
    ///
    /// # Errors
    /// Where they are not in time.
    pub fn until_more_by_sdk(&self, more: u64) -> anyhow::Result<()> {
        self.sdk.until_more(more)
    }

    /// The longest times between two acknowledged enqueues since this was asked last, and up to now: of recording
    /// clients, and of those of the SDK.
    pub fn longest_gaps(&self) -> (Duration, Duration) {
        let _entered = self.runtime.enter();
        (self.recorded.writes().take(), self.sdk.longest_gap())
    }

    /// What recording clients have done so far.
    pub fn tally(&self) -> &Tally {
        self.recorded.tally()
    }

    /// Operations acknowledged so far, of all clients.
    pub fn operations(&self) -> u64 {
        let recorded: u64 = self.recorded.tally().calls().values().map(|count| count.ok).sum();
        recorded + self.sdk.acknowledged()
    }

    /// Stops the producers, waits until each message is finished, and ends all clients.
    ///
    /// # Errors
    /// Where something is left, or a client of the SDK was told what it should not have been.
    pub fn drain(self) -> anyhow::Result<Sum> {
        let Self { recorded, clients, sdk, addresses, runtime } = self;
        recorded.set(Phase::Drain);
        let told = sdk.stop()?;
        told.check_no_error()?;
        let stats = sdk::queue_stats(&addresses, SDK_QUEUE)?;
        told.check_finished(stats.enqueued)?;
        ensure!(stats.depth() == 0, "expected an empty queue, but it holds {}", stats.depth());
        poll(DRAINED, || Ok(recorded.is_drained().then_some(()))).with_context(|| {
            format!("wait until each message is finished; all seen: {:?}", recorded.tally().all_seen())
        })?;
        recorded.set(Phase::Stop);
        runtime.block_on(async {
            for client in clients {
                tokio::time::timeout(DRAINED, client).await.context("wait until a client ends")??;
            }
            Ok::<_, anyhow::Error>(())
        })?;
        let calls = recorded.tally().calls();
        let sum = |part: fn(&ticketrail_load::Count) -> u64| calls.values().map(part).sum();
        let by_kind: Vec<String> = calls.iter().map(|(kind, count)| format!("{} {}", kind.name(), count.ok)).collect();
        let seen = recorded.tally().all_seen();
        let seen: Vec<String> = seen.iter().map(|(what, times)| format!("{what} {times}")).collect();
        Ok(Sum {
            sdk: told,
            ok: sum(|count| count.ok),
            failed: sum(|count| count.failed),
            unknown: sum(|count| count.unknown),
            text: format!("{}; {}", by_kind.join(", "), seen.join(", ")),
        })
    }
}

/// The way from a client to a node.
fn channel(endpoints: &[Endpoint], client: u32, node: usize) -> Channel {
    let from = client_address(usize::try_from(client).unwrap_or(0));
    // There is one for each node that the load was told of.
    let endpoint = endpoints.get(node).cloned().unwrap_or_else(|| Endpoint::from_static("http://127.0.0.1:1"));
    endpoint
        .local_address(Some(from.into()))
        .connect_timeout(CONNECT)
        .http2_keep_alive_interval(SILENT)
        .keep_alive_timeout(SILENT)
        .keep_alive_while_idle(true)
        .tcp_nodelay(true)
        .connect_lazy()
}
