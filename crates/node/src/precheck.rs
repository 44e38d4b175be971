//! What the leader refuses without a log entry: sizes, a full disk, full queues. It does so only where that cannot be a
//! false "nothing happened": not before its term's first entry is applied, and not for a request that may have been
//! proposed before.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;
use prost::Message as _;
use ticketrail_core::command::{Commit, Enqueue, QueueRef, Receive};
use ticketrail_core::query::QueueInfo;
use ticketrail_core::reply::{Full, Invalid, Part};
use ticketrail_core::{Command, Newcomers, Rejection, RequestId, bound_passed, limits};

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
    /// Whether the queue sheds or bounds the wait: then each message is looked at.
    choosy: bool,
}

impl Look {
    fn admits(&self, load: &Load) -> bool {
        !self.choosy && load.messages <= self.messages && load.bytes <= self.bytes
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
    /// The dedup ids of its enqueues.
    pub(crate) dedup_ids: Vec<(QueueRef, String)>,
}

impl Shared {
    /// Checks a receive before it is parked, as `apply` would.
    pub(crate) fn check_receive(receive: &Receive) -> Result<(), CallError> {
        let max = usize::try_from(receive.max).unwrap_or(usize::MAX);
        if !(1..=limits::BATCH).contains(&max) {
            return Err(invalid("max", format!("expected 1 to {}, but got {max}", limits::BATCH)));
        }
        let (queues, most) = (receive.queues.len(), limits::RECEIVE_QUEUES);
        if !(1..=most).contains(&queues) {
            return Err(invalid("queue", format!("expected 1 to {most} queues, but got {queues}")));
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
            | Command::CloseQueue(_)
            | Command::SetNamespace(_)
            | Command::DeleteNamespace(_) => 0,
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
            return Ok(Admitted { loads: Vec::new(), delivering: Vec::new(), dedup_ids: Vec::new() });
        };
        let loads = crate::flight::loads(commit);
        let dedup_ids = crate::flight::dedup_ids(commit);
        let mut delivering = Vec::with_capacity(loads.len());
        let mut may_pass = false;
        for (queue, load) in &loads {
            let (look, admits) = self.look(queue, load)?;
            delivering.push(!look.paused);
            may_pass |= !admits;
        }
        let refusal = if !commit.enqueue.is_empty() && self.has_no_room() {
            Some(CallError::DiskLow)
        } else if let Err(too_large) = check_sizes(commit) {
            Some(too_large)
        } else if may_pass && commit.settle.is_empty() && commit.cancel.is_empty() {
            self.full(commit)?.map(CallError::Rejected)
        } else {
            // A settlement or a cancel may free the place that an enqueue needs: then only `apply` can tell.
            None
        };
        if let Some(refusal) = refusal
            && self.may_refuse(id, repeat, &dedup_ids)?
        {
            return Err(refusal);
        }
        Ok(Admitted { loads, delivering, dedup_ids })
    }

    /// Whether "nothing happened" would be true.
    fn may_refuse(
        &self,
        id: Option<&RequestId>,
        repeat: bool,
        dedup_ids: &[(QueueRef, String)],
    ) -> Result<bool, CallError> {
        if repeat || !self.leads() || self.flight.has_any_dedup_id(dedup_ids) {
            return Ok(false);
        }
        for (queue, dedup_id) in dedup_ids {
            if self.state.remembers(queue, dedup_id).map_err(|fault| self.fault(&fault))? {
                return Ok(false);
            }
        }
        let Some(id) = id else { return Ok(true) };
        if self.flight.has(id) {
            return Ok(false);
        }
        self.state.seen(id).map(|seen| !seen).map_err(|fault| self.fault(&fault))
    }

    /// What a queue has room for; and whether `load` fits for sure.
    fn look(&self, queue: &QueueRef, load: &Load) -> Result<(Look, bool), CallError> {
        let now = self.config.clock.now();
        if let Some(known) = self.precheck.looks.lock().get_mut(queue)
            && now.saturating_duration_since(known.at) < FRESH
            && known.admits(load)
        {
            let look = *known;
            known.spend(load);
            return Ok((look, true));
        }
        let info = self.state.queue(queue).map_err(|fault| self.fault(&fault))?;
        let coming = self.flight.load(queue);
        let look = measure(info.as_ref(), &coming, now);
        let mut looks = self.precheck.looks.lock();
        if looks.len() >= REMEMBERED {
            looks.clear();
        }
        let mut spent = look;
        spent.spend(load);
        looks.insert(queue.clone(), spent);
        Ok((look, look.admits(load)))
    }

    /// The refusal of a commit of enqueues as `apply` would find it: of an atomic one for the first that does not fit,
    /// those before it counted; of another one only where none fits.
    fn full(&self, commit: &Commit) -> Result<Option<Rejection>, CallError> {
        let mut queues = Vec::with_capacity(commit.queues.len());
        for queue in &commit.queues {
            let info = self.state.queue(queue).map_err(|fault| self.fault(&fault))?;
            queues.push((info, self.flight.load(queue)));
        }
        let mut first = None;
        for (number, part) in (0u32..).zip(&commit.enqueue) {
            let at = usize::try_from(part.queue).unwrap_or(usize::MAX);
            // A queue that is not there yet is for `apply` to tell.
            let Some((Some(info), coming)) = queues.get_mut(at) else { return Ok(None) };
            match passed(info, coming, part) {
                Some(full) if commit.atomic => {
                    return Ok(Some(Rejection::of_part(Part::Enqueue(number), Rejection::Full(full))));
                }
                Some(full) => first = first.or(Some(full)),
                None if !commit.atomic => return Ok(None),
                None => coming.add(&Load::of(part)),
            }
        }
        Ok(first.map(Rejection::Full))
    }

    /// Whether the node still takes calls; for the status.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::SeqCst)
    }
}

/// What a queue has room for, beside what is coming.
fn measure(info: Option<&QueueInfo>, coming: &Load, now: Instant) -> Look {
    let Some(info) = info else {
        // Made by this enqueue, with settings that only `apply` knows for sure.
        let messages = limits::DEPTH_DEFAULT.saturating_sub(coming.messages);
        return Look { at: now, messages, bytes: u64::MAX, paused: false, choosy: false };
    };
    let settings = &info.settings;
    let room = |limit: Option<u64>, held: u64| match limit {
        None | Some(0) => u64::MAX,
        Some(limit) => limit.saturating_sub(held),
    };
    let sheds = settings.shed.as_ref().is_some_and(|shed| !shed.rules.is_empty());
    Look {
        at: now,
        messages: room(settings.max_depth, info.stats.depth().saturating_add(coming.messages)),
        bytes: room(settings.max_bytes, info.stats.bytes.saturating_add(coming.bytes)),
        paused: info.paused.is_some(),
        choosy: sheds || settings.max_wait_ms.is_some_and(|limit| limit > 0),
    }
}

/// The bound that an enqueue would pass, beside what is coming.
fn passed(info: &QueueInfo, coming: &Load, part: &Enqueue) -> Option<Full> {
    let load = Load::of(part);
    let newcomers = Newcomers::new(part, load.bytes, load.ready == 0);
    bound_passed(info, coming.messages, coming.ready, coming.bytes, newcomers)
}

fn check_sizes(commit: &Commit) -> Result<(), CallError> {
    let parts = [commit.enqueue.len(), commit.settle.len(), commit.cancel.len(), commit.reschedule.len()];
    let parts = parts.into_iter().max().unwrap_or_default();
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
    use ticketrail_core::command::{Content, QueueSettings, Shed, ShedRule};
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

    fn full_bound(info: &QueueInfo, coming: u64, priority: u32, bytes: usize) -> Option<(String, u64)> {
        let coming = Load { messages: coming, ..Load::default() };
        let message = Some(Content { body: vec![7; bytes].into(), ..Content::default() });
        let part = Enqueue { message, priority: Some(priority), ..Enqueue::default() };
        passed(info, &coming, &part).map(|full| (full.bound, full.held))
    }

    #[test]
    fn bounds_count_what_is_held_and_what_is_on_its_way() {
        let info = queue(10, 0, 7, 700);
        assert_eq!(full_bound(&info, 2, 4, 300), None);
        assert_eq!(full_bound(&info, 3, 4, 300), Some(("max_depth".into(), 10)));
        assert_eq!(full_bound(&queue(0, 0, 7, 700), 1_000, 4, 300), None);
        assert_eq!(full_bound(&queue(0, 1_000, 7, 700), 0, 4, 301), Some(("max_bytes".into(), 700)));
        let look = measure(Some(&info), &Load { messages: 1, ..Load::default() }, Instant::now());
        assert!(look.admits(&Load { messages: 2, ..Load::default() }));
        assert!(!look.admits(&Load { messages: 3, ..Load::default() }));
    }

    #[test]
    fn a_queue_that_sheds_or_bounds_the_wait_looks_at_each_message() {
        let mut info = queue(10, 0, 7, 700);
        info.settings.shed = Some(Shed { rules: vec![ShedRule { above_percent: 80, below_priority: 5 }] });
        assert!(!measure(Some(&info), &Load::default(), Instant::now()).admits(&Load::default()));
        assert_eq!(full_bound(&info, 1, 4, 1), Some(("shed".into(), 8)));
        assert_eq!(full_bound(&info, 1, 5, 1), None);
        let mut info = queue(0, 0, 7, 700);
        (info.settings.max_wait_ms, info.stats.rate_milli) = (Some(7_000), Some(1_000));
        assert_eq!(full_bound(&info, 0, 4, 1), Some(("max_wait".into(), 8_000)));
        info.stats.rate_milli = Some(2_000);
        assert_eq!(full_bound(&info, 0, 4, 1), None);
    }
}
