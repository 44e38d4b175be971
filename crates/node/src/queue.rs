//! What waits to be proposed: a queue bounded by bytes, of requests with somebody who waits for each answer.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use parking_lot::Mutex;
use ticketrail_core::command::{Command, Commit};
use ticketrail_core::{Rejection, Reply, Request, limits};
use tokio::sync::{Notify, oneshot};

use crate::call::Unavailable;
use crate::flight::Hold;
use crate::sessions::Slot;

/// What became of a request.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Resolution {
    /// It took effect in `term`.
    Replied { reply: Reply, term: u64 },
    /// `apply` said no.
    Rejected(Rejection),
    /// It was never in the log.
    Unavailable(Unavailable),
    /// It may be in the log or not, and cannot be proposed again here.
    Unknown,
}

/// How far a request is, so that who waits for it can take it back.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fate(Arc<AtomicU8>);

impl Fate {
    const WAITING: u8 = 0;
    const TAKEN: u8 = 1;
    const WITHDRAWN: u8 = 2;

    /// Takes the request out of the queue for ever. False: it may be in the log.
    pub(crate) fn withdraw(&self) -> bool {
        let taken = self.0.compare_exchange(Self::WAITING, Self::WITHDRAWN, Ordering::SeqCst, Ordering::SeqCst);
        !matches!(taken, Err(Self::TAKEN))
    }

    /// Takes the request to propose it. False: it was withdrawn.
    fn take(&self) -> bool {
        let taken = self.0.compare_exchange(Self::WAITING, Self::TAKEN, Ordering::SeqCst, Ordering::SeqCst);
        !matches!(taken, Err(Self::WITHDRAWN))
    }

    /// Puts back what surely is not in the log.
    pub(crate) fn put_back(&self) {
        self.0.store(Self::WAITING, Ordering::SeqCst);
    }
}

/// A request that waits to be proposed, or for its outcome.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) request: Request,
    /// Whether it may have been proposed before.
    pub(crate) repeat: bool,
    /// Whether the proposer has put it back in doubt, of which its caller knows nothing.
    pub(crate) doubted: bool,
    pub(crate) fate: Fate,
    pub(crate) reply: oneshot::Sender<Resolution>,
    /// Its place in a session of this node, unless the caller has one; given back when the outcome is known.
    pub(crate) slot: Option<Slot>,
    /// What it holds of its queue's room; given back when the outcome is known.
    pub(crate) hold: Option<Hold>,
    own: bool,
    cost: Cost,
}

/// Where a request's outcome will be told.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) fate: Fate,
    pub(crate) outcome: oneshot::Receiver<Resolution>,
}

/// Who tells it.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) fate: Fate,
    pub(crate) reply: oneshot::Sender<Resolution>,
}

/// Both ends of a question.
pub(crate) fn asked() -> (Asked, Waiting) {
    let (reply, outcome) = oneshot::channel();
    let fate = Fate::default();
    (Asked { fate: fate.clone(), reply }, Waiting { fate, outcome })
}

impl Pending {
    /// A command of the leader's own, which nobody repeats. It is proposed whether or not somebody waits for it.
    pub(crate) fn own(command: Command) -> (Self, Waiting) {
        let (asked, waiting) = asked();
        let pending = Self::new(Request::anonymous(command), false, asked, None, None);
        (Self { own: true, ..pending }, waiting)
    }

    /// A request somebody asked for.
    pub(crate) fn new(request: Request, repeat: bool, asked: Asked, slot: Option<Slot>, hold: Option<Hold>) -> Self {
        let cost = Cost::of(&request);
        let Asked { fate, reply } = asked;
        Self { request, repeat, doubted: false, fate, reply, slot, hold, own: false, cost }
    }

    fn is_wanted(&self) -> bool {
        self.own || !self.reply.is_closed()
    }

    /// Tells the outcome. Gives it back where nobody waits for it any more.
    pub(crate) fn resolve(self, resolution: Resolution) -> Result<(), Resolution> {
        drop(self.hold);
        drop(self.slot);
        self.reply.send(resolution)
    }
}

/// What a request may cost: its own bytes, and what `apply` may write for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Cost {
    encoded: usize,
    keys: usize,
    written: usize,
}

/// Bytes of one small record with its key.
const RECORD_BYTES: usize = 160;

impl Cost {
    fn of(request: &Request) -> Self {
        let encoded = prost::Message::encoded_len(request);
        let (keys, written) = match &request.command {
            Some(Command::Commit(commit)) => Self::of_commit(commit, encoded),
            Some(Command::Receive(receive)) => {
                let max = usize::try_from(receive.max).unwrap_or(limits::BATCH).min(limits::BATCH);
                (3 * max, 3 * max * RECORD_BYTES)
            }
            Some(Command::Expire(expire)) => (4 * expire.leases.len(), 4 * expire.leases.len() * RECORD_BYTES),
            // Bounded in `apply`, to half an entry.
            Some(Command::Tick(_)) => (limits::ENTRY_KEYS / 2, limits::ENTRY_BYTES / 2),
            Some(
                Command::InitCluster(_)
                | Command::OpenSession(_)
                | Command::CreateQueue(_)
                | Command::UpdateQueue(_)
                | Command::DeleteQueue(_)
                | Command::PurgeQueue(_)
                | Command::PauseQueue(_)
                | Command::CloseQueue(_)
                | Command::SetNamespace(_)
                | Command::DeleteNamespace(_),
            )
            | None => (8, encoded + 8 * RECORD_BYTES),
        };
        Self { encoded, keys: keys + 2, written: written + 2 * RECORD_BYTES }
    }

    fn of_commit(commit: &Commit, encoded: usize) -> (usize, usize) {
        // A plain message is one record; whatever it has beside costs some more.
        let enqueues = commit.enqueue.iter().map(|part| {
            let delayed = part.delay_ms != 0 || part.deliver_at_ms != 0;
            let expires = part.ttl_ms != 0 || part.expires_at_ms != 0;
            let beside = [(delayed, 2), (!part.group.is_empty(), 3), (!part.dedup_id.is_empty(), 2), (expires, 1)];
            2 + beside.into_iter().filter(|(has, _)| *has).map(|(_, keys)| keys).sum::<usize>()
        });
        let others = 5 * commit.settle.len() + 8 * commit.cancel.len() + 6 * commit.reschedule.len();
        let keys = enqueues.sum::<usize>() + others;
        (keys, encoded + keys * RECORD_BYTES)
    }

    fn plus(self, other: Cost) -> Cost {
        Cost {
            encoded: self.encoded + other.encoded,
            keys: self.keys + other.keys,
            written: self.written + other.written,
        }
    }

    /// Whether this is not too much for a share of an entry.
    fn fits(self, share: Share) -> bool {
        self.encoded <= share.of(limits::ENTRY_TARGET_BYTES)
            && self.keys <= share.of(limits::ENTRY_KEYS)
            && self.written <= share.of(limits::ENTRY_BYTES)
    }
}

/// Requests that go into one entry, if they fit: an enqueue and the receives that it serves.
pub(crate) type Unit = Vec<Pending>;

/// The queue in front of the proposer: two lanes. What hands messages out, finishes them or rules goes before what brings
/// new ones in, or producers at full speed would make every ack and every receive wait behind all that they have sent.
/// While both wait, a part of each entry stays for the newcomers.
#[derive(Debug)]
pub(crate) struct Queue {
    inner: Mutex<Inner>,
    /// Of each lane.
    max_bytes: usize,
    filled: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    serving: Lane,
    entering: Lane,
}

#[derive(Debug, Default)]
struct Lane {
    units: VecDeque<Unit>,
    bytes: usize,
}

/// The part of an entry that is kept for newcomers while some wait: one of so many.
const ENTERING_SHARE: usize = 4;

impl Inner {
    /// The lane of a unit: its first request decides.
    fn lane(&mut self, unit: &Unit) -> &mut Lane {
        let enters = match unit.first().and_then(|pending| pending.request.command.as_ref()) {
            Some(Command::Commit(commit)) => {
                commit.settle.is_empty() && commit.cancel.is_empty() && !commit.enqueue.is_empty()
            }
            Some(
                Command::Receive(_)
                | Command::Expire(_)
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
                | Command::DeleteNamespace(_),
            )
            | None => false,
        };
        if enters { &mut self.entering } else { &mut self.serving }
    }

    fn bytes(&self) -> usize {
        self.serving.bytes + self.entering.bytes
    }
}

impl Lane {
    fn push_back(&mut self, unit: Unit) {
        self.bytes += bytes_of(&unit);
        self.units.push_back(unit);
    }

    fn push_front(&mut self, unit: Unit) {
        self.bytes += bytes_of(&unit);
        self.units.push_front(unit);
    }

    fn pop_front(&mut self) -> Option<Unit> {
        let unit = self.units.pop_front()?;
        self.bytes -= bytes_of(&unit);
        Some(unit)
    }

    /// Moves units into an entry, up to `share` of it; at least one request where the entry is empty.
    fn fill(&mut self, entry: &mut Filling, share: Share) {
        while !entry.full
            && let Some(mut unit) = self.pop_front()
        {
            unit.retain(Pending::is_wanted);
            let cost = unit.iter().fold(entry.cost, |cost, pending| cost.plus(pending.cost));
            let fits = cost.fits(share) && entry.taken.len() + unit.len() <= share.of(limits::ENTRY_REQUESTS);
            if !fits && !entry.taken.is_empty() {
                self.push_front(unit);
                break;
            }
            entry.full = !fits;
            if entry.full {
                // A unit that fills an entry alone: as much of it as fits, at least one request.
                let rest = split(&mut unit);
                if !rest.is_empty() {
                    self.push_front(rest);
                }
            }
            entry.taken.extend(unit.into_iter().filter(|pending| pending.fate.take()));
            entry.cost = cost;
            if entry.taken.is_empty() {
                // All of it was withdrawn.
                (entry.full, entry.cost) = (false, Cost::default());
            }
        }
    }
}

/// The requests of an entry to be.
#[derive(Default)]
struct Filling {
    taken: Vec<Pending>,
    cost: Cost,
    full: bool,
}

/// How much of an entry may be filled.
#[derive(Debug, Clone, Copy)]
enum Share {
    All,
    /// All but what is kept for newcomers.
    Most,
}

impl Share {
    fn of(self, all: usize) -> usize {
        match self {
            Share::All => all,
            Share::Most => all - all / ENTERING_SHARE,
        }
    }
}

impl Queue {
    pub(crate) fn new(max_bytes: usize) -> Self {
        Self { inner: Mutex::default(), max_bytes, filled: Notify::new() }
    }

    /// Puts a request at the end of its lane, and what `served` gives into the same unit; where there is no room, says how
    /// many bytes wait.
    pub(crate) fn push(&self, pending: Pending, served: impl FnOnce() -> Vec<Pending>) -> Result<(), usize> {
        let mut inner = self.inner.lock();
        let mut unit = vec![pending];
        let lane = inner.lane(&unit);
        if lane.bytes + bytes_of(&unit) > self.max_bytes && !lane.units.is_empty() {
            return Err(inner.bytes());
        }
        unit.extend(served());
        lane.push_back(unit);
        drop(inner);
        self.filled.notify_one();
        Ok(())
    }

    /// As `push`, without a bound: for the leader's own commands, of which there are few, and for parked receives,
    /// which are bounded themselves.
    pub(crate) fn push_own(&self, unit: Unit) {
        let mut inner = self.inner.lock();
        inner.lane(&unit).push_back(unit);
        drop(inner);
        self.filled.notify_one();
    }

    /// Puts units before all others of their lanes, in their order.
    pub(crate) fn push_front(&self, units: Vec<Unit>) {
        let mut inner = self.inner.lock();
        for unit in units.into_iter().rev() {
            inner.lane(&unit).push_front(unit);
        }
        drop(inner);
        self.filled.notify_one();
    }

    /// Takes the requests of the next entry. Those whose callers have gone are left out, and so dropped.
    pub(crate) fn take(&self) -> Vec<Pending> {
        let mut inner = self.inner.lock();
        let mut entry = Filling::default();
        let share = if inner.entering.units.is_empty() { Share::All } else { Share::Most };
        inner.serving.fill(&mut entry, share);
        inner.entering.fill(&mut entry, Share::All);
        entry.taken
    }

    /// Takes all that waits, to refuse it.
    pub(crate) fn drain(&self) -> Vec<Pending> {
        let Inner { serving, entering } = std::mem::take(&mut *self.inner.lock());
        serving.units.into_iter().chain(entering.units).flatten().collect()
    }

    /// Waits until something may have been put in.
    pub(crate) async fn filled(&self) {
        self.filled.notified().await;
    }

    /// Bytes that wait.
    pub(crate) fn bytes(&self) -> usize {
        self.inner.lock().bytes()
    }

    /// Whether nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        let inner = self.inner.lock();
        inner.serving.units.is_empty() && inner.entering.units.is_empty()
    }
}

fn bytes_of(unit: &Unit) -> usize {
    unit.iter().map(|pending| pending.cost.encoded).sum()
}

/// Cuts a unit behind the last request that still fits; returns the rest.
fn split(unit: &mut Unit) -> Unit {
    let mut cost = Cost::default();
    let mut keep = 0;
    for pending in unit.iter().take(limits::ENTRY_REQUESTS) {
        cost = cost.plus(pending.cost);
        if keep > 0 && !cost.fits(Share::All) {
            break;
        }
        keep += 1;
    }
    unit.split_off(keep)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use ticketrail_core::command::{Content, Enqueue, OpenSession, Receive};

    use super::*;

    fn enqueue(body: usize) -> (Pending, Waiting) {
        let content = Content { body: Bytes::from(vec![7; body]), ..Content::default() };
        let part = Enqueue { message: Some(content), ..Enqueue::default() };
        let commit = Commit { enqueue: vec![part], ..Commit::default() };
        Pending::own(Command::Commit(commit))
    }

    fn small() -> (Pending, Waiting) {
        Pending::own(Command::OpenSession(OpenSession { renew: 0 }))
    }

    fn asked_for() -> (Pending, Waiting) {
        let (asked, waiting) = asked();
        let request = Request::anonymous(Command::OpenSession(OpenSession { renew: 0 }));
        (Pending::new(request, false, asked, None, None), waiting)
    }

    #[test]
    fn an_entry_is_closed_by_requests_and_by_bytes() {
        let queue = Queue::new(usize::MAX);
        let mut waiting = Vec::new();
        for _ in 0..300 {
            let (pending, wait) = small();
            waiting.push(wait);
            queue.push_own(vec![pending]);
        }
        assert_eq!(queue.take().len(), limits::ENTRY_REQUESTS);
        assert_eq!(queue.take().len(), 300 - limits::ENTRY_REQUESTS);
        assert!(queue.is_empty());
        for _ in 0..5 {
            let (pending, wait) = enqueue(400_000);
            waiting.push(wait);
            queue.push_own(vec![pending]);
        }
        assert_eq!([queue.take().len(), queue.take().len(), queue.take().len()], [2, 2, 1]);
        assert_eq!(queue.bytes(), 0);
    }

    #[test]
    fn one_large_request_is_an_entry_of_its_own() {
        let queue = Queue::new(usize::MAX);
        let (large, _large) = enqueue(3 << 20);
        let (before, _before) = enqueue(10);
        let (after, _after) = enqueue(10);
        queue.push_own(vec![before]);
        queue.push_own(vec![large]);
        queue.push_own(vec![after]);
        assert_eq!([queue.take().len(), queue.take().len(), queue.take().len()], [1, 1, 1]);
    }

    #[test]
    fn who_serves_goes_first_and_leaves_room_for_newcomers() {
        let queue = Queue::new(usize::MAX);
        let mut waiting = Vec::new();
        for _ in 0..2 * limits::ENTRY_REQUESTS {
            for (pending, wait) in [enqueue(10), small()] {
                waiting.push(wait);
                queue.push_own(vec![pending]);
            }
        }
        let enqueues = |entry: &[Pending]| {
            entry.iter().filter(|pending| matches!(pending.request.command, Some(Command::Commit(_)))).count()
        };
        let (most, rest) = (limits::ENTRY_REQUESTS * 3 / 4, limits::ENTRY_REQUESTS / 4);
        for _ in 0..2 {
            let entry = queue.take();
            assert_eq!((entry.len(), enqueues(&entry)), (limits::ENTRY_REQUESTS, rest));
            assert_eq!(enqueues(&entry[..most]), 0, "who serves stands first");
        }
        let mut left = 0;
        while !queue.is_empty() {
            left += queue.take().len();
        }
        assert_eq!(left, 2 * limits::ENTRY_REQUESTS);
        assert_eq!(queue.bytes(), 0);
    }

    #[test]
    fn a_settlement_is_taken_while_newcomers_have_filled_their_lane() {
        let queue = Queue::new(1_000);
        let (first, _first) = enqueue(2_000);
        assert!(queue.push(first, Vec::new).is_ok());
        let (second, _second) = enqueue(10);
        assert!(queue.push(second, Vec::new).is_err());
        let (settles, _settles) = small();
        assert!(queue.push(settles, Vec::new).is_ok());
    }

    #[test]
    fn a_full_queue_gives_the_request_back() {
        let queue = Queue::new(1_000);
        let (first, _first) = enqueue(2_000);
        assert!(queue.push(first, Vec::new).is_ok(), "the first is taken whatever its size");
        let (second, _second) = enqueue(10);
        let refused = queue.push(second, Vec::new);
        assert!(refused.is_err_and(|bytes| bytes > 2_000));
    }

    #[test]
    fn a_unit_is_not_split_while_it_fits_and_stays_in_order() {
        let queue = Queue::new(usize::MAX);
        let mut waiting = Vec::new();
        let mut unit = Vec::new();
        for max in 1..=limits::ENTRY_REQUESTS as u32 + 10 {
            let receive = Receive { max: 1, lease_ms: max.into(), ..Receive::default() };
            let (pending, wait) = Pending::own(Command::Receive(receive));
            waiting.push(wait);
            unit.push(pending);
        }
        let (before, _before) = small();
        queue.push_own(vec![before]);
        queue.push_own(unit);
        assert_eq!(queue.take().len(), 1, "what does not fit beside others waits for the next entry");
        assert_eq!(queue.take().len(), limits::ENTRY_REQUESTS);
        assert_eq!(queue.take().len(), 10);
    }

    #[test]
    fn who_withdraws_in_time_is_not_proposed() {
        let queue = Queue::new(usize::MAX);
        let (gone, gone_waiting) = asked_for();
        let (withdrawn, withdrawn_waiting) = asked_for();
        let (stays, stays_waiting) = asked_for();
        queue.push_own(vec![gone]);
        queue.push_own(vec![withdrawn]);
        queue.push_own(vec![stays]);
        drop(gone_waiting);
        assert!(withdrawn_waiting.fate.withdraw());
        assert_eq!(queue.take().len(), 1);
        assert!(!stays_waiting.fate.withdraw(), "it is on its way");
    }
}
