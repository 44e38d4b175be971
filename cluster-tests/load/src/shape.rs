//! Gives messages what not all have: groups, priorities, dedup ids, times to live, policies.

use std::collections::VecDeque;
use std::time::Duration;

use ticketrail_history::format::{EnqueueOutcome, More, NewMessage, NewTime, QueueName, Target};

use crate::plan::Plan;
use crate::producer::between;

/// Messages of its own that a client remembers.
const KEPT: usize = 32;

/// Gives a message for `queue` what the plan's mix says.
pub(crate) fn dress(plan: &Plan, queue: &str, message: &mut NewMessage, rng: &mut fastrand::Rng) {
    let mix = &plan.mix;
    let mut more = More::default();
    let mut share = |percent: u8| rng.u8(0..100) < percent;
    let (grouped, crowded) = (share(mix.grouped), share(50));
    let (prioritized, deduplicated) = (share(mix.prioritized), share(mix.deduplicated));
    let (expiring, policy) = (share(mix.expiring), share(mix.policies));
    if grouped {
        let (name, groups) = if crowded { ("crowd", plan.groups.0) } else { ("few", plan.groups.1) };
        more.g = format!("{name}-{}", rng.u32(0..groups.max(1)));
    }
    if prioritized {
        more.p = Some(rng.u8(0..=9));
    }
    if deduplicated {
        more.dd = format!("{queue}-{}", rng.u32(0..plan.dedup_ids.max(1)));
    }
    if expiring {
        more.ttl = u64::try_from(between(&plan.ttl, rng).as_millis()).unwrap_or(u64::MAX).max(1);
    }
    if policy {
        more.tries = Some(rng.u32(1..=3));
        more.base = Some(50);
    }
    if more != More::default() {
        message.more = Some(Box::new(more));
    }
}

/// Delayed messages of its own, which a client may still cancel or put at another time.
#[derive(Debug, Default)]
pub(crate) struct Own(VecDeque<Target>);

impl Own {
    /// Remembers a message that was enqueued, if it waits; by its dedup id, where it has one, one time in two.
    pub(crate) fn note(
        &mut self,
        queue: &str,
        message: &NewMessage,
        outcome: &EnqueueOutcome,
        rng: &mut fastrand::Rng,
    ) {
        let EnqueueOutcome::In { id, .. } = outcome else { return };
        if message.d == 0 {
            return;
        }
        let dd = message.dedup_id();
        let by_dedup = !dd.is_empty() && rng.bool();
        let target =
            if by_dedup { Target::Dedup { q: QueueName::new("", queue), dd: dd.to_owned() } } else { Target::Id(*id) };
        self.0.push_back(target);
        if self.0.len() > KEPT {
            self.0.pop_front();
        }
    }

    /// One of them, which is forgotten.
    pub(crate) fn take(&mut self, rng: &mut fastrand::Rng) -> Option<Target> {
        let at = rng.usize(0..self.0.len().max(1));
        self.0.remove(at)
    }

    /// A new time for one of them, one in four at once.
    pub(crate) fn move_one(&mut self, plan: &Plan, rng: &mut fastrand::Rng) -> Option<NewTime> {
        let at = rng.usize(0..self.0.len().max(1));
        let of = self.0.get(at).cloned()?;
        let delay = if rng.u8(0..4) == 0 { Duration::ZERO } else { between(&plan.delay, rng) };
        Some(NewTime { of, d: u64::try_from(delay.as_millis()).unwrap_or(0), at: 0 })
    }
}
