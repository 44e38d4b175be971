//! Who still does what [`Phase::Load`](crate::Phase::Load) says. A call may outlast the phase by all its patience, and
//! what it puts on a queue comes after a look that found nothing there.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Clients that are at work. Clones are the same.
#[derive(Clone, Default)]
pub(crate) struct AtWork(Arc<AtomicUsize>);

/// A client at work, until it is dropped.
pub(crate) struct Shift(Arc<AtomicUsize>);

impl AtWork {
    /// One more.
    pub(crate) fn begin(&self) -> Shift {
        self.0.fetch_add(1, Ordering::Relaxed);
        Shift(self.0.clone())
    }

    /// Whether all of them have ended.
    pub(crate) fn is_over(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }
}

impl Drop for Shift {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::time::Duration;

    use ticketrail_history::Recorder;
    use tokio::sync::watch;
    use tokio::time::Instant;
    use tonic::transport::Endpoint;

    use super::*;
    use crate::caller::{Caller, Shared};
    use crate::load::Phase;
    use crate::plan::Plan;
    use crate::poll::pause;
    use crate::{producer, worker};

    /// A client of a node that takes connections and answers nothing.
    fn caller(dir: &tempfile::TempDir, silent: &TcpListener, plan: &Plan) -> Caller {
        let recorder = Recorder::create(dir.path(), || Duration::ZERO).expect("a recorder");
        let address = format!("http://{}", silent.local_addr().expect("an address"));
        let endpoint = Endpoint::from_shared(address).expect("an endpoint");
        let dial = Arc::new(move |_, _| endpoint.connect_lazy());
        Caller::new(Arc::new(Shared::new(recorder, dial, 1)), 0, plan.patience.clone(), 0, 7)
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_outlasts_the_load_is_still_work() {
        let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
        let plan = Plan::default();
        let call = plan.patience.whole;
        for produces in [true, false] {
            let dir = tempfile::tempdir().expect("a folder");
            let (tell, phase) = watch::channel(Phase::Load);
            let at_work = AtWork::default();
            let (caller, plan, shift) = (caller(&dir, &silent, &plan), plan.clone(), at_work.begin());
            let client = if produces {
                tokio::spawn(producer::run(caller, Plan { rate: None, ..plan }, phase, shift))
            } else {
                tokio::spawn(worker::run(caller, plan, "orders".into(), phase, shift))
            };
            // By then its first call is under way.
            pause(Duration::from_millis(100)).await;
            tell.send_replace(Phase::Drain);
            let begun = Instant::now();
            while !at_work.is_over() {
                assert!(begun.elapsed() < 2 * call, "its call has ended; produces: {produces}");
                pause(Duration::from_millis(100)).await;
            }
            assert!(begun.elapsed() > call / 2, "its call was under way; produces: {produces}");
            tell.send_replace(Phase::Stop);
            client.await.expect("an end");
        }
    }
}
