//! A node to test, and the calls that tests make.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ticketrail_core::command::{
    Ack, Commit, Content, CreateQueue, Enqueue, OpenSession, QueueRef, QueueSettings, Receive, Settle, Verdict,
};
use ticketrail_core::query::{Clock as StateClock, Delivery, QueueInfo};
use ticketrail_core::reply::{Answered, EnqueueOutcome, Enqueued, SettleOutcome};
use ticketrail_core::{Answer, Command, Query, Reply, RequestId};
use ticketrail_node::call::{Call, CallError, Deliveries, Done, Freshness, ReceiveCall};
use ticketrail_node::{Clock, Disk, Handle, Node, NodeConfig, Work};
use ticketrail_storage::mem::{MemLog, MemState};

/// The longest that anything here takes.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// A node and its stores.
pub(crate) struct Rig {
    pub(crate) node: Node,
    pub(crate) handle: Handle,
    pub(crate) log: Arc<MemLog>,
    pub(crate) state: Arc<MemState>,
    pub(crate) config: NodeConfig,
}

impl Rig {
    pub(crate) async fn start() -> Self {
        Self::start_with(NodeConfig::default()).await
    }

    pub(crate) async fn start_with(config: NodeConfig) -> Self {
        Self::start_on(config, Arc::default(), Arc::default(), Disk::endless()).await
    }

    /// A node whose time stands still unless somebody waits, for a test with `start_paused`.
    pub(crate) async fn simulated() -> Self {
        let clock = Clock::simulated(1_700_000_000_000);
        Self::start_with(NodeConfig { clock, work: Work::Inline, ..NodeConfig::default() }).await
    }

    pub(crate) async fn start_on(config: NodeConfig, log: Arc<MemLog>, state: Arc<MemState>, disk: Disk) -> Self {
        let node = Node::start(config.clone(), log.clone(), state.clone(), disk).await.expect("a node");
        let handle = node.handle();
        tokio::time::timeout(SOON, handle.serving()).await.expect("a leader");
        Self { node, handle, log, state, config }
    }

    /// Stops in order and starts again on the same stores.
    pub(crate) async fn restart(self) -> Self {
        self.node.shutdown().await.expect("an orderly stop");
        Self::start_on(self.config, self.log, self.state, Disk::endless()).await
    }

    /// Starts again on what a loss of power leaves.
    pub(crate) async fn crash(self) -> Self {
        let (log, state) = (Arc::new(self.log.crash()), Arc::new(self.state.crash()));
        self.node.shutdown().await.expect("the old node to end");
        Self::start_on(self.config, log, state, Disk::endless()).await
    }

    pub(crate) async fn stop(self) {
        self.node.shutdown().await.expect("an orderly stop");
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.config.clock
    }

    pub(crate) async fn call(&self, command: Command) -> Result<Done, CallError> {
        call(&self.handle, command).await
    }

    pub(crate) async fn call_as(&self, id: RequestId, repeat: bool, command: Command) -> Result<Done, CallError> {
        self.handle.call(Call { command, id: Some(id), repeat, timeout: SOON }).await
    }

    pub(crate) async fn enqueue(&self, queue: &str, body: &str) -> Enqueued {
        enqueued(&self.call(enqueue(queue, &[body], 0)).await.expect("an enqueue").reply).remove(0)
    }

    pub(crate) async fn receive(&self, queue: &str, wait_ms: u64) -> Vec<Delivery> {
        self.receive_call(receive(queue, 1, wait_ms)).await.expect("a receive").deliveries
    }

    pub(crate) async fn receive_call(&self, call: ReceiveCall) -> Result<Deliveries, CallError> {
        self.handle.receive(call).await
    }

    pub(crate) async fn settle(&self, delivery: &Delivery, verdict: Verdict) -> SettleOutcome {
        let done = self.call(settle(delivery, verdict)).await.expect("a settlement");
        match done.reply.answered {
            Some(Answered::Committed(mut committed)) => committed.settled.remove(0).outcome.expect("an outcome"),
            other => panic!("expected a commit's answer, but got {other:?}"),
        }
    }

    pub(crate) async fn ack(&self, delivery: &Delivery) -> SettleOutcome {
        self.settle(delivery, Verdict::Ack(Ack::default())).await
    }

    pub(crate) async fn create(&self, name: &str, settings: QueueSettings) {
        let command = CreateQueue { queue: Some(queue(name)), settings: Some(settings) };
        self.call(Command::CreateQueue(command)).await.expect("a queue");
    }

    pub(crate) async fn open_session(&self) -> u64 {
        let done = self.call(Command::OpenSession(OpenSession { renew: 0 })).await.expect("a session");
        match done.reply.answered {
            Some(Answered::SessionOpened(opened)) => opened.session,
            other => panic!("expected a session, but got {other:?}"),
        }
    }

    pub(crate) async fn info(&self, name: &str) -> Option<QueueInfo> {
        let answer = self.handle.query(Query::Queue(queue(name)), Freshness::Linearizable).await.expect("an answer").0;
        let Answer::Queue(info) = answer else { panic!("expected a queue, but got {answer:?}") };
        info
    }

    pub(crate) async fn clocks(&self) -> StateClock {
        let answer = self.handle.query(Query::Clock, Freshness::Linearizable).await.expect("an answer").0;
        let Answer::Clock(clock) = answer else { panic!("expected clocks, but got {answer:?}") };
        clock
    }
}

pub(crate) async fn call(handle: &Handle, command: Command) -> Result<Done, CallError> {
    handle.call(Call { command, id: None, repeat: false, timeout: SOON }).await
}

pub(crate) fn queue(name: &str) -> QueueRef {
    QueueRef { namespace: "default".into(), name: name.into() }
}

pub(crate) fn enqueue(name: &str, bodies: &[&str], delay_ms: u64) -> Command {
    let part = |body: &&str| Enqueue {
        queue: 0,
        message: Some(Content { body: Bytes::copy_from_slice(body.as_bytes()), ..Content::default() }),
        delay_ms,
        ..Enqueue::default()
    };
    let enqueue = bodies.iter().map(part).collect();
    Command::Commit(Commit { queues: vec![queue(name)], enqueue, auto_create: true, ..Commit::default() })
}

pub(crate) fn settle(delivery: &Delivery, verdict: Verdict) -> Command {
    let settle = vec![Settle { token: delivery.token.clone(), verdict: Some(verdict) }];
    Command::Commit(Commit { settle, ..Commit::default() })
}

pub(crate) fn receive(name: &str, max: u32, wait_ms: u64) -> ReceiveCall {
    let receive = Receive { queues: vec![queue(name)], max, worker: "tester".into(), ..Receive::default() };
    ReceiveCall { receive, id: None, repeat: false, wait: Duration::from_millis(wait_ms), auto_create: true }
}

pub(crate) fn enqueued(reply: &Reply) -> Vec<Enqueued> {
    let Some(Answered::Committed(committed)) = &reply.answered else {
        panic!("expected a commit's answer, but got {reply:?}");
    };
    let outcome = |outcome: &Option<EnqueueOutcome>| match outcome {
        Some(EnqueueOutcome::Enqueued(enqueued)) => *enqueued,
        other => panic!("expected an enqueued message, but got {other:?}"),
    };
    committed.enqueued.iter().map(|result| outcome(&result.outcome)).collect()
}

pub(crate) fn body(delivery: &Delivery) -> &str {
    std::str::from_utf8(&delivery.content.body).expect("text")
}
