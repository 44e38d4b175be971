//! The lanes of a queue: for each priority the messages that came back, and those that are new.

use crate::ids::{Place, QueueId, Space};
use crate::keys;
use crate::limits;
use crate::planted::{Bug, is_planted};
use crate::records::{LaneRecord, QueueRecord, broken};
use crate::reply::Fault;

/// The next of the fresh lane's deliveries while the returned lane holds something too.
const FRESH_TURN: u64 = 4;

/// One of the two lanes of a priority.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Side {
    /// What came back: nacked, expired, released, due, next of its group.
    Returned,
    /// What is new.
    Fresh,
}

/// A lane of a queue.
pub(crate) type Lane = (u8, Side);

impl LaneRecord {
    fn new(priority: u8) -> Self {
        Self { priority: priority.into(), fresh_head: 1, returned_head: 1, ..Self::default() }
    }

    /// Messages ready in both lanes.
    pub(crate) fn ready(&self) -> u64 {
        self.fresh.saturating_add(self.returned)
    }

    /// How many of the next `deliveries` one lane has for certain, or all that it holds: nobody reads ahead, past dead
    /// keys, what the other lane's turns leave to the next receive.
    pub(crate) fn next_turns(&self, side: Side, deliveries: usize) -> usize {
        let (holds, other) = match side {
            Side::Returned => (self.returned, self.fresh),
            Side::Fresh => (self.fresh, self.returned),
        };
        let deliveries = u64::try_from(deliveries).unwrap_or(u64::MAX);
        let fresh_turns = deliveries.div_ceil(FRESH_TURN);
        let turns = match side {
            Side::Returned | Side::Fresh if other == 0 => deliveries,
            Side::Returned => deliveries.saturating_sub(fresh_turns),
            Side::Fresh => fresh_turns,
        };
        usize::try_from(turns.min(holds)).unwrap_or(usize::MAX)
    }
}

impl QueueRecord {
    /// The record of a new queue.
    pub(crate) fn new() -> Self {
        Self { purged_below: 1, lines_from: 1, parks_from: 1, ..Self::default() }
    }

    /// The lanes of a priority.
    pub(crate) fn lane(&self, priority: u8) -> LaneRecord {
        let known = self.lanes.iter().find(|lane| lane.priority == u32::from(priority));
        known.copied().unwrap_or_else(|| LaneRecord::new(priority))
    }

    /// The lanes of a priority, to change.
    pub(crate) fn change_lane(&mut self, priority: u8, change: impl FnOnce(&mut LaneRecord)) {
        match self.lanes.iter_mut().find(|lane| lane.priority == u32::from(priority)) {
            Some(lane) => change(lane),
            None => {
                let mut lane = LaneRecord::new(priority);
                change(&mut lane);
                let at = self.lanes.partition_point(|known| known.priority > lane.priority);
                self.lanes.insert(at, lane);
            }
        }
    }

    /// The lane that the next delivery comes from: the highest priority that has something ready, and of it the returned
    /// lane before the fresh one, but for every fourth delivery while both hold something. `None`: nothing is ready.
    pub(crate) fn next_lane(&self) -> Option<Lane> {
        let ready = |lane: &&LaneRecord| lane.ready() > 0;
        let lane = if is_planted(Bug::PriorityUpsideDown) {
            self.lanes.iter().rev().find(ready)
        } else {
            self.lanes.iter().find(ready)
        }?;
        let fresh_turn = lane.turn % FRESH_TURN == FRESH_TURN - 1;
        let side = match (lane.returned > 0, lane.fresh > 0) {
            (true, true) if fresh_turn => Side::Fresh,
            (true, true | false) => Side::Returned,
            (false, true | false) => Side::Fresh,
        };
        Some((u8::try_from(lane.priority).unwrap_or(limits::PRIORITY_MAX), side))
    }

    /// Counts a delivery from a lane of this priority, before its place is taken out.
    pub(crate) fn count_turn(&mut self, priority: u8) {
        self.change_lane(priority, |lane| {
            if lane.fresh > 0 && lane.returned > 0 {
                lane.turn = lane.turn.wrapping_add(1);
            }
        });
    }

    /// Moves the head of a lane forward, to the first place that it holds.
    pub(crate) fn move_head(&mut self, (priority, side): Lane, first: u64) {
        self.change_lane(priority, |lane| match side {
            Side::Returned => lane.returned_head = first,
            Side::Fresh => lane.fresh_head = first,
        });
    }

    /// Empties all lanes: their heads jump behind all that is there.
    pub(crate) fn empty_lanes(&mut self) {
        let (fresh_head, returned_head) = (self.last_sequence.saturating_add(1), self.last_return.saturating_add(1));
        for lane in &mut self.lanes {
            *lane = LaneRecord { fresh_head, fresh: 0, returned_head, returned: 0, ..*lane };
        }
    }
}

/// The keys of a lane, from its head on.
pub(crate) fn range(queue: QueueId, record: &QueueRecord, (priority, side): Lane) -> (keys::Key, keys::Key) {
    let lane = record.lane(priority);
    match side {
        Side::Returned => {
            (keys::returned(queue, priority, lane.returned_head), keys::returned(queue, priority, u64::MAX))
        }
        Side::Fresh => (keys::fresh(queue, priority, lane.fresh_head), keys::fresh(queue, priority, u64::MAX)),
    }
}

/// A fault: a lane holds fewer places than are counted.
pub(crate) fn ended_early(queue: QueueId, lane: Lane) -> Fault {
    broken("as many places in a lane as are counted", &keys::queue(queue), format!("{lane:?} ended early"))
}

/// A place in the fresh lane.
pub(crate) fn fresh_place(queue: QueueId, priority: u8, sequence: u64) -> Place {
    Place { queue, space: Space::Fresh, priority, sequence }
}
