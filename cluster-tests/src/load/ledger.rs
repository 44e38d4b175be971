//! What producers and consumers were told, in their own words, and what must be true of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::ensure;

/// What went wrong is told so often; the rest is counted.
const TOLD: usize = 8;

/// What is written down while load runs.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// The id of each message whose send was acknowledged, by its key.
    sent: Mutex<BTreeMap<String, String>>,
    /// How often each key's ack was answered OK.
    finished: Mutex<BTreeMap<String, u32>>,
    /// The ids that each key was delivered under.
    delivered: Mutex<BTreeMap<String, BTreeSet<String>>>,
    wrong: Mutex<Vec<String>>,
    wrongs: AtomicU64,
    pub(super) meter: Mutex<Meter>,
    pub(super) acknowledged: AtomicU64,
    replayed: AtomicU64,
    redelivered: AtomicU64,
    leases_lost: AtomicU64,
    /// No more messages.
    pub(super) stop: AtomicBool,
    /// No more deliveries.
    pub(super) done: AtomicBool,
}

/// How long nothing was acknowledged.
#[derive(Debug, Default)]
pub(super) struct Meter {
    last: Option<Instant>,
    longest: Duration,
}

impl Meter {
    fn tick(&mut self, now: Instant) {
        if let Some(last) = self.last {
            self.longest = self.longest.max(now.saturating_duration_since(last));
        }
        self.last = Some(now);
    }

    /// The longest gap since this was asked last, the one that is still open included.
    pub(super) fn take(&mut self, now: Instant) -> Duration {
        let open = self.last.map_or(Duration::ZERO, |last| now.saturating_duration_since(last));
        std::mem::take(&mut self.longest).max(open)
    }
}

impl Ledger {
    pub(super) fn acknowledge(&self, key: String, id: String, replayed: bool) {
        self.meter.lock().unwrap().tick(Instant::now());
        if let Some(other) = self.sent.lock().unwrap().insert(key.clone(), id) {
            self.complain(format!("{key} was acknowledged twice, first as {other}"));
        }
        self.acknowledged.fetch_add(1, Ordering::Relaxed);
        self.replayed.fetch_add(replayed.into(), Ordering::Relaxed);
    }

    pub(super) fn deliver(&self, key: &str, id: &str, receive_count: u32) {
        if self.finished.lock().unwrap().contains_key(key) {
            self.complain(format!("{key} was delivered after its ack was answered OK"));
        }
        self.delivered.lock().unwrap().entry(key.to_owned()).or_default().insert(id.to_owned());
        self.redelivered.fetch_add((receive_count > 1).into(), Ordering::Relaxed);
    }

    pub(super) fn finish(&self, key: String) {
        *self.finished.lock().unwrap().entry(key).or_default() += 1;
    }

    /// An ack came after the end of its lease: the message is delivered anew.
    pub(super) fn lose_lease(&self) {
        self.leases_lost.fetch_add(1, Ordering::Relaxed);
    }

    /// What a user of the SDK should not have seen.
    pub(super) fn complain(&self, what: String) {
        self.wrongs.fetch_add(1, Ordering::Relaxed);
        let mut wrong = self.wrong.lock().unwrap();
        if wrong.len() < TOLD {
            wrong.push(what);
        }
    }

    pub(super) fn wrong(&self) -> Vec<String> {
        self.wrong.lock().unwrap().clone()
    }

    pub(super) fn finished_keys(&self) -> u64 {
        self.finished.lock().unwrap().len() as u64
    }

    pub(super) fn ids(&self) -> BTreeMap<String, BTreeSet<String>> {
        self.delivered.lock().unwrap().clone()
    }

    pub(super) fn tally(&self, seconds: Duration) -> Tally {
        Tally {
            sent: self.sent.lock().unwrap().clone(),
            finished: self.finished.lock().unwrap().clone(),
            delivered: self.ids(),
            wrong: self.wrong(),
            wrongs: self.wrongs.load(Ordering::Relaxed),
            replayed: self.replayed.load(Ordering::Relaxed),
            redelivered: self.redelivered.load(Ordering::Relaxed),
            leases_lost: self.leases_lost.load(Ordering::Relaxed),
            seconds,
        }
    }
}

/// What load came to.
#[derive(Debug, Clone)]
pub struct Tally {
    /// The id of each acknowledged message, by its key.
    pub sent: BTreeMap<String, String>,
    /// How often each key's ack was answered OK.
    pub finished: BTreeMap<String, u32>,
    /// The ids that each key was delivered under.
    pub delivered: BTreeMap<String, BTreeSet<String>>,
    /// The first of the errors that a user of the SDK saw, and other things that must not be.
    pub wrong: Vec<String>,
    /// How many there were.
    pub wrongs: u64,
    /// Sends whose outcome was an earlier attempt's.
    pub replayed: u64,
    /// Deliveries of messages that had been delivered before.
    pub redelivered: u64,
    /// Acks that came after the end of their leases: lawful where an outage is longer than a lease.
    pub leases_lost: u64,
    /// How long messages were sent.
    pub seconds: Duration,
}

/// What was on a queue.
#[derive(Debug, Clone)]
pub struct Drained {
    /// The ids of the messages, by their key.
    pub ids: BTreeMap<String, BTreeSet<String>>,
    /// Messages enqueued ever, as the server counts.
    pub enqueued: u64,
    /// Messages left.
    pub left: u64,
}

impl Tally {
    /// Messages acknowledged.
    pub fn acknowledged(&self) -> u64 {
        self.sent.len() as u64
    }

    /// Messages a second.
    pub fn rate(&self) -> f64 {
        self.sent.len() as f64 / self.seconds.as_secs_f64()
    }

    /// No user has seen an error: each send was answered OK, and each ack, but for those that came too late.
    pub fn check_no_error(&self) -> anyhow::Result<()> {
        ensure!(self.wrongs == 0, "expected no error, but there were {}: {:#?}", self.wrongs, self.wrong);
        Ok(())
    }

    /// Each acknowledged message was delivered, under its own id alone, and finished once; `enqueued`, which the server
    /// counts, is as many.
    pub fn check_finished(&self, enqueued: u64) -> anyhow::Result<()> {
        self.check_is(&self.delivered)?;
        let twice: Vec<_> = self.finished.iter().filter(|(_, times)| **times != 1).take(TOLD).collect();
        ensure!(twice.is_empty(), "finished twice: {twice:?}");
        let lost: Vec<_> = self.sent.keys().filter(|key| !self.finished.contains_key(*key)).take(TOLD).collect();
        ensure!(lost.is_empty(), "not finished: {lost:?}");
        ensure!(enqueued == self.acknowledged(), "expected {} enqueued, but {enqueued}", self.acknowledged());
        Ok(())
    }

    /// What was on the queue is what was acknowledged: each message once, nothing else.
    pub fn check_drained(&self, drained: &Drained) -> anyhow::Result<()> {
        self.check_is(&drained.ids)?;
        let Drained { enqueued, left, .. } = *drained;
        ensure!(left == 0, "expected an empty queue, but {left} are left");
        ensure!(enqueued == self.acknowledged(), "expected {} enqueued, but {enqueued}", self.acknowledged());
        Ok(())
    }

    fn check_is(&self, there: &BTreeMap<String, BTreeSet<String>>) -> anyhow::Result<()> {
        let lost: Vec<_> = self.sent.keys().filter(|key| !there.contains_key(*key)).take(TOLD).collect();
        ensure!(lost.is_empty(), "acknowledged and lost: {lost:?}");
        let others: Vec<_> = there.keys().filter(|key| !self.sent.contains_key(*key)).take(TOLD).collect();
        ensure!(others.is_empty(), "there, but never acknowledged: {others:?}");
        let wrong = |(key, ids): &(&String, &BTreeSet<String>)| {
            ids.len() != 1 || self.sent.get(*key).is_none_or(|id| !ids.contains(id))
        };
        let wrong: Vec<_> = there.iter().filter(wrong).take(TOLD).collect();
        ensure!(wrong.is_empty(), "there twice, or under another id: {wrong:?}");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(ledger: &Ledger) -> Tally {
        ledger.tally(Duration::from_secs(1))
    }

    #[test]
    fn the_audit_finds_what_is_lost_doubled_or_strange() {
        let ledger = Ledger::default();
        ledger.acknowledge("k".into(), "m1".into(), false);
        assert!(tally(&ledger).check_finished(1).unwrap_err().to_string().contains("lost"));
        ledger.deliver("k", "m1", 1);
        assert!(tally(&ledger).check_finished(1).unwrap_err().to_string().contains("not finished"));
        ledger.finish("k".into());
        assert!(tally(&ledger).check_finished(1).is_ok() && tally(&ledger).check_no_error().is_ok());
        assert!(tally(&ledger).check_finished(2).unwrap_err().to_string().contains("enqueued"));

        ledger.deliver("k", "m2", 1);
        assert!(tally(&ledger).check_finished(1).unwrap_err().to_string().contains("twice"));
        assert!(tally(&ledger).check_no_error().unwrap_err().to_string().contains("after its ack"));
        ledger.deliver("x", "m3", 1);
        assert!(tally(&ledger).check_finished(1).unwrap_err().to_string().contains("never acknowledged"));
        ledger.acknowledge("k".into(), "m4".into(), false);
        assert_eq!(tally(&ledger).wrongs, 2);
    }

    #[test]
    fn the_longest_gap_counts_from_the_last_question_on_and_up_to_now() {
        let (begun, ms) = (Instant::now(), Duration::from_millis);
        let mut meter = Meter::default();
        assert_eq!(meter.take(begun), ms(0));
        for at in [0, 10, 40] {
            meter.tick(begun + ms(at));
        }
        assert_eq!(meter.take(begun + ms(50)), ms(30));
        assert_eq!(meter.take(begun + ms(90)), ms(50));
        meter.tick(begun + ms(100));
        assert_eq!(meter.take(begun + ms(101)), ms(60));
    }
}
