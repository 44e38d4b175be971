//! What the leader refuses without a log entry: sizes, a full disk, full queues. It does so only where that cannot be a
//! false "nothing happened": not before its term's first entry is applied, and not for a request that may have been
//! proposed before.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;
use prost::Message as _;
use ticketrail_core::command::{Commit, QueueRef, Receive};
use ticketrail_core::query::QueueInfo;
use ticketrail_core::reply::{Full, Invalid, Part};
use ticketrail_core::{Command, Rejection, RequestId, limits};

use crate::call::CallError;
use crate::clock::Instant;
use crate::flight::Load;
use crate::shared::Shared;

/// How long a look at a queue serves to admit. A refusal always looks again.
const FRESH: Duration = Duration::from_millis(100);
/// Queues remembered at one time.
const REMEMBERED: usize = 10_000;

/// The last look at each queue.
#[derive(Debug, Default)]
pub(crate) struct Precheck {
    looks: Mutex<HashMap<QueueRef, Look>>,
}

/// What a queue has room for, beside what it holds and what is on its way.
#[derive(Debug, Clone, Copy)]
struct Look {
    at: Instant,
    messages: u64,
    bytes: u64,
    paused: bool,
}

impl Look {
    fn admits(&self, load: &Load) -> bool {
        load.messages <= self.messages && load.bytes <= self.bytes
    }

    fn spend(&mut self, load: &Load) {
        self.messages = self.messages.saturating_sub(load.messages);
        self.bytes = self.bytes.saturating_sub(load.bytes);
    }
}

/// What is known of an admitted commit.
pub(crate) struct Admitted {
    /// What it loads on its queues.
    pub(crate) loads: Vec<(QueueRef, Load)>,
    /// Those of its queues that deliver.
    pub(crate) delivering: Vec<bool>,
}

impl Shared {
    /// Checks a receive before it is parked, as `apply` would.
    pub(crate) fn check_receive(receive: &Receive) -> Result<(), CallError> {
        let max = usize::try_from(receive.max).unwrap_or(usize::MAX);
        if !(1..=limits::BATCH).contains(&max) {
            return Err(invalid("max", format!("expected 1 to {}, but got {max}", limits::BATCH)));
        }
        if receive.queues.len() != 1 {
            return Err(invalid("queue", format!("expected one queue, but got {}", receive.queues.len())));
        }
        let (lease, low, high) = (receive.lease_ms, limits::LEASE_MIN_MS, limits::LEASE_MAX_MS);
        if lease != 0 && !(low..=high).contains(&lease) {
            return Err(invalid("lease", format!("expected {low} to {high} ms, but got {lease}")));
        }
        let (worker, most) = (receive.worker.len(), limits::FIELD_BYTES);
        if worker > most {
            return Err(invalid("worker", format!("expected at most {most} bytes, but got {worker}")));
        }
        Ok(())
    }

    /// Checks what needs no look at the state: the leader would say the same.
    pub(crate) fn check_shape(command: &Command) -> Result<(), CallError> {
        let encoded = match command {
            Command::Commit(commit) => commit.encoded_len(),
            Command::Receive(_) => return Err(invalid("command", "expected a receive to come as one".into())),
            Command::Expire(_)
            | Command::Tick(_)
            | Command::InitCluster(_)
            | Command::OpenSession(_)
            | Command::CreateQueue(_)
            | Command::UpdateQueue(_)
            | Command::DeleteQueue(_)
            | Command::PurgeQueue(_)
            | Command::PauseQueue(_)
            | Command::CloseQueue(_) => 0,
        };
        if encoded > limits::ENTRY_BYTES {
            let reason = format!("expected at most {} bytes, but got {encoded}; split it", limits::ENTRY_BYTES);
            return Err(invalid("request", reason));
        }
        Ok(())
    }

    /// Checks a command of a right shape before it is queued.
    pub(crate) fn check(&self, command: &Command, id: Option<&RequestId>, repeat: bool) -> Result<Admitted, CallError> {
        let Command::Commit(commit) = command else {
            return Ok(Admitted { loads: Vec::new(), delivering: Vec::new() });
        };
        let loads = crate::flight::loads(commit);
        let mut looks = Vec::with_capacity(loads.len());
        let mut refused = None;
        for (queue, load) in &loads {
            match self.look(queue, load)? {
                (look, None) => looks.push(look),
                (look, Some(full)) => {
                    looks.push(look);
                    refused = refused.or(Some(full));
                }
            }
        }
        let refusal = if !commit.enqueue.is_empty() && self.has_no_room() {
            Some(CallError::DiskLow)
        } else if let Err(too_large) = check_sizes(commit) {
            Some(too_large)
        } else {
            // A settlement may free the place that an enqueue needs: then only `apply` can tell.
            match refused.filter(|_| commit.settle.is_empty()) {
                Some(_) if commit.atomic => self.first_full(commit)?,
                Some(full) => none_fits(commit, &looks).then_some(Rejection::Full(full)),
                None => None,
            }
            .map(CallError::Rejected)
        };
        if let Some(refusal) = refusal
            && self.may_refuse(id, repeat)?
        {
            return Err(refusal);
        }
        Ok(Admitted { loads, delivering: looks.iter().map(|look| !look.paused).collect() })
    }

    /// Whether "nothing happened" would be true.
    fn may_refuse(&self, id: Option<&RequestId>, repeat: bool) -> Result<bool, CallError> {
        if repeat || !self.leads() {
            return Ok(false);
        }
        let Some(id) = id else { return Ok(true) };
        if self.flight.has(id) {
            return Ok(false);
        }
        self.state.seen(id).map(|seen| !seen).map_err(|fault| self.fault(&fault))
    }

    /// What a queue has room for; and which bound is reached, where `load` does not fit.
    fn look(&self, queue: &QueueRef, load: &Load) -> Result<(Look, Option<Full>), CallError> {
        let now = self.config.clock.now();
        if let Some(known) = self.precheck.looks.lock().get_mut(queue)
            && now.saturating_duration_since(known.at) < FRESH
            && known.admits(load)
        {
            let look = *known;
            known.spend(load);
            return Ok((look, None));
        }
        let info = self.state.queue(queue).map_err(|fault| self.fault(&fault))?;
        let coming = self.flight.load(queue);
        let (look, full) = measure(info.as_ref(), queue, &coming, load, now);
        let mut looks = self.precheck.looks.lock();
        if looks.len() >= REMEMBERED {
            looks.clear();
        }
        let mut spent = look;
        spent.spend(load);
        looks.insert(queue.clone(), spent);
        Ok((look, full))
    }

    /// The refusal of an atomic commit for the first of its enqueues that does not fit, those before it counted.
    fn first_full(&self, commit: &Commit) -> Result<Option<Rejection>, CallError> {
        let now = self.config.clock.now();
        let mut queues = Vec::with_capacity(commit.queues.len());
        for queue in &commit.queues {
            let info = self.state.queue(queue).map_err(|fault| self.fault(&fault))?;
            queues.push((queue, info, self.flight.load(queue)));
        }
        for (number, part) in (0u32..).zip(&commit.enqueue) {
            let at = usize::try_from(part.queue).unwrap_or(usize::MAX);
            // An unknown queue is for `apply` to tell.
            let Some((queue, info, coming)) = queues.get_mut(at) else { return Ok(None) };
            let bytes = part.message.as_ref().map_or(0, |content| content.size());
            let load = Load { messages: 1, bytes, ..Load::default() };
            if let (_, Some(full)) = measure(info.as_ref(), queue, coming, &load, now) {
                return Ok(Some(Rejection::of_part(Part::Enqueue(number), Rejection::Full(full))));
            }
            coming.messages += 1;
            coming.bytes = coming.bytes.saturating_add(bytes);
        }
        Ok(None)
    }

    /// Whether the node still takes calls; for the status.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::SeqCst)
    }
}

fn measure(
    info: Option<&QueueInfo>,
    queue: &QueueRef,
    coming: &Load,
    load: &Load,
    now: Instant,
) -> (Look, Option<Full>) {
    let (depth, bytes, max_depth, max_bytes, paused) = match info {
        Some(info) => (
            info.stats.depth(),
            info.stats.bytes,
            info.settings.max_depth.unwrap_or(0),
            info.settings.max_bytes.unwrap_or(0),
            info.paused.is_some(),
        ),
        None => (0, 0, limits::DEPTH_DEFAULT, 0, false),
    };
    let (depth, bytes) = (depth.saturating_add(coming.messages), bytes.saturating_add(coming.bytes));
    let room = |limit: u64, held: u64| if limit == 0 { u64::MAX } else { limit.saturating_sub(held) };
    let look = Look { at: now, messages: room(max_depth, depth), bytes: room(max_bytes, bytes), paused };
    let full = |bound: &str, limit, held| Full {
        queue: ticketrail_core::reply::QueueNamed { namespace: queue.namespace.clone(), name: queue.name.clone() },
        bound: bound.to_owned(),
        limit,
        held,
        retry_after_ms: limits::RETRY_AFTER_MS,
    };
    let refused = if load.messages > look.messages {
        Some(full("max_depth", max_depth, depth))
    } else if load.bytes > look.bytes {
        Some(full("max_bytes", max_bytes, bytes))
    } else {
        None
    };
    (look, refused)
}

/// Whether `apply` would refuse every single enqueue.
fn none_fits(commit: &Commit, looks: &[Look]) -> bool {
    commit.enqueue.iter().all(|part| {
        let look = usize::try_from(part.queue).ok().and_then(|at| looks.get(at));
        let size = part.message.as_ref().map_or(0, |content| content.size());
        look.is_some_and(|look| look.messages == 0 || size > look.bytes)
    })
}

fn check_sizes(commit: &Commit) -> Result<(), CallError> {
    let parts = commit.enqueue.len().max(commit.settle.len());
    if parts > limits::BATCH {
        return Err(invalid("batch", format!("expected at most {} parts, but got {parts}", limits::BATCH)));
    }
    let contents = || commit.enqueue.iter().filter_map(|part| part.message.as_ref());
    let total: u64 = contents().map(|content| content.size()).sum();
    if commit.enqueue.len() > 1 && total > limits::BATCH_BYTES as u64 {
        return Err(invalid("batch", format!("expected at most {} bytes, but got {total}", limits::BATCH_BYTES)));
    }
    Ok(())
}

fn invalid(field: &str, reason: String) -> CallError {
    CallError::Rejected(Rejection::Invalid(Invalid { field: field.to_owned(), reason }))
}

#[cfg(test)]
mod tests {
    use ticketrail_core::QueueId;
    use ticketrail_core::Timestamp;
    use ticketrail_core::command::{Content, Enqueue, QueueSettings};
    use ticketrail_core::query::Stats;

    use super::*;

    fn queue(max_depth: u64, max_bytes: u64, ready: u64, bytes: u64) -> QueueInfo {
        let settings = QueueSettings { max_depth: Some(max_depth), max_bytes: Some(max_bytes), ..Default::default() };
        QueueInfo {
            id: QueueId(1),
            name: QueueRef { namespace: "default".into(), name: "orders".into() },
            created_at: Timestamp(0),
            settings,
            paused: None,
            closed: false,
            stats: Stats { ready, bytes, ..Stats::default() },
        }
    }

    fn full_bound(info: &QueueInfo, coming: u64, messages: u64, bytes: u64) -> Option<(String, u64)> {
        let coming = Load { messages: coming, ..Load::default() };
        let load = Load { messages, bytes, ..Load::default() };
        let (_, full) = measure(Some(info), &info.name, &coming, &load, Instant::now());
        full.map(|full| (full.bound, full.held))
    }

    #[test]
    fn bounds_count_what_is_held_and_what_is_on_its_way() {
        let info = queue(10, 0, 7, 700);
        assert_eq!(full_bound(&info, 0, 3, 300), None);
        assert_eq!(full_bound(&info, 1, 3, 300), Some(("max_depth".into(), 8)));
        assert_eq!(full_bound(&queue(0, 0, 7, 700), 1_000, 3, 300), None);
        assert_eq!(full_bound(&queue(0, 1_000, 7, 700), 0, 1, 301), Some(("max_bytes".into(), 700)));
    }

    #[test]
    fn a_batch_is_refused_only_where_nothing_of_it_fits() {
        let part = |queue| Enqueue { queue, message: Some(Content::default()), ..Enqueue::default() };
        let commit = Commit { enqueue: vec![part(0), part(1)], ..Commit::default() };
        let look = |messages| Look { at: Instant::now(), messages, bytes: u64::MAX, paused: false };
        assert!(none_fits(&commit, &[look(0), look(0)]));
        assert!(!none_fits(&commit, &[look(0), look(1)]));
        assert!(!none_fits(&commit, &[look(0)]), "an unknown queue is for apply to tell");
    }
}
