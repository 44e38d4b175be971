//! Working: a handler for each message, so many at a time.

mod job;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use self::job::{Ended, Job, Phase};
use crate::message::Message;
use crate::{Consumer, Error, Queue};

/// How long running handlers have, unless told otherwise, once the worker is to stop.
const DRAIN: Duration = Duration::from_secs(20);
/// How long a message is kept back whose handler said that something else is unavailable, unless it said how long.
const PAUSE: Duration = Duration::from_secs(1);
/// The longest that it is kept back.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// What a handler is given beside the typed body: the message, and how often it was tried.
#[derive(Debug, Clone, PartialEq)]
pub struct Task {
    /// The message.
    pub message: Message,
    /// Leases ever granted on it, this one included; never goes down. Pass it to your own database as the epoch.
    pub receive_count: u32,
    /// Failures counted so far in the current window.
    pub failures: u32,
}

/// Why a handler did not do it. Code at most 256 bytes, text 512: a worker cuts what is longer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TaskError {
    /// Worth another attempt: a failure is counted, and the message waits or, with its attempts used up, is dead-lettered.
    #[error("expected success, but {code}: {text}; to be tried again")]
    Retry {
        /// A short code to group failures by.
        code: String,
        /// A text for a person.
        text: String,
        /// The time until the next attempt. `None`: the queue's backoff.
        delay: Option<Duration>,
    },
    /// It will never succeed: dead-lettered at once.
    #[error("expected success, but {code}: {text}; for good")]
    Permanent {
        /// A short code to group failures by.
        code: String,
        /// A text for a person.
        text: String,
    },
    /// Something that the handler needs is not there. Nothing is counted. The worker keeps the message, and with it the
    /// handler's place, for a while and then releases it: a worker whose other side is down slows down by itself.
    #[error("expected what it needs, but {text}")]
    Unavailable {
        /// A text for a person.
        text: String,
        /// How long it is kept, at most 60 s. `None`: 1 s.
        pause: Option<Duration>,
    },
}

impl TaskError {
    /// Worth another attempt, after the queue's backoff.
    pub fn retry(code: impl Into<String>, text: impl ToString) -> Self {
        TaskError::Retry { code: code.into(), text: text.to_string(), delay: None }
    }

    /// Never to succeed.
    pub fn permanent(code: impl Into<String>, text: impl ToString) -> Self {
        TaskError::Permanent { code: code.into(), text: text.to_string() }
    }

    /// Something is not there.
    pub fn unavailable(text: impl ToString) -> Self {
        TaskError::Unavailable { text: text.to_string(), pause: None }
    }
}

/// What a handler gives back: nothing, or at most 64 KiB that are kept for a while where the queue retains outcomes. More is
/// a permanent failure, with the code `OUTPUT`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Output(pub Bytes);

impl From<()> for Output {
    fn from((): ()) -> Self {
        Self::default()
    }
}

impl From<Bytes> for Output {
    fn from(bytes: Bytes) -> Self {
        Self(bytes)
    }
}

impl From<Vec<u8>> for Output {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes.into())
    }
}

impl From<String> for Output {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

impl From<&'static str> for Output {
    fn from(text: &'static str) -> Self {
        Self(Bytes::from_static(text.as_bytes()))
    }
}

/// What a worker did with its deliveries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Worked {
    /// Done.
    pub acked: u64,
    /// Failed, worth another attempt; panics among them.
    pub retried: u64,
    /// Failed for good; bodies that could not be decoded among them.
    pub rejected: u64,
    /// Given back unfinished: nothing counted.
    pub released: u64,
    /// Settled in vain: the lease was over, or the answer never came. The message is delivered again.
    pub lost: u64,
}

impl Worked {
    fn count(&mut self, ended: Ended) {
        match ended {
            Ended::Acked => self.acked += 1,
            Ended::Retried => self.retried += 1,
            Ended::Rejected => self.rejected += 1,
            Ended::Released => self.released += 1,
            Ended::Lost => self.lost += 1,
        }
    }
}

/// Works on one queue: a handler for each message, so many at a time.
///
/// - A handler that returns `Ok` has its message acked; an error says what becomes of it: see [`TaskError`]. A handler that
///   panics has failed, worth another attempt (in a program built with `panic = "abort"` nothing is left to say so).
/// - Leases are extended when a third of them is over, while the handler runs or the message waits for its turn.
/// - A message whose lease is lost all the same is somebody else's: its handler goes on, and its outcome changes nothing. So
///   handlers should be idempotent, by the message's id, or fenced by [`Task::receive_count`].
/// - What the handler gives back goes with the ack: nothing, or an [`Output`] for queues that retain outcomes.
/// - Once it is to stop, no handler starts; messages that wait are released; running handlers have the drain time to
///   finish, then they are dropped and their messages released. Where its own future is dropped, leases run out.
///
/// ```no_run
/// use ticketrail_client::{Client, Task, TaskError, stop_signal};
///
/// #[derive(serde::Deserialize)]
/// struct Order {
///     table: u32,
/// }
///
/// async fn cook(order: Order, task: Task) -> Result<(), TaskError> {
///     if order.table == 0 {
///         return Err(TaskError::permanent("NO_TABLE", "expected a table from 1 on"));
///     }
///     println!("{} for table {}", task.message.id, order.table);
///     Ok(())
/// }
///
/// # async fn example() -> Result<(), ticketrail_client::Error> {
/// let client = Client::builder().addresses(["rail-0:50000", "rail-1:50000"]).connect()?;
/// let worked = client.queue("orders").worker().concurrency(16).run_json(cook, stop_signal()).await?;
/// println!("{} done", worked.acked);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "nothing is received before it runs"]
pub struct Worker {
    queue: Queue,
    also: Vec<String>,
    concurrency: usize,
    prefetch: Option<usize>,
    lease: Option<Duration>,
    name: String,
    drain: Duration,
}

impl Worker {
    /// A worker on `queue`.
    pub fn builder(queue: &Queue) -> Self {
        Self {
            queue: queue.clone(),
            also: Vec::new(),
            concurrency: 8,
            prefetch: None,
            lease: None,
            name: String::new(),
            drain: DRAIN,
        }
    }

    /// Another queue of the namespace to work on, behind those before it: what those have to give comes first. At most 15.
    pub fn also(mut self, queue: impl Into<String>) -> Self {
        self.also.push(queue.into());
        self
    }

    /// Handlers at one time, 1 to 5,000. Default 8.
    pub fn concurrency(mut self, handlers: usize) -> Self {
        self.concurrency = handlers.clamp(1, 5_000);
        self
    }

    /// Messages held at one time, running handlers' among them: at least as many as handlers, at most twice as many.
    /// Default: twice.
    pub fn prefetch(mut self, messages: usize) -> Self {
        self.prefetch = Some(messages);
        self
    }

    /// How long the messages are this worker's before it must extend, 1 s to 12 h. Default: the queue's.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }

    /// Who works, for the history; at most 256 bytes.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// How long running handlers have to finish, once it is to stop. Default 20 s.
    pub fn drain(mut self, drain: Duration) -> Self {
        self.drain = drain;
        self
    }

    /// Works on JSON bodies until `shutdown` ends; one that is none of `T` is rejected with the code `DECODE`.
    ///
    /// # Errors
    /// As [`Worker::run`].
    pub async fn run_json<T, H, F, O>(self, handler: H, shutdown: impl Future<Output = ()>) -> Result<Worked, Error>
    where
        T: DeserializeOwned + Send + 'static,
        H: Fn(T, Task) -> F + Send + Sync + 'static,
        F: Future<Output = Result<O, TaskError>> + Send + 'static,
        O: Into<Output> + Send + 'static,
    {
        let handler = Arc::new(handler);
        let decoding = move |task: Task| {
            let handler = Arc::clone(&handler);
            async move {
                let body = serde_json::from_slice(&task.message.body)
                    .map_err(|error| TaskError::permanent("DECODE", format!("expected a JSON body, but {error}")))?;
                handler(body, task).await
            }
        };
        self.run(decoding, shutdown).await
    }

    /// Works until `shutdown` ends, as [`stop_signal`] does; then stops in order. Returns what became of the messages.
    ///
    /// # Errors
    /// Where the server refuses to deliver for good; then it has stopped in order as well.
    pub async fn run<H, F, O>(self, handler: H, shutdown: impl Future<Output = ()>) -> Result<Worked, Error>
    where
        H: Fn(Task) -> F + Send + Sync + 'static,
        F: Future<Output = Result<O, TaskError>> + Send + 'static,
        O: Into<Output> + Send + 'static,
    {
        let prefetch = self.prefetch.unwrap_or(usize::MAX).clamp(self.concurrency, 2 * self.concurrency);
        let mut builder = Consumer::builder(&self.queue).prefetch(prefetch).worker(self.name);
        if let Some(lease) = self.lease {
            builder = builder.lease(lease);
        }
        for queue in self.also {
            builder = builder.also(queue);
        }
        let mut consumer = builder.start();
        let (phase, phases) = watch::channel(Phase::Working);
        let slots = Arc::new(Semaphore::new(self.concurrency));
        let handler = Arc::new(handler);
        let mut jobs = JoinSet::new();
        let mut worked = Worked::default();
        let mut failed = None;
        {
            let mut shutdown = std::pin::pin!(shutdown);
            loop {
                tokio::select! {
                    biased;
                    () = &mut shutdown => break,
                    Some(ended) = jobs.join_next(), if !jobs.is_empty() => worked.count(ended.unwrap_or(Ended::Lost)),
                    came = consumer.next() => match came {
                        Ok(Some(delivery)) => {
                            let job = Job::new(delivery, self.lease, Arc::clone(&slots), phases.clone());
                            let handler = Arc::clone(&handler);
                            jobs.spawn(job.run(move |task| caught(handler, task)));
                        }
                        Ok(None) => break,
                        Err(error) => {
                            failed = Some(error);
                            break;
                        }
                    },
                }
            }
        }
        consumer.stop();
        phase.send_replace(Phase::Draining);
        let mut drained = std::pin::pin!(tokio::time::sleep(self.drain));
        let mut cut = false;
        while !jobs.is_empty() {
            tokio::select! {
                biased;
                Some(ended) = jobs.join_next() => worked.count(ended.unwrap_or(Ended::Lost)),
                () = &mut drained, if !cut => {
                    cut = true;
                    phase.send_replace(Phase::Cut);
                }
            }
        }
        consumer.close().await?;
        match failed {
            Some(error) => Err(error),
            None => Ok(worked),
        }
    }
}

/// Runs a handler. A panic is an error worth another attempt.
async fn caught<H, F, O>(handler: Arc<H>, task: Task) -> Result<Output, TaskError>
where
    H: Fn(Task) -> F,
    F: Future<Output = Result<O, TaskError>>,
    O: Into<Output>,
{
    let mut running = Box::pin(async move { handler(task).await.map(Into::into) });
    std::future::poll_fn(move |context| {
        // The future is not polled again after a panic; what the handler shares with others is the handler's to mend.
        match catch_unwind(AssertUnwindSafe(|| running.as_mut().poll(context))) {
            Ok(polled) => polled,
            Err(panic) => Poll::Ready(Err(TaskError::retry("PANIC", panic_text(&*panic)))),
        }
    })
    .await
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    format!("the handler panicked: {}", text.as_deref().unwrap_or("without a text"))
}

/// Waits until the process is asked to stop: by SIGTERM, as service managers and Kubernetes do, or Ctrl-C. Must be called
/// within a Tokio runtime.
pub async fn stop_signal() {
    let interrupted = async {
        if let Err(error) = tokio::signal::ctrl_c().await {
            tracing::error!(%error, "expected to listen for Ctrl-C, but cannot");
            std::future::pending::<()>().await;
        }
    };
    #[cfg(unix)]
    {
        let terminated = async {
            match tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
                // `None`: the runtime ends.
                Ok(mut signal) => drop(signal.recv().await),
                Err(error) => {
                    tracing::error!(%error, "expected to listen for SIGTERM, but cannot");
                    std::future::pending::<()>().await;
                }
            }
        };
        tokio::select! {
            () = interrupted => {}
            () = terminated => {}
        }
    }
    #[cfg(not(unix))]
    interrupted.await;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task() -> Task {
        Task { message: Message::from_wire(None), receive_count: 1, failures: 0 }
    }

    #[tokio::test]
    async fn a_panic_is_worth_another_attempt_wherever_it_happens() {
        let panics = |at_once: bool| {
            move |_: Task| {
                assert!(!at_once, "at once");
                async move {
                    tokio::task::yield_now().await;
                    assert!(at_once, "later {}", 7);
                    Ok(())
                }
            }
        };
        for (at_once, text) in [(true, "at once"), (false, "later 7")] {
            let error = caught(Arc::new(panics(at_once)), task()).await.expect_err("a panic");
            assert!(
                matches!(&error, TaskError::Retry { code, text: told, delay: None } if code == "PANIC" && told.contains(text)),
                "{error:?}"
            );
        }
        assert_eq!(caught(Arc::new(|_: Task| async { Ok(()) }), task()).await, Ok(Output::default()));
        assert_eq!(caught(Arc::new(|_: Task| async { Ok("done") }), task()).await, Ok(Output("done".into())));
    }
}
