//! Commands and outcomes of `core` in the words of a history.

use anyhow::{Context as _, bail};
use ticketrail_core::command::{self, OnExhausted, OnExpired, OnGroupFailure, Verdict};
use ticketrail_core::reply::{
    Answered, CancelOutcome, Committed, EnqueueOutcome, Enqueued, LeaseLost, Part, PartRefused, PlaceRecord,
    RejectionRecord, RescheduleOutcome, SettleOutcome, Taken,
};
use ticketrail_core::{Command, MessageId, Rejection, Space};
use ticketrail_history::format::{
    self, Applied, EnqueuePart, ExpiredLease, More, NewMessage, NewTime, OnGroup, Output, QueueName, Refusal, Remains,
    Rid, Settings, Settle, TakenOut, Target, Token, body, fingerprint,
};

/// A command.
pub fn command(command: &Command) -> format::Command {
    match command {
        Command::Commit(commit) => format::Command::Commit {
            s: commit.settle.iter().map(settle).collect(),
            c: commit.cancel.iter().map(target).collect(),
            t: commit.reschedule.iter().map(new_time).collect(),
            e: commit.enqueue.iter().map(|part| enqueue(&commit.queues, part)).collect(),
            atomic: commit.atomic,
            auto: commit.auto_create,
        },
        Command::Receive(receive) => format::Command::Receive {
            q: queue(receive.queues.first()),
            then: receive.queues.iter().skip(1).map(|q| queue(Some(q))).collect(),
            max: receive.max,
            bytes: receive.max_bytes,
            lease: receive.lease_ms,
            auto: receive.auto_ack,
        },
        Command::Expire(expire) => format::Command::Expire {
            l: expire
                .leases
                .iter()
                .map(|l| ExpiredLease { queue: l.queue, sequence: l.sequence, granted: l.granted_index })
                .collect(),
        },
        Command::Tick(_) => format::Command::Tick,
        Command::InitCluster(_) => format::Command::Init,
        Command::OpenSession(open) => format::Command::Open { renew: open.renew },
        Command::CreateQueue(create) => {
            format::Command::Create { q: queue(create.queue.as_ref()), set: settings(create.settings.as_ref()) }
        }
        Command::UpdateQueue(update) => {
            format::Command::Update { q: queue(update.queue.as_ref()), set: settings(update.settings.as_ref()) }
        }
        Command::DeleteQueue(delete) => format::Command::Delete { q: queue(delete.queue.as_ref()) },
        Command::PurgeQueue(purge) => format::Command::Purge { q: queue(purge.queue.as_ref()) },
        Command::PauseQueue(pause) => {
            let q = queue(pause.queue.as_ref());
            match &pause.pause {
                Some(pause) => format::Command::Pause { q, until: pause.until_ms },
                None => format::Command::Resume { q },
            }
        }
        Command::CloseQueue(close) => {
            let q = queue(close.queue.as_ref());
            if close.closed { format::Command::Close { q } } else { format::Command::Reopen { q } }
        }
        Command::SetNamespace(set) => format::Command::SetNamespace {
            ns: set.namespace.clone(),
            set: settings(set.defaults.as_ref()),
            auto: set.auto_create,
        },
        Command::DeleteNamespace(delete) => format::Command::DeleteNamespace { ns: delete.namespace.clone() },
    }
}

fn queue(queue: Option<&command::QueueRef>) -> QueueName {
    queue.map_or_else(|| QueueName::new("", ""), |q| QueueName::new(&q.namespace, &q.name))
}

/// A request's id.
pub fn rid(id: &ticketrail_core::RequestId) -> Rid {
    if id.session == 0 { Rid::token(id.token_high, id.token_low) } else { Rid::of(id.session, id.seq) }
}

fn target(target: &command::Target) -> Target {
    match (&target.id, &target.queue) {
        (Some(place), _) => Target::Id(born(place).unwrap_or(NOWHERE)),
        (None, named) => Target::Dedup { q: queue(named.as_ref()), dd: target.dedup_id.clone() },
    }
}

/// Stands for a place that makes no sense.
const NOWHERE: format::MessageId = format::MessageId { group: 0, queue: 0, held: false, priority: 0, sequence: 0 };

fn new_time(time: &command::Reschedule) -> NewTime {
    let of = target(&time.target.clone().unwrap_or_default());
    NewTime { of, d: time.delay_ms, at: time.deliver_at_ms }
}

fn settings(settings: Option<&command::QueueSettings>) -> Settings {
    let settings = settings.cloned().unwrap_or_default();
    Settings {
        max_depth: settings.max_depth,
        max_bytes: settings.max_bytes,
        lease: settings.lease_ms,
        max_attempts: settings.max_attempts,
        window: settings.failure_window_ms,
        base: settings.backoff_base_ms,
        cap: settings.backoff_cap_ms,
        dlq: settings.dead_letter_queue,
        max_wait: settings.max_wait_ms,
        expected_rate: settings.expected_rate_milli,
        on_group: settings.on_group_failure.map(|policy| match OnGroupFailure::try_from(policy) {
            Ok(OnGroupFailure::Block) => OnGroup::Block,
            Ok(OnGroupFailure::DeadLetterGroup) => OnGroup::Follow,
            // A number that means nothing is refused; what stands here does not matter.
            Ok(OnGroupFailure::Continue) | Err(_) => OnGroup::Continue,
        }),
        shed: settings
            .shed
            .map(|shed| shed.rules.iter().map(|rule| (rule.above_percent, rule.below_priority)).collect()),
        ttl: settings.ttl_ms,
        retain: settings.retain_done_ms,
        dedup: settings.dedup_window_ms,
        on_expired: settings.on_expired.map(|policy| match OnExpired::try_from(policy) {
            Ok(OnExpired::DeadLetter) => Remains::DeadLetter,
            Ok(OnExpired::Drop) | Err(_) => Remains::Nothing,
        }),
        on_exhausted: settings.on_exhausted.map(|policy| match OnExhausted::try_from(policy) {
            Ok(OnExhausted::Drop) => Remains::Nothing,
            Ok(OnExhausted::DeadLetter) | Err(_) => Remains::DeadLetter,
        }),
    }
}

fn settle(settle: &command::Settle) -> Settle {
    let how = match &settle.verdict {
        Some(Verdict::Ack(_)) => format::Verdict::Ack,
        Some(Verdict::Retry(retry)) => format::Verdict::Retry { d: retry.delay_ms },
        Some(Verdict::Reject(_)) => format::Verdict::Reject,
        // A settlement without a verdict is refused; what stands here does not matter.
        Some(Verdict::Release(_)) | None => format::Verdict::Release,
        Some(Verdict::Extend(extend)) => format::Verdict::Extend { lease: extend.lease_ms },
    };
    let output = |ack: &command::Ack| Output { h: fingerprint(&ack.output), n: ack.output.len() as u64 };
    let out = match &settle.verdict {
        Some(Verdict::Ack(ack)) if !ack.output.is_empty() => Some(output(ack)),
        _ => None,
    };
    Settle { tok: Token::of(&settle.token), how, out }
}

/// What a message has that most do not.
fn more(part: &command::Enqueue) -> Option<Box<More>> {
    let retry = part.retry.unwrap_or_default();
    let more = More {
        g: part.group.clone(),
        p: part.priority.map(|priority| u8::try_from(priority).unwrap_or(u8::MAX)),
        dd: part.dedup_id.clone(),
        ttl: part.ttl_ms,
        x: part.expires_at_ms,
        tries: retry.max_attempts,
        base: retry.backoff_base_ms,
        cap: retry.backoff_cap_ms,
        dlq: part.dead_letter_queue.clone(),
    };
    (more != More::default()).then(|| Box::new(more))
}

fn enqueue(queues: &[command::QueueRef], part: &command::Enqueue) -> EnqueuePart {
    let named = usize::try_from(part.queue).ok().and_then(|number| queues.get(number));
    let content = part.message.clone().unwrap_or_default();
    EnqueuePart {
        q: queue(named),
        m: NewMessage {
            v: body::value(&content.body),
            h: fingerprint(&content.body),
            n: content.size(),
            d: part.delay_ms,
            at: part.deliver_at_ms,
            more: more(part),
        },
    }
}

/// An answer, but for those to `Receive` and `Expire`, which say too little by themselves.
pub fn answered(answered: &Answered) -> anyhow::Result<Applied> {
    Ok(match answered {
        Answered::Committed(Committed { enqueued, settled, cancelled, rescheduled }) => Applied::Committed {
            s: settled
                .iter()
                .map(|r| self::settled(r.outcome.as_ref().context("expected an outcome of each settlement")?))
                .collect::<anyhow::Result<_>>()?,
            c: cancelled
                .iter()
                .map(|r| self::cancelled(r.outcome.as_ref().context("expected an outcome of each cancel")?))
                .collect::<anyhow::Result<_>>()?,
            t: rescheduled
                .iter()
                .map(|r| self::rescheduled(r.outcome.as_ref().context("expected an outcome of each reschedule")?))
                .collect::<anyhow::Result<_>>()?,
            e: enqueued
                .iter()
                .map(|r| self::enqueued(r.outcome.as_ref().context("expected an outcome of each enqueue")?))
                .collect::<anyhow::Result<_>>()?,
        },
        Answered::Received(_) | Answered::Expired(_) => bail!("expected no leases here, but got {answered:?}"),
        Answered::Ticked(ticked) => Applied::Ticked { n: ticked.fired, more: false },
        Answered::Initialized(initialized) => Applied::Initialized { first: initialized.first },
        Answered::SessionOpened(opened) => Applied::Session { s: opened.session },
        Answered::QueueChanged(changed) => Applied::Changed { q: changed.queue },
        Answered::QueueDeleted(removed) | Answered::QueuePurged(removed) => Applied::Removed { n: removed.count },
        Answered::NamespaceChanged(_) => Applied::Namespace,
    })
}

fn settled(outcome: &SettleOutcome) -> anyhow::Result<format::SettleOutcome> {
    Ok(match outcome {
        SettleOutcome::Acked(_) => format::SettleOutcome::Acked,
        SettleOutcome::DeadLettered(dead) => {
            format::SettleOutcome::Dead { seq: dead.place.sequence, q: dead.place.queue }
        }
        SettleOutcome::Delayed(until) => format::SettleOutcome::Delayed { due: until.due_ms },
        SettleOutcome::Readied(_) => format::SettleOutcome::Readied,
        SettleOutcome::Extended(extended) => format::SettleOutcome::Extended { left: extended.remaining_ms },
        SettleOutcome::Rejected(record) => format::SettleOutcome::No(refused(record)?),
        SettleOutcome::Purged(_) => format::SettleOutcome::Purged,
        SettleOutcome::Expired(_) => format::SettleOutcome::Expired,
        SettleOutcome::Dropped(_) => format::SettleOutcome::Dropped,
    })
}

fn enqueued(outcome: &EnqueueOutcome) -> anyhow::Result<format::EnqueueOutcome> {
    Ok(match outcome {
        EnqueueOutcome::Enqueued(Enqueued { place, available_at_ms, duplicate }) => {
            format::EnqueueOutcome::In { id: born(place)?, seq: place.sequence, at: *available_at_ms, dup: *duplicate }
        }
        EnqueueOutcome::Rejected(record) => format::EnqueueOutcome::No(refused(record)?),
    })
}

fn cancelled(outcome: &CancelOutcome) -> anyhow::Result<format::CancelOutcome> {
    Ok(match outcome {
        CancelOutcome::Cancelled(place) => format::CancelOutcome::Cancelled { id: born(place)? },
        CancelOutcome::Gone(_) => format::CancelOutcome::Gone,
        CancelOutcome::Rejected(record) => format::CancelOutcome::No(refused(record)?),
    })
}

fn rescheduled(outcome: &RescheduleOutcome) -> anyhow::Result<format::TimeOutcome> {
    Ok(match outcome {
        RescheduleOutcome::Rescheduled(Enqueued { place, available_at_ms, duplicate: _ }) => {
            format::TimeOutcome::Moved { id: born(place)?, at: *available_at_ms }
        }
        RescheduleOutcome::Rejected(record) => format::TimeOutcome::No(refused(record)?),
    })
}

/// A message that was acked as it was received.
pub fn taken(taken: &Taken) -> anyhow::Result<TakenOut> {
    let handle = &taken.handle;
    Ok(TakenOut {
        q: handle.place.queue,
        seq: handle.place.sequence,
        id: born(&taken.id)?,
        rc: handle.receive_count,
        f: handle.failures,
    })
}

fn born(place: &PlaceRecord) -> anyhow::Result<format::MessageId> {
    place.message_id().map(id).with_context(|| format!("expected a place, but got {place:?}"))
}

/// A message's id.
pub fn id(id: MessageId) -> format::MessageId {
    format::MessageId {
        group: id.group.0,
        queue: id.origin.queue.0,
        held: id.origin.space == Space::Held,
        priority: id.origin.priority,
        sequence: id.origin.sequence,
    }
}

fn refused(record: &RejectionRecord) -> anyhow::Result<Refusal> {
    record.rejection.as_ref().map(refusal).context("expected a rejection, but the record is empty")
}

/// A refusal, by the reason that the API gives it.
pub fn refusal(rejection: &Rejection) -> Refusal {
    match rejection {
        Rejection::NotInitialized(_) => Refusal::new("NOT_INITIALIZED"),
        Rejection::Invalid(invalid) => {
            Refusal { text: format!("{}: {}", invalid.field, invalid.reason), ..Refusal::new("INVALID") }
        }
        Rejection::QueueNotFound(_) => Refusal::new("QUEUE_NOT_FOUND"),
        Rejection::QueueExists(_) => Refusal::new("QUEUE_EXISTS"),
        Rejection::QueueClosed(_) => Refusal::new("QUEUE_CLOSED"),
        Rejection::Full(full) => {
            Refusal { bound: Some(full.bound.clone()), again: Some(full.retry_after_ms), ..Refusal::new("FULL") }
        }
        Rejection::LeaseLost(LeaseLost { receive_count }) => Refusal::counted("LEASE_LOST", *receive_count),
        Rejection::TooLate(LeaseLost { receive_count }) => Refusal::counted("TOO_LATE", *receive_count),
        Rejection::MessageNotFound(_) => Refusal::new("MESSAGE_NOT_FOUND"),
        Rejection::RequestIdsFull(_) => Refusal::new("REQUEST_IDS_FULL"),
        Rejection::NamespaceNotFound(_) => Refusal::new("NAMESPACE_NOT_FOUND"),
        Rejection::NamespacesFull(_) => Refusal::new("NAMESPACES_FULL"),
        Rejection::RequestIdOld(_) => Refusal::new("REQUEST_ID_OLD"),
        Rejection::SessionWindow(_) => Refusal::new("SESSION_WINDOW"),
        Rejection::RequestIdReused(_) => Refusal::new("REQUEST_ID_REUSED"),
        Rejection::SessionExpired(_) => Refusal::new("SESSION_EXPIRED"),
        Rejection::SessionsFull(_) => Refusal::new("SESSIONS_FULL"),
        Rejection::QueuesFull(_) => Refusal::new("QUEUES_FULL"),
        Rejection::EntryFull(_) => Refusal::new("ENTRY_FULL"),
        Rejection::PartRefused(PartRefused { part, why }) => {
            let why = why.as_ref().and_then(|record| record.rejection.as_ref());
            let part = part.map(|part| match part {
                Part::Settle(number) => format!("s{number}"),
                Part::Enqueue(number) => format!("e{number}"),
                Part::Cancel(number) => format!("c{number}"),
                Part::Reschedule(number) => format!("t{number}"),
            });
            Refusal { part, ..why.map_or_else(|| Refusal::new("BROKEN"), refusal) }
        }
    }
}
