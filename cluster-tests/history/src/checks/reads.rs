//! I19: a look shows a state between its begin and its end: everything that was told before it began, and nothing that
//! was asked after it ended.

use super::{After, Applying, Check, Findings};
use crate::case::Case;
use crate::format::{Kind, Stats, Target};
use crate::model::Model;
use crate::story::{Look, Saw, Seen};

#[derive(Default)]
pub(super) struct Reads {
    ready: bool,
    /// Looks by the position from which on they may have looked: place, first index, last index.
    waiting: Vec<(usize, u64, u64)>,
    next: usize,
    /// Those that nothing has explained yet.
    open: Vec<(usize, u64)>,
}

impl Reads {
    /// The looks, and the last index that each may have seen: one below that of the first operation asked after its end.
    fn begin(&mut self, case: &Case) {
        self.ready = true;
        let story = &case.story;
        // The least index told to any operation that began at or after each one.
        let mut least = vec![u64::MAX; story.ops.len() + 1];
        for number in (0..story.ops.len()).rev() {
            let told = story.ops[number].cp().filter(|_| story.ops[number].is_ok()).map_or(u64::MAX, |cp| cp.index);
            least[number] = least[number + 1].min(told);
        }
        for (place, look) in story.looks.iter().enumerate() {
            let op = &story.ops[look.op as usize];
            if !op.is_ok() {
                continue;
            }
            let after = story.ops.partition_point(|other| other.t0 <= op.t1);
            let last = if least[after] == u64::MAX { u64::MAX } else { least[after] - 1 };
            self.waiting.push((place, op.floor().index, last));
        }
        self.waiting.sort_by_key(|(_, floor, _)| *floor);
    }

    /// Compares the open looks with the state after all of `index`.
    fn compare(&mut self, case: &Case, model: &Model, index: u64, out: &mut Findings) {
        while let Some((place, floor, last)) =
            self.waiting.get(self.next).copied().filter(|(_, floor, _)| *floor <= index)
        {
            self.next += 1;
            debug_assert!(floor <= index);
            self.open.push((place, last));
        }
        self.open.retain(|(place, last)| {
            let look = &case.story.looks[*place];
            // The state while an entry is half applied is no proof against a look: another request of it may follow.
            if index <= *last {
                let explained = explains(case, model, look);
                out.looked += u64::from(explained);
                return !explained;
            }
            out.expect(false, || {
                format!(
                    "{} saw {:?}, which was so at no time between its begin and its end; at index {index} it is {}",
                    case.story.name(look.op),
                    look.saw,
                    state(case, model, look)
                )
            });
            false
        });
    }
}

fn explains(case: &Case, model: &Model, look: &Look) -> bool {
    match &look.saw {
        Saw::Stats(told) => {
            let name = case.story.queue_name(case.story.ops[look.op as usize].queue);
            let expected = name.and_then(|name| model.stats(name));
            // A dedup id whose window is over is counted until a tick sees that.
            let known = |stats: &Stats| Stats { q: told.map_or(0, |told| told.q.min(stats.q)), dedup_ids: 0, ..*stats };
            expected.as_ref().map(known) == told.as_ref().map(|told| Stats { dedup_ids: 0, ..*told })
        }
        Saw::Message(target, told) => see(model, target) == *told,
    }
}

/// What a look at a message shows by the model.
fn see(model: &Model, target: &Target) -> Seen {
    let id = match target {
        Target::Id(id) => Some(*id),
        Target::Dedup { q, dd } => model.find(q, dd),
    };
    let Some(id) = id else { return Seen::Nothing };
    match model.get(id) {
        Some(info) => Seen::Here(info),
        None => model.outcome(id).map_or(Seen::Nothing, Seen::Done),
    }
}

fn state(case: &Case, model: &Model, look: &Look) -> String {
    match &look.saw {
        Saw::Stats(_) => {
            let name = case.story.queue_name(case.story.ops[look.op as usize].queue);
            format!("{:?}", name.and_then(|name| model.stats(name)))
        }
        Saw::Message(target, _) => format!("{:?}", see(model, target)),
    }
}

impl Check for Reads {
    fn name(&self) -> &'static str {
        "I19 a look shows what was done before it"
    }

    /// Exact: some state of the model between begin and end is what was seen.
    fn applied(&mut self, at: &Applying<'_>, out: &mut Findings) {
        if !self.ready {
            self.begin(at.case);
        }
        let Some(model) = at.model else { return };
        self.compare(at.case, model, at.line.cp.index, out);
    }

    /// Black box: counts that only grow are between those of the operations that had ended and those that had begun.
    fn end(&mut self, case: &Case, after: &After<'_>, out: &mut Findings) {
        if let Some(model) = after.model {
            let index = model.at().index;
            self.compare(case, model, index, out);
            for (place, _) in std::mem::take(&mut self.open) {
                let look = &case.story.looks[place];
                let text = format!(
                    "{} saw {:?}, but the queue never was so; at last it is {}",
                    case.story.name(look.op),
                    look.saw,
                    state(case, model, look)
                );
                out.violation(|| text);
            }
        }
        let story = &case.story;
        // Messages told to be in, by the end of their operation, and messages asked for, by its begin; by queue.
        let deletes = story.ops.iter().any(|op| op.kind == Kind::Delete);
        if deletes {
            return;
        }
        let mut ended: std::collections::HashMap<u32, Vec<u64>> = std::collections::HashMap::new();
        let mut begun: std::collections::HashMap<u32, Vec<u64>> = std::collections::HashMap::new();
        for sent in &story.sent {
            let op = &story.ops[sent.op as usize];
            begun.entry(sent.queue).or_default().push(op.t0);
            if sent.told.added().is_some() {
                ended.entry(sent.queue).or_default().push(op.t1);
            }
        }
        ended.values_mut().chain(begun.values_mut()).for_each(|times| times.sort_unstable());
        for look in &story.looks {
            let Saw::Stats(Some(stats)) = &look.saw else { continue };
            let op = &story.ops[look.op as usize];
            let before =
                |times: Option<&Vec<u64>>, t: u64| times.map_or(0, |times| times.partition_point(|at| *at < t) as u64);
            let (least, most) = (before(ended.get(&op.queue), op.t0), before(begun.get(&op.queue), op.t1));
            out.expect((least..=most).contains(&stats.enqueued), || {
                format!(
                    "{}: expected {least} to {most} messages ever enqueued, but it saw {}",
                    story.name(look.op),
                    stats.enqueued
                )
            });
        }
    }
}
