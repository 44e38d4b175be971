//! A client that looks at the queues, and sees when nothing is left.

use tokio::sync::watch;

use crate::at_work::AtWork;
use crate::caller::Caller;
use crate::load::Phase;
use crate::plan::Plan;
use crate::poll::pause;

/// Looks at all queues in turn, until all is over; tells whether the last round found nothing in any of them.
pub(crate) async fn run(
    mut caller: Caller,
    plan: Plan,
    phase: watch::Receiver<Phase>,
    at_work: AtWork,
    empty: watch::Sender<bool>,
) {
    while *phase.borrow() != Phase::Stop {
        // A round counts only where nothing could be put on a queue from its begin on.
        let drains = *phase.borrow() == Phase::Drain && at_work.is_over();
        let mut left = false;
        for queue in plan.queues() {
            match caller.stats(&queue).await {
                Ok(Some(stats)) => left |= stats.ready + stats.delayed + stats.blocked + stats.leased > 0,
                Ok(None) => {}
                Err(_) => left = true,
            }
        }
        empty.send_replace(drains && !left);
        pause(plan.look).await;
    }
}
