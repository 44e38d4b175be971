//! A client that receives and settles.

use std::time::Duration;

use bytes::Bytes;
use ticketrail_history::format::Verdict;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::at_work::Shift;
use crate::caller::{Caller, Held, Part};
use crate::load::Phase;
use crate::plan::Plan;
use crate::poll::pause;
use crate::producer::between;

/// How long a worker waits where it could not receive.
const AGAIN: Duration = Duration::from_millis(100);
/// How much longer than its lease an overrun takes.
const TOO_LONG: Duration = Duration::from_millis(1_500);

/// What becomes of a delivery.
enum Fate {
    Settle(Verdict),
    Commit,
    Silent,
    Overrun,
}

/// A lease that is settled too late on purpose.
struct Late {
    due: Instant,
    token: Bytes,
}

/// Receives from `queue` and settles, until all is over. While the load is drained, it acks whatever comes.
pub(crate) async fn run(mut caller: Caller, plan: Plan, queue: String, phase: watch::Receiver<Phase>, shift: Shift) {
    let mut late: Vec<Late> = Vec::new();
    let mut shift = Some(shift);
    loop {
        let now = *phase.borrow();
        match now {
            Phase::Load => {}
            // From here on it enqueues nothing.
            Phase::Drain => drop(shift.take()),
            Phase::Stop => return,
        }
        overrun(&mut caller, &mut late).await;
        let max = caller.rng().u32(1..=plan.max.max(1));
        let Ok(held) = caller.receive(&queue, max, plan.wait, plan.lease).await else {
            pause(AGAIN).await;
            continue;
        };
        if now == Phase::Drain {
            let parts: Vec<_> =
                held.iter().map(|held| Part { token: held.token.clone(), verdict: Verdict::Ack }).collect();
            if !parts.is_empty() {
                // Whatever it ends with is recorded; what is not settled comes again.
                let _ = caller.settle(&parts).await;
            }
            continue;
        }
        work(&mut caller, &plan, held, &mut late).await;
    }
}

async fn work(caller: &mut Caller, plan: &Plan, held: Vec<Held>, late: &mut Vec<Late>) {
    let mut parts = Vec::new();
    for held in held {
        pause(between(&plan.work, caller.rng())).await;
        if caller.rng().u8(0..100) < plan.mix.extends {
            // Whatever a call ends with is recorded; what is not settled comes again.
            let _ = caller.extend(std::slice::from_ref(&held.token), plan.lease).await;
        }
        match fate(plan, held.delivery.dead.is_some(), caller.rng()) {
            Fate::Settle(verdict) => parts.push(Part { token: held.token, verdict }),
            Fate::Commit => {
                let part = Part { token: held.token, verdict: Verdict::Ack };
                let bytes = caller.rng().usize(plan.body.clone());
                let (message, body) = caller.message(bytes, Duration::ZERO);
                let _ = caller.commit(&[part], &[(plan.next(), message, body)]).await;
            }
            Fate::Silent => caller.see("silent"),
            Fate::Overrun => {
                caller.see("overruns");
                late.push(Late { due: held.since + plan.lease + TOO_LONG, token: held.token });
            }
        }
    }
    if !parts.is_empty() {
        let _ = caller.settle(&parts).await;
    }
}

/// Settles what is due to be settled too late.
async fn overrun(caller: &mut Caller, late: &mut Vec<Late>) {
    let now = Instant::now();
    let parts: Vec<_> = late
        .extract_if(.., |late| late.due <= now)
        .map(|late| Part { token: late.token, verdict: Verdict::Ack })
        .collect();
    if !parts.is_empty() {
        let _ = caller.settle(&parts).await;
    }
}

/// Dead letters are acked: what fails in a dead-letter queue stays there.
fn fate(plan: &Plan, is_dead: bool, rng: &mut fastrand::Rng) -> Fate {
    let mix = &plan.mix;
    if is_dead {
        return Fate::Settle(Verdict::Ack);
    }
    let fates = [
        (mix.commits, Fate::Commit),
        (mix.retries, Fate::Settle(Verdict::Retry { d: rng.bool().then(|| rng.u64(0..1_000)) })),
        (mix.rejects, Fate::Settle(Verdict::Reject)),
        (mix.releases, Fate::Settle(Verdict::Release)),
        (mix.silent, Fate::Silent),
        (mix.overruns, Fate::Overrun),
    ];
    let dice = rng.u8(0..100);
    let mut below = 0u8;
    for (share, fate) in fates {
        below = below.saturating_add(share);
        if dice < below {
            return fate;
        }
    }
    Fate::Settle(Verdict::Ack)
}
