//! A client that enqueues.

use std::ops::Range;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::at_work::Shift;
use crate::attempt::Ended;
use crate::caller::Caller;
use crate::load::Phase;
use crate::plan::Plan;
use crate::poll::pause;

/// How long a producer waits where a queue takes nothing.
const FULL: Duration = Duration::from_millis(200);

/// Enqueues until the load is over. The last call may take longer: the shift ends with it.
pub(crate) async fn run(mut caller: Caller, plan: Plan, mut phase: watch::Receiver<Phase>, shift: Shift) {
    let every = plan.rate.map(|rate| Duration::from_secs_f64(f64::from(plan.producers.max(1)) / rate.max(0.001)));
    // Producers do not march in step.
    let mut due = Instant::now() + every.unwrap_or_default().mul_f64(caller.rng().f64());
    while *phase.borrow() == Phase::Load {
        if let Some(every) = every {
            tokio::select! {
                () = sleep_until(due) => {}
                // Whoever would tell is gone: so is the load.
                _ = phase.changed() => continue,
            }
            // What is late is not made up for.
            due = (due + every).max(Instant::now());
        }
        let batches = caller.rng().u8(0..100) < plan.mix.batches;
        let count = if batches { caller.rng().usize(plan.batch.clone()) } else { 1 };
        let messages: Vec<_> = (0..count)
            .map(|_| {
                let bytes = caller.rng().usize(plan.body.clone());
                let delayed = caller.rng().u8(0..100) < plan.mix.delayed;
                let delay = if delayed { between(&plan.delay, caller.rng()) } else { Duration::ZERO };
                caller.message(bytes, delay)
            })
            .collect();
        if let Err(Ended::Refused(_)) = caller.enqueue(&plan.queue, &messages).await {
            pause(FULL).await;
        }
    }
    drop(shift);
}

/// A time within a range, to the millisecond.
pub(crate) fn between(range: &Range<Duration>, rng: &mut fastrand::Rng) -> Duration {
    let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let (start, end) = (ms(range.start), ms(range.end));
    Duration::from_millis(if start < end { rng.u64(start..end) } else { start })
}
