//! What deliveries of a stream leave for its task: settlements, extensions, and that they are gone.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ticketrail_proto::v1;
use tokio::sync::{Notify, oneshot};

use crate::Error;
use crate::settle::Settled;

/// A settlement on its way.
#[derive(Debug)]
pub(crate) struct Settle {
    pub(crate) settlement: v1::Settlement,
    pub(crate) reply: oneshot::Sender<Result<Settled, Error>>,
}

/// An extension on its way.
#[derive(Debug)]
pub(crate) struct Extend {
    pub(crate) extension: v1::Extension,
    /// What is left of the lease is counted from here: from before the first attempt.
    pub(crate) asked_at: Instant,
    pub(crate) reply: oneshot::Sender<Result<(Instant, Duration), Error>>,
}

/// What waits for a stream's task. It holds a settlement and an extension for each delivery that is held at most.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    inner: Mutex<Inner>,
    filled: Notify,
}

#[derive(Debug, Default)]
pub(crate) struct Inner {
    pub(crate) settles: Vec<Settle>,
    pub(crate) extends: Vec<Extend>,
    /// Deliveries dropped without having been settled.
    pub(crate) dropped: usize,
    /// No more deliveries are wanted.
    pub(crate) stopped: bool,
    /// The task has ended.
    ended: bool,
}

impl Outbox {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Inner)) {
        change(&mut self.lock());
        self.filled.notify_one();
    }

    /// Waits until there may be something.
    pub(crate) async fn filled(&self) {
        self.filled.notified().await;
    }

    /// Takes all that is there.
    pub(crate) fn take(&self) -> Inner {
        let mut inner = self.lock();
        let (stopped, ended) = (inner.stopped, inner.ended);
        std::mem::replace(&mut *inner, Inner { stopped, ended, ..Inner::default() })
    }

    /// No more deliveries are wanted.
    pub(crate) fn stop(&self) {
        self.change(|inner| inner.stopped = true);
    }

    /// The task has ended: what comes is dropped, and who waits for it is told.
    pub(crate) fn end(&self) {
        let mut inner = self.lock();
        inner.ended = true;
        inner.settles.clear();
        inner.extends.clear();
    }

    /// Puts an extension in. Those that nobody waits for any more make room.
    pub(crate) fn extend(&self, extend: Extend) {
        self.change(|inner| {
            if !inner.ended {
                inner.extends.retain(|extend| !extend.reply.is_closed());
                inner.extends.push(extend);
            }
        });
    }
}

/// One delivery's hold on its stream's room. Dropped, it is given back.
#[derive(Debug)]
pub(crate) struct Hold {
    outbox: Arc<Outbox>,
    settled: bool,
}

impl Hold {
    pub(crate) fn new(outbox: &Arc<Outbox>) -> Self {
        Self { outbox: Arc::clone(outbox), settled: false }
    }

    pub(crate) fn outbox(&self) -> &Outbox {
        &self.outbox
    }

    /// Settles: goes out with what else is there.
    pub(crate) fn settle(mut self, settlement: v1::Settlement) -> oneshot::Receiver<Result<Settled, Error>> {
        let (reply, settled) = oneshot::channel();
        // It gives its room back by itself.
        self.settled = true;
        self.outbox.change(|inner| {
            if !inner.ended {
                inner.settles.push(Settle { settlement, reply });
            }
        });
        settled
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if !self.settled {
            self.outbox.change(|inner| inner.dropped += 1);
        }
    }
}
