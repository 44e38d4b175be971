//! The bounds of a queue, which gate producers only (SEMANTICS "Enqueue").

use super::rate;
use crate::command::Enqueue;
use crate::limits;
use crate::query::QueueInfo;
use crate::records::{ConfigRecord, QueueRecord, RateRecord};
use crate::reply::Full;

/// A message to be enqueued, or several alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Newcomers {
    /// How many.
    pub messages: u64,
    /// Their bytes in all.
    pub bytes: u64,
    /// How many have a dedup id.
    pub dedup_ids: u64,
    /// Their priority.
    pub priority: u8,
    /// Whether they are delayed first, and wait for nobody until they are due.
    pub delayed: bool,
}

impl Newcomers {
    /// One message of `bytes`, which is legal.
    pub fn new(part: &Enqueue, bytes: u64, delayed: bool) -> Self {
        let priority = part.priority.and_then(|priority| u8::try_from(priority).ok());
        let dedup_ids = u64::from(!part.dedup_id.is_empty());
        Self { messages: 1, bytes, dedup_ids, priority: priority.unwrap_or(limits::PRIORITY_DEFAULT), delayed }
    }
}

/// The bound that newcomers would pass by what a look at the queue shows, if there is one. `coming` messages of
/// `coming_bytes` are on their way, `coming_ready` of them ready at once. The leader refuses by this; `apply` decides.
pub fn bound_passed(
    info: &QueueInfo,
    coming: u64,
    coming_ready: u64,
    coming_bytes: u64,
    newcomers: Newcomers,
) -> Option<Full> {
    let (stats, settings) = (&info.stats, info.settings.clone());
    let config = ConfigRecord { name: info.name.clone(), settings, ..ConfigRecord::default() };
    let rate = stats.rate_milli.map(|finished| RateRecord { finished, busy_ms: 1_000_000, ..RateRecord::default() });
    let record = QueueRecord {
        ready: stats.ready.saturating_add(coming_ready),
        delayed: stats.delayed.saturating_add(coming.saturating_sub(coming_ready)),
        blocked: stats.blocked,
        leased: stats.leased,
        bytes: stats.bytes.saturating_add(coming_bytes),
        dedup_ids: stats.dedup_ids,
        rate,
        ..QueueRecord::default()
    };
    passed(&config, &record, newcomers)
}

/// As [`passed`], with busy time reckoned up to `now` where it matters.
pub(crate) fn passed_at(now: u64, config: &ConfigRecord, record: &QueueRecord, newcomers: Newcomers) -> Option<Full> {
    let passed_before = passed(config, record, newcomers);
    if passed_before.is_none() && config.settings.max_wait_ms.is_none_or(|limit| limit == 0) {
        return None;
    }
    let mut record = record.clone();
    record.reckon(now, config.pause.is_some());
    passed(config, &record, newcomers)
}

/// The bound that newcomers would pass, if there is one.
pub(crate) fn passed(config: &ConfigRecord, record: &QueueRecord, newcomers: Newcomers) -> Option<Full> {
    over(config, record, newcomers.messages, newcomers.bytes)
        .or_else(|| shed(config, record, newcomers))
        .or_else(|| max_wait(config, record, newcomers))
        .or_else(|| full(config, "dedup_ids", limits::DEDUP_IDS, record.dedup_ids, newcomers.dedup_ids))
}

/// The bound on what a queue holds that newcomers would pass. Moves pass it all the same.
pub(crate) fn over(config: &ConfigRecord, record: &QueueRecord, messages: u64, bytes: u64) -> Option<Full> {
    let settings = &config.settings;
    let depth = record.depth();
    let by_depth = settings.max_depth.and_then(|limit| full(config, "max_depth", limit, depth, messages));
    if let Some(passed) = by_depth {
        let excess = depth.saturating_sub(nine_tenths(passed.limit));
        return Some(Full { retry_after_ms: retry_after(config, record, Some(excess)), ..passed });
    }
    let passed = settings.max_bytes.and_then(|limit| full(config, "max_bytes", limit, record.bytes, bytes))?;
    // In messages of the mean size held.
    let excess = u128::from(record.bytes.saturating_sub(nine_tenths(passed.limit)));
    let excess = excess.saturating_mul(depth.into()).checked_div(record.bytes.into());
    let excess = excess.and_then(|messages| u64::try_from(messages).ok());
    Some(Full { retry_after_ms: retry_after(config, record, excess), ..passed })
}

/// Above a share of `max_depth`, messages below a priority are refused.
fn shed(config: &ConfigRecord, record: &QueueRecord, newcomers: Newcomers) -> Option<Full> {
    let max_depth = config.settings.max_depth.filter(|limit| *limit > 0)?;
    let depth = record.depth();
    let rules = config.settings.shed.iter().flat_map(|shed| &shed.rules);
    let concern = rules.filter(|rule| u32::from(newcomers.priority) < rule.below_priority);
    let mut limits = concern.map(|rule| percent(max_depth, rule.above_percent));
    let limit = limits.find(|limit| depth.saturating_add(newcomers.messages) > *limit)?;
    Some(refusal(config, "shed", limit, depth))
}

/// Whoever is ready or blocked would wait longer for a receiver than the queue allows.
fn max_wait(config: &ConfigRecord, record: &QueueRecord, newcomers: Newcomers) -> Option<Full> {
    let max_wait_ms = config.settings.max_wait_ms.filter(|limit| *limit > 0 && !newcomers.delayed)?;
    let rate = rate::known(config, record)?;
    let waiting = record.ready.saturating_add(record.blocked);
    let with_newcomers = waiting.saturating_add(newcomers.messages);
    if !rate.takes_longer(with_newcomers, max_wait_ms) {
        return None;
    }
    let excess = waiting.saturating_sub(nine_tenths(rate.messages_in(max_wait_ms)));
    let retry_after_ms = retry_after(config, record, Some(excess));
    Some(Full { retry_after_ms, ..refusal(config, "max_wait", max_wait_ms, rate.time_of(with_newcomers)) })
}

fn nine_tenths(limit: u64) -> u64 {
    percent(limit, 90)
}

fn percent(limit: u64, percent: u32) -> u64 {
    let share = u128::from(limit).saturating_mul(percent.into()).checked_div(100).unwrap_or_default();
    u64::try_from(share).unwrap_or(u64::MAX)
}

/// How long the queue's workers need for what is too much, in milliseconds.
fn retry_after(config: &ConfigRecord, record: &QueueRecord, excess: Option<u64>) -> u64 {
    match (rate::known(config, record), excess) {
        (Some(rate), Some(excess)) => {
            rate.time_of(excess).clamp(limits::RETRY_AFTER_MIN_MS, limits::RETRY_AFTER_MAX_MS)
        }
        (Some(_) | None, _) => limits::RETRY_AFTER_MS,
    }
}

fn full(config: &ConfigRecord, bound: &str, limit: u64, held: u64, more: u64) -> Option<Full> {
    (limit > 0 && more > 0 && held.saturating_add(more) > limit).then(|| refusal(config, bound, limit, held))
}

fn refusal(config: &ConfigRecord, bound: &str, limit: u64, held: u64) -> Full {
    let queue = (&config.name).into();
    Full { queue, bound: bound.into(), limit, held, retry_after_ms: limits::RETRY_AFTER_MS }
}

impl QueueRecord {
    /// Messages here now.
    pub(crate) fn depth(&self) -> u64 {
        self.ready.saturating_add(self.delayed).saturating_add(self.blocked).saturating_add(self.leased)
    }
}
