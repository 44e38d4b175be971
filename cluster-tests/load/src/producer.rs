//! A client that enqueues.

use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use ticketrail_history::format::NewMessage;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::at_work::Shift;
use crate::attempt::Ended;
use crate::caller::Caller;
use crate::load::Phase;
use crate::plan::Plan;
use crate::poll::pause;
use crate::shape::{self, Own};

/// How long a producer waits where a queue takes nothing.
const FULL: Duration = Duration::from_millis(200);

/// Enqueues until the load is over. The last call may take longer: the shift ends with it.
pub(crate) async fn run(mut caller: Caller, plan: Plan, mut phase: watch::Receiver<Phase>, shift: Shift) {
    let every = plan.rate.map(|rate| Duration::from_secs_f64(f64::from(plan.producers.max(1)) / rate.max(0.001)));
    let mut own = Own::default();
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
        let once = caller.rng().u8(0..100) < plan.mix.once;
        let queue = if once { plan.once() } else { plan.queue.clone() };
        let messages: Vec<_> = (0..count).map(|_| message(&mut caller, &plan, &queue)).collect();
        match caller.enqueue(&queue, &messages).await {
            Ok(outcomes) => {
                for ((message, _), outcome) in messages.iter().zip(&outcomes) {
                    own.note(&queue, message, outcome, caller.rng());
                }
            }
            Err(Ended::Refused(_)) => pause(FULL).await,
            Err(Ended::Nothing(_) | Ended::NoSession(_) | Ended::Unknown(_)) => {}
        }
        change_own(&mut caller, &plan, &mut own).await;
    }
    drop(shift);
}

/// A message for `queue`, as the plan's mix says.
pub(crate) fn message(caller: &mut Caller, plan: &Plan, queue: &str) -> (NewMessage, Bytes) {
    let bytes = caller.rng().usize(plan.body.clone());
    let delayed = caller.rng().u8(0..100) < plan.mix.delayed;
    let delay = if delayed { between(&plan.delay, caller.rng()) } else { Duration::ZERO };
    let (mut message, body) = caller.message(bytes, delay);
    shape::dress(plan, queue, &mut message, caller.rng());
    (message, body)
}

/// Cancels a message of its own now and then, or puts it at another time. Whatever that ends with is recorded.
async fn change_own(caller: &mut Caller, plan: &Plan, own: &mut Own) {
    if caller.rng().u8(0..100) < plan.mix.cancels
        && let Some(target) = own.take(caller.rng())
    {
        let _ = caller.cancel(&[target]).await;
    }
    if caller.rng().u8(0..100) < plan.mix.reschedules
        && let Some(time) = own.move_one(plan, caller.rng())
    {
        let _ = caller.reschedule(&[time]).await;
    }
}

/// A time within a range, to the millisecond.
pub(crate) fn between(range: &Range<Duration>, rng: &mut fastrand::Rng) -> Duration {
    let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let (start, end) = (ms(range.start), ms(range.end));
    Duration::from_millis(if start < end { rng.u64(start..end) } else { start })
}
