//! Messages and counters of each queue, from the replicated state: a leader alone tells them, since a follower's would
//! lag, and sums over nodes would count each message several times.
//!
//! The series are bounded: the oldest queues have series of their own, so that a new queue displaces none; all others
//! are summed up. Counters are not, since a sum falls where one of its queues is deleted.

use std::sync::Arc;

use anyhow::bail;
use ticketrail_core::query::{QueueInfo, Stats};
use ticketrail_core::{Answer, Query, QueueId, Timestamp, limits};
use ticketrail_node::Handle;
use ticketrail_node::call::Freshness;
use tokio::sync::Mutex;

use super::page::{Family, Labels};

/// Queues with series of their own.
const SERIES: usize = 500;
/// Queues looked at for one page, 20 to 50 µs each; those made later count nowhere.
const LOOKS: usize = 10_000;
/// How long figures serve for several who ask at about the same time, in milliseconds.
const FRESH_MS: u64 = 1_000;
/// What stands for all queues without series of their own.
const OTHER: &str = "_other";

/// Reads the queues' figures, one reader at a time.
#[derive(Default)]
pub(super) struct Queues {
    last: Mutex<Option<(u64, Arc<Figures>)>>,
}

/// The figures of all queues.
#[derive(Debug, Default)]
struct Figures {
    now: Timestamp,
    own: Vec<QueueInfo>,
    /// The sum of the others.
    other: Option<Stats>,
    queues: usize,
    /// Whether there are more queues than were looked at.
    cut: bool,
}

impl Queues {
    /// Families as of now, or of up to a second ago; `uptime_ms` tells the time.
    pub(super) async fn families(&self, node: &Handle, uptime_ms: u64) -> anyhow::Result<Vec<Family>> {
        let mut last = self.last.lock().await;
        let figures = match &*last {
            Some((at_ms, figures)) if uptime_ms.saturating_sub(*at_ms) < FRESH_MS => figures.clone(),
            Some(_) | None => {
                let figures = Arc::new(read(node).await?);
                *last = Some((uptime_ms, figures.clone()));
                figures
            }
        };
        drop(last);
        Ok(families(&figures))
    }
}

async fn read(node: &Handle) -> anyhow::Result<Figures> {
    let (answer, _) = node.query(Query::Clock, Freshness::StaleOk).await?;
    let Answer::Clock(clock) = answer else { bail!("expected the clocks, but got {answer:?}") };
    let mut figures = Figures { now: clock.cluster, ..Figures::default() };
    let mut after: Option<QueueId> = None;
    loop {
        let query = Query::AllQueues { after, limit: limits::PAGE };
        let (answer, _) = node.query(query, Freshness::StaleOk).await?;
        let Answer::Queues(page) = answer else { bail!("expected a page of queues, but got {answer:?}") };
        let Some(last) = page.last().map(|queue| queue.id) else { return Ok(figures) };
        if figures.queues >= LOOKS {
            figures.cut = true;
            return Ok(figures);
        }
        after = Some(last);
        page.into_iter().for_each(|queue| figures.add(queue));
    }
}

impl Figures {
    fn add(&mut self, queue: QueueInfo) {
        self.queues += 1;
        if self.own.len() < SERIES {
            self.own.push(queue);
            return;
        }
        let stats = queue.stats;
        let sum = self.other.get_or_insert_default();
        sum.ready = sum.ready.saturating_add(stats.ready);
        sum.delayed = sum.delayed.saturating_add(stats.delayed);
        sum.blocked = sum.blocked.saturating_add(stats.blocked);
        sum.leased = sum.leased.saturating_add(stats.leased);
        sum.bytes = sum.bytes.saturating_add(stats.bytes);
        sum.oldest_ready_at = sum.oldest_ready_at.into_iter().chain(stats.oldest_ready_at).min();
    }

    /// Gauges may be summed up.
    fn gauges<T>(&self, value: impl Fn(&Stats) -> Option<T>) -> Vec<(Labels, T)> {
        let own = self.own.iter().map(|queue| (labels(queue), &queue.stats));
        let other = self.other.iter().map(|stats| (other(), stats));
        own.chain(other).filter_map(|(labels, stats)| value(stats).map(|value| (labels, value))).collect()
    }

    /// Counters stand for one queue each.
    fn counters(&self, value: impl Fn(&Stats) -> u64) -> Vec<(Labels, u64)> {
        self.own.iter().map(|queue| (labels(queue), value(&queue.stats))).collect()
    }
}

fn labels(queue: &QueueInfo) -> Labels {
    vec![("namespace", queue.name.namespace.clone()), ("queue", queue.name.name.clone())]
}

/// The labels of the sum: not a name that a queue can have.
fn other() -> Labels {
    vec![("namespace", OTHER.to_owned()), ("queue", OTHER.to_owned())]
}

/// Something counted of one queue.
type Count = fn(&Stats) -> u64;

/// The states of a message, and how many messages of a queue are in each.
const STATES: [(&str, Count); 4] = [
    ("ready", |stats| stats.ready),
    ("delayed", |stats| stats.delayed),
    ("leased", |stats| stats.leased),
    ("blocked", |stats| stats.blocked),
];

/// A counter's name, its help, and its value for one queue.
type Counter = (&'static str, &'static str, Count);

macro_rules! of_each_queue {
    ($what:literal) => {
        concat!($what, " From replicated state: the leader alone tells, for the 500 oldest queues.")
    };
}

const COUNTERS: [Counter; 9] = [
    ("ticketrail_messages_enqueued", of_each_queue!("Messages enqueued."), |stats| stats.enqueued),
    ("ticketrail_messages_delivered", of_each_queue!("Leases granted."), |stats| stats.received),
    (
        "ticketrail_messages_redelivered",
        of_each_queue!("Leases granted on messages that had been leased before."),
        |stats| stats.redelivered,
    ),
    ("ticketrail_messages_acked", of_each_queue!("Messages finished."), |stats| stats.acked),
    ("ticketrail_messages_failed", of_each_queue!("Failures counted: nacks and leases that ran out."), |stats| {
        stats.failed
    }),
    (
        "ticketrail_messages_dead_lettered",
        of_each_queue!("Messages that left for the dead-letter queue, or were dropped at the end of their attempts."),
        |stats| stats.moved_out.saturating_add(stats.dropped),
    ),
    ("ticketrail_messages_expired", of_each_queue!("Messages dropped because their time to live ran out."), |stats| {
        stats.expired_dropped
    }),
    ("ticketrail_messages_purged", of_each_queue!("Messages purged."), |stats| stats.purged),
    ("ticketrail_leases_expired", of_each_queue!("Leases that ran out."), |stats| stats.lease_expired),
];

fn families(figures: &Figures) -> Vec<Family> {
    let messages = STATES.into_iter().flat_map(|(state, count)| {
        figures.gauges(|stats| Some(count(stats))).into_iter().map(move |(mut labels, count)| {
            labels.push(("state", state.to_owned()));
            (labels, count)
        })
    });
    let age = |stats: &Stats| {
        let oldest = stats.oldest_ready_at?;
        Some(figures.now.0.saturating_sub(oldest.0) as f64 / 1_000.0)
    };
    let flags = |flag: fn(&QueueInfo) -> bool| figures.own.iter().map(move |queue| (labels(queue), flag(queue)));
    let mut families = vec![
        Family::gauges(
            "ticketrail_queue_messages",
            "Messages by state. From replicated state: the leader alone tells; queues past the 500 oldest are summed up \
             as _other.",
            messages,
        ),
        Family::gauges(
            "ticketrail_queue_bytes",
            "Bytes of the messages in the queue. The leader alone tells.",
            figures.gauges(|stats| Some(stats.bytes)),
        ),
        Family::gauges(
            "ticketrail_queue_oldest_ready_age_seconds",
            "How long the oldest ready message has been ready; absent where none is. The leader alone tells.",
            figures.gauges(age),
        ),
        Family::gauges(
            "ticketrail_queue_paused",
            "1 while delivery is stopped. The leader alone tells.",
            flags(|queue| queue.paused.is_some()),
        ),
        Family::gauges(
            "ticketrail_queue_closed",
            "1 while enqueues are refused. The leader alone tells.",
            flags(|queue| queue.closed),
        ),
        Family::gauge("ticketrail_queues", "Queues counted. The leader alone tells.", figures.queues),
        Family::gauge(
            "ticketrail_queues_cut",
            "1 where there are more queues than the figures above count. The leader alone tells.",
            figures.cut,
        ),
    ];
    let counters =
        COUNTERS.into_iter().map(|(name, help, value)| Family::counters(name, help, figures.counters(value)));
    families.extend(counters);
    families
}
