//! What the server is doing, for those who look from outside.

use std::sync::Arc;

use ticketrail_node::Handle;
use ticketrail_storage::rocks::Syncs;
use tokio::sync::watch;

/// What the server is doing.
#[derive(Clone)]
pub(crate) enum Phase {
    /// There is no node yet. The text goes on a sentence: "it is still …".
    Starting(&'static str),
    /// The node runs.
    Running(Running),
    /// It was told to stop, and does so in order.
    Stopping(Running),
    /// The node is gone.
    Stopped,
}

/// A node that runs.
#[derive(Clone)]
pub(crate) struct Running {
    pub(crate) node: Handle,
    /// The term that it knew of when it started.
    pub(crate) first_term: u64,
    /// What the synced writes of its log were like.
    pub(crate) syncs: Arc<Syncs>,
}

impl Phase {
    /// The node, while there is one.
    pub(crate) fn running(&self) -> Option<&Running> {
        match self {
            Phase::Running(running) | Phase::Stopping(running) => Some(running),
            Phase::Starting(_) | Phase::Stopped => None,
        }
    }
}

/// Where the server says what it is doing.
pub(crate) struct Board(watch::Sender<Phase>);

impl Board {
    /// A server that starts.
    pub(crate) fn new() -> Self {
        Self(watch::Sender::new(Phase::Starting("opening its data directory")))
    }

    /// For those who look.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Phase> {
        self.0.subscribe()
    }

    /// It is still doing `what` before there is a node.
    pub(crate) fn starting(&self, what: &'static str) {
        self.0.send_replace(Phase::Starting(what));
    }

    /// The node runs.
    pub(crate) fn running(&self, running: Running) {
        self.0.send_replace(Phase::Running(running));
    }

    /// It stops.
    pub(crate) fn stopping(&self) {
        self.0.send_modify(|phase| {
            if let Phase::Running(running) = phase {
                *phase = Phase::Stopping(running.clone());
            }
        });
    }

    /// The node is gone: nobody may hold on to it.
    pub(crate) fn stopped(&self) {
        self.0.send_replace(Phase::Stopped);
    }
}
