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

    /// How many places of a lane are read at a time, where so many are wanted. Past a dead key only one: whoever reads
    /// ahead of what it takes has the next receive walk it again.
    pub(crate) fn reads(&self, side: Side, wanted: usize) -> usize {
        let (holds, holed) = match side {
            Side::Returned => (self.returned, self.returned_holed),
            Side::Fresh => (self.fresh, self.fresh_holed),
        };
        let holds = usize::try_from(holds).unwrap_or(usize::MAX);
        if holed { 1 } else { wanted.min(holds).clamp(1, limits::SCAN_KEYS) }
    }

    /// Takes the first place out of a lane, whose head moves behind it.
    pub(crate) fn take_first(&mut self, side: Side, number: u64) {
        match side {
            Side::Returned => self.returned_head = number.saturating_add(1),
            Side::Fresh => self.fresh_head = number.saturating_add(1),
        }
        self.shrink(side);
    }

    /// Takes some place out of a lane: the head stays, unless this is it.
    pub(crate) fn take_out(&mut self, side: Side, number: u64) {
        let (head, holed) = match side {
            Side::Returned => (&mut self.returned_head, &mut self.returned_holed),
            Side::Fresh => (&mut self.fresh_head, &mut self.fresh_holed),
        };
        if *head == number {
            *head = head.saturating_add(1);
        } else {
            *holed = true;
        }
        self.shrink(side);
    }

    /// A lane holds one less. Nothing lies between the places of an empty one.
    fn shrink(&mut self, side: Side) {
        let (holds, holed) = match side {
            Side::Returned => (&mut self.returned, &mut self.returned_holed),
            Side::Fresh => (&mut self.fresh, &mut self.fresh_holed),
        };
        *holds = holds.saturating_sub(1);
        *holed &= *holds > 0;
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
            let (priority, turn) = (lane.priority, lane.turn);
            *lane = LaneRecord { priority, turn, fresh_head, returned_head, ..LaneRecord::default() };
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
