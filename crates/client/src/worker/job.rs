//! One delivery, from its arrival to its settlement.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, watch};

use super::{Output, PAUSE, PAUSE_MAX, Task, TaskError};
use crate::error::Reason;
use crate::receive::Delivery;

/// Where a worker stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    /// It works.
    Working,
    /// No handler starts any more.
    Draining,
    /// Running handlers are given up.
    Cut,
}

/// What became of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    Acked,
    Retried,
    Rejected,
    Released,
    Lost,
}

/// How long the code and the text of a failure may be, in bytes.
const CODE: usize = 256;
const TEXT: usize = 512;
/// How long an output may be, in bytes.
const OUTPUT: usize = 64 << 10;
/// The pause after an extension that was not made, and the least between two.
const LEAST: Duration = Duration::from_millis(100);

/// A delivery, and what its worker has for it.
pub(super) struct Job {
    delivery: Delivery,
    lease: Option<Duration>,
    slots: Arc<Semaphore>,
    phases: watch::Receiver<Phase>,
}

impl Job {
    pub(super) fn new(
        delivery: Delivery,
        lease: Option<Duration>,
        slots: Arc<Semaphore>,
        phases: watch::Receiver<Phase>,
    ) -> Self {
        Self { delivery, lease, slots, phases }
    }

    /// Waits for a place, has the message handled, and settles it.
    pub(super) async fn run<F>(self, handle: impl FnOnce(Task) -> F) -> Ended
    where
        F: Future<Output = Result<Output, TaskError>>,
    {
        let Self { mut delivery, lease, slots, mut phases } = self;
        let draining = phases.clone();
        let place = tokio::select! {
            biased;
            () = reached(&mut phases, Phase::Draining) => None,
            place = slots.acquire() => place.ok(),
            never = keep(&mut delivery, lease) => match never {},
        };
        let Some(_place) = place else { return settled(Ended::Released, delivery.release().await) };
        let task = Task {
            message: delivery.message.clone(),
            receive_count: delivery.receive_count,
            failures: delivery.failures,
        };
        let handled = tokio::select! {
            biased;
            handled = handle(task) => Some(handled),
            () = reached(&mut phases, Phase::Cut) => None,
            never = keep(&mut delivery, lease) => match never {},
        };
        match handled {
            Some(Ok(Output(output))) if output.len() > OUTPUT => {
                let text =
                    format!("expected an output of at most {OUTPUT} bytes, but the handler gave {}", output.len());
                settled(Ended::Rejected, delivery.reject("OUTPUT", text).await)
            }
            Some(Ok(Output(output))) => settled(Ended::Acked, delivery.ack_with(output).await),
            Some(Err(TaskError::Retry { code, text, delay })) => {
                settled(Ended::Retried, delivery.retry(cut(code, CODE), cut(text, TEXT), delay).await)
            }
            Some(Err(TaskError::Permanent { code, text })) => {
                settled(Ended::Rejected, delivery.reject(cut(code, CODE), cut(text, TEXT)).await)
            }
            Some(Err(TaskError::Unavailable { text, pause })) => {
                let pause = pause.unwrap_or(PAUSE).min(PAUSE_MAX);
                tracing::warn!(id = delivery.message.id, text, ?pause, "kept back: something is unavailable");
                let mut phases = draining;
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    () = reached(&mut phases, Phase::Draining) => {}
                    never = keep(&mut delivery, lease) => match never {},
                }
                settled(Ended::Released, delivery.release().await)
            }
            None => settled(Ended::Released, delivery.release().await),
        }
    }
}

/// Waits until a worker has come to `phase`.
async fn reached(phases: &mut watch::Receiver<Phase>, phase: Phase) {
    // The worker is gone, and its future with it: nobody waits for this job either.
    let _ = phases.wait_for(|now| *now >= phase).await;
}

/// Extends a lease whenever a third of it is over.
async fn keep(delivery: &mut Delivery, lease: Option<Duration>) -> std::convert::Infallible {
    let mut third = (lease.unwrap_or_else(|| delivery.lease_left()) / 3).max(LEAST);
    loop {
        // What it has waited for on its way here counts as well.
        let two_thirds = third * 2;
        tokio::time::sleep(delivery.lease_left().saturating_sub(two_thirds).max(LEAST)).await;
        match delivery.extend(lease).await {
            Ok(left) => third = (left / 3).max(LEAST),
            Err(error) if error.reason() == Some(&Reason::LeaseLost) || delivery.lease_left().is_zero() => {
                tracing::warn!(id = delivery.message.id, %error, "the lease is lost: the message is somebody else's");
                std::future::pending::<()>().await;
            }
            Err(error) => tracing::debug!(id = delivery.message.id, %error, "not extended yet"),
        }
    }
}

fn settled(ended: Ended, settled: Result<crate::Settled, crate::Error>) -> Ended {
    match settled {
        Ok(_) => ended,
        Err(error) => {
            tracing::warn!(%error, ?ended, "not settled");
            Ended::Lost
        }
    }
}

/// At most `max` bytes of a text.
fn cut(mut text: String, max: usize) -> String {
    if text.len() > max {
        let end = (0..=max).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(end);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_between_characters() {
        assert_eq!(cut("short".to_owned(), 512), "short");
        assert_eq!(cut("ä".repeat(300), 512), "ä".repeat(256));
        assert_eq!(cut(format!("a{}", "ä".repeat(300)), 512).len(), 511);
    }
}
