//! Where work runs that blocks: a disk is read, written or flushed.

use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;

/// Where blocking work runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Work {
    /// On threads beside the runtime's.
    #[default]
    Threads,
    /// On the caller's: for a simulation, where nothing may run beside it, and stores that never wait.
    Inline,
}

impl Work {
    /// Runs `job` and waits for it.
    pub(crate) async fn run<T: Send + 'static>(self, job: impl FnOnce() -> T + Send + 'static) -> T {
        match self {
            Work::Threads => match tokio::task::spawn_blocking(job).await {
                Ok(done) => done,
                // A job is never aborted, so it has panicked: go on panicking here.
                Err(error) => std::panic::resume_unwind(error.into_panic()),
            },
            Work::Inline => job(),
        }
    }
}

/// Jobs done one after the other, on a thread of its own or on the caller's. Dropping it waits for the last one.
pub(crate) struct Lane<J>(Kind<J>);

enum Kind<J> {
    Thread { jobs: Option<SyncSender<J>>, thread: Option<JoinHandle<()>> },
    Inline(Box<dyn FnMut(J) + Send + Sync>),
}

/// A thread cannot be started, or it has died.
#[derive(Debug, thiserror::Error)]
#[error("expected a thread named {name}, but {reason}")]
pub struct LaneError {
    name: &'static str,
    reason: String,
}

impl<J: Send + 'static> Lane<J> {
    /// Jobs that wait in front of the one in progress. The callers wait for each, so there is hardly ever one.
    const WAITING: usize = 4;

    pub(crate) fn new(
        work: Work,
        name: &'static str,
        mut serve: impl FnMut(J) + Send + Sync + 'static,
    ) -> Result<Self, LaneError> {
        let kind = match work {
            Work::Inline => Kind::Inline(Box::new(serve)),
            Work::Threads => {
                let (jobs, queue) = sync_channel(Self::WAITING);
                let thread = std::thread::Builder::new()
                    .name(name.into())
                    .spawn(move || queue.into_iter().for_each(&mut serve))
                    .map_err(|e| LaneError { name, reason: e.to_string() })?;
                Kind::Thread { jobs: Some(jobs), thread: Some(thread) }
            }
        };
        Ok(Self(kind))
    }

    /// Has `job` done after all those before it. A dead thread drops the job.
    pub(crate) fn submit(&mut self, job: J) {
        match &mut self.0 {
            Kind::Thread { jobs, .. } => {
                if let Some(jobs) = jobs {
                    // Fails only where the thread has panicked; whoever waits for the job sees it dropped.
                    let _ = jobs.send(job);
                }
            }
            Kind::Inline(serve) => serve(job),
        }
    }
}

impl<J> Drop for Lane<J> {
    fn drop(&mut self) {
        if let Kind::Thread { jobs, thread } = &mut self.0 {
            drop(jobs.take());
            if let Some(thread) = thread.take() {
                // A panic has been printed by the hook; the jobs' owners have seen it.
                let _ = thread.join();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;

    #[test]
    fn a_lane_does_its_jobs_in_order_before_it_is_gone() {
        for work in [Work::Threads, Work::Inline] {
            let seen = Arc::new(Mutex::new(Vec::new()));
            let sink = seen.clone();
            let mut lane = Lane::new(work, "test", move |job: u32| sink.lock().push(job)).expect("a thread");
            for job in 0..100 {
                lane.submit(job);
            }
            drop(lane);
            assert_eq!(*seen.lock(), (0..100).collect::<Vec<_>>());
        }
    }
}
