//! Commands and outcomes of `core` in the words of a history.

use anyhow::{Context as _, bail};
use ticketrail_core::command::{self, Verdict};
use ticketrail_core::reply::{
    Answered, Committed, EnqueueOutcome, Enqueued, LeaseLost, Part, PartRefused, PlaceRecord, RejectionRecord,
    SettleOutcome,
};
use ticketrail_core::{Command, MessageId, Rejection, Space};
use ticketrail_history::format::{
    self, Applied, EnqueuePart, ExpiredLease, NewMessage, QueueName, Refusal, Settings, Settle, Token, body,
    fingerprint,
};

/// A command.
pub fn command(command: &Command) -> format::Command {
    match command {
        Command::Commit(commit) => format::Command::Commit {
            s: commit.settle.iter().map(settle).collect(),
            e: commit.enqueue.iter().map(|part| enqueue(&commit.queues, part)).collect(),
            atomic: commit.atomic,
            auto: commit.auto_create,
        },
        Command::Receive(receive) => format::Command::Receive {
            q: queue(receive.queues.first()),
            max: receive.max,
            bytes: receive.max_bytes,
            lease: receive.lease_ms,
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
    }
}

fn queue(queue: Option<&command::QueueRef>) -> QueueName {
    queue.map_or_else(|| QueueName::new("", ""), |q| QueueName::new(&q.namespace, &q.name))
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
    Settle { tok: Token::of(&settle.token), how }
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
        },
    }
}

/// An answer, but for those to `Receive` and `Expire`, which say too little by themselves.
pub fn answered(answered: &Answered) -> anyhow::Result<Applied> {
    Ok(match answered {
        Answered::Committed(Committed { enqueued, settled }) => Applied::Committed {
            s: settled
                .iter()
                .map(|r| self::settled(r.outcome.as_ref().context("expected an outcome of each settlement")?))
                .collect::<anyhow::Result<_>>()?,
            e: enqueued
                .iter()
                .map(|r| self::enqueued(r.outcome.as_ref().context("expected an outcome of each enqueue")?))
                .collect::<anyhow::Result<_>>()?,
        },
        Answered::Received(_) | Answered::Expired(_) => bail!("expected no leases here, but got {answered:?}"),
        Answered::Ticked(ticked) => Applied::Ticked { n: ticked.fired },
        Answered::Initialized(initialized) => Applied::Initialized { first: initialized.first },
        Answered::SessionOpened(opened) => Applied::Session { s: opened.session },
        Answered::QueueChanged(changed) => Applied::Changed { q: changed.queue },
        Answered::QueueDeleted(removed) | Answered::QueuePurged(removed) => Applied::Removed { n: removed.count },
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
    })
}

fn enqueued(outcome: &EnqueueOutcome) -> anyhow::Result<format::EnqueueOutcome> {
    Ok(match outcome {
        EnqueueOutcome::Enqueued(Enqueued { place, available_at_ms }) => {
            format::EnqueueOutcome::In { id: born(place)?, seq: place.sequence, at: *available_at_ms }
        }
        EnqueueOutcome::Rejected(record) => format::EnqueueOutcome::No(refused(record)?),
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
        Rejection::Full(_) => Refusal::new("FULL"),
        Rejection::LeaseLost(LeaseLost { receive_count }) => {
            Refusal { rc: *receive_count, ..Refusal::new("LEASE_LOST") }
        }
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
            });
            Refusal { part, ..why.map_or_else(|| Refusal::new("BROKEN"), refusal) }
        }
    }
}
