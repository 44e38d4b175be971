//! A history by message, by lease, by request and by position.

use std::collections::HashMap;

use crate::fast::FastMap;
use crate::format::{MessageId, Position, Rid, Target, Token};
use crate::story::{Cancel, Story, Timed};

/// A history by message, by lease, by request and by position.
#[derive(Debug, Default)]
pub struct Index {
    by_value: FastMap<u64, u32>,
    by_token: FastMap<Token, u32>,
    by_rid: FastMap<Rid, u32>,
    by_id: FastMap<MessageId, u32>,
    /// Messages with a dedup id, by queue and dedup id.
    by_dedup: HashMap<(u32, Box<str>), Vec<u32>>,
    /// Cancels and reschedules by the message that they may have been of.
    cancels: FastMap<u32, Vec<u32>>,
    times: FastMap<u32, Vec<u32>>,
    by_position: FastMap<(u64, u32), u32>,
    /// Deliveries, by value and then by the end of their receive.
    deliveries: Vec<u32>,
    /// Settlements of known leases, by delivery and then by their begin.
    settles: Vec<u32>,
    /// For each delivery where its settlements begin.
    first_settle: Vec<u32>,
    /// What breaks the rules for clients: values or request ids used twice.
    pub misused: Vec<String>,
    /// Deliveries whose token another delivery had before.
    pub repeated_tokens: Vec<(u32, u32)>,
}

impl Index {
    /// Indexes a history.
    pub fn of(story: &Story) -> Self {
        let mut index = Self::default();
        for (number, sent) in (0u32..).zip(&story.sent) {
            if let Some(before) = index.by_value.insert(sent.m.v, number) {
                let (a, b) = (story.name(story.sent[before as usize].op), story.name(sent.op));
                index.misused.push(format!(
                    "expected each message to have a value of its own, but {a} and {b} share {}",
                    sent.m.v
                ));
            }
            if let Some(id) = sent.told.added() {
                index.by_id.entry(id).or_insert(number);
            }
            if !sent.m.dedup_id().is_empty() {
                index.by_dedup.entry((sent.queue, sent.m.dedup_id().into())).or_default().push(number);
            }
        }
        // Whoever was not told the id of his message can learn it from its delivery, or from a duplicate of it.
        for got in &story.got {
            if let Some(sent) = index.by_value.get(&got.v) {
                index.by_id.entry(got.id).or_insert(*sent);
            }
        }
        for (number, op) in (0u32..).zip(&story.ops) {
            if let Some(rid) = op.rid()
                && let Some(before) = index.by_rid.insert(rid, number)
            {
                let (a, b) = (story.name(before), story.name(number));
                index
                    .misused
                    .push(format!("expected each request to have an id of its own, but {a} and {b} share {rid}"));
            }
            if let Some(cp) = op.cp().filter(|_| op.rid().is_none()) {
                index.by_position.insert((cp.index, cp.ordinal), number);
            }
        }
        for (number, cancel) in (0u32..).zip(&story.cancels) {
            for sent in index.targets(story, &cancel.target) {
                index.cancels.entry(sent).or_default().push(number);
            }
        }
        for (number, timed) in (0u32..).zip(&story.times) {
            for sent in index.targets(story, &timed.time.of) {
                index.times.entry(sent).or_default().push(number);
            }
        }
        for (number, got) in (0u32..).zip(&story.got).filter(|(_, got)| !got.taken) {
            if let Some(before) = index.by_token.insert(got.tok, number) {
                index.repeated_tokens.push((before, number));
            }
        }
        let end = |got: u32| story.ops[story.got[got as usize].op as usize].t1;
        index.deliveries = (0u32..).take(story.got.len()).collect();
        index.deliveries.sort_unstable_by_key(|got| (story.got[*got as usize].v, end(*got), *got));
        let mut settles: Vec<(u32, u64, u32)> = Vec::with_capacity(story.settles.len());
        for (number, settled) in (0u32..).zip(&story.settles) {
            if let Some(got) = index.by_token.get(&settled.tok) {
                settles.push((*got, story.ops[settled.op as usize].t0, number));
            }
        }
        settles.sort_unstable();
        index.first_settle = vec![0; story.got.len() + 1];
        for (got, _, _) in &settles {
            index.first_settle[*got as usize + 1] += 1;
        }
        for number in 1..index.first_settle.len() {
            index.first_settle[number] += index.first_settle[number - 1];
        }
        index.settles = settles.into_iter().map(|(_, _, number)| number).collect();
        index
    }

    /// The message with this value: its place in [`Story::sent`].
    pub fn sent(&self, v: u64) -> Option<u32> {
        self.by_value.get(&v).copied()
    }

    /// The messages that a target may name: their places in [`Story::sent`]. By its id at most one, by a dedup id all that
    /// had it.
    pub fn targets(&self, story: &Story, target: &Target) -> Vec<u32> {
        match target {
            Target::Id(id) => self.by_id.get(id).copied().into_iter().collect(),
            Target::Dedup { q, dd } => {
                let key = story.queue_number(q).map(|queue| (queue, Box::from(dd.as_str())));
                key.and_then(|key| self.by_dedup.get(&key)).cloned().unwrap_or_default()
            }
        }
    }

    /// All messages with a dedup id, by queue and dedup id: their places in [`Story::sent`].
    pub fn dedup_ids(&self) -> impl Iterator<Item = (u32, &str, &[u32])> {
        self.by_dedup.iter().map(|((queue, dd), sent)| (*queue, &**dd, sent.as_slice()))
    }

    /// The cancels that may have been of a message, by its place in [`Story::sent`].
    pub fn cancels<'a>(&'a self, story: &'a Story, sent: u32) -> impl Iterator<Item = &'a Cancel> {
        self.cancels.get(&sent).into_iter().flatten().map(|number| &story.cancels[*number as usize])
    }

    /// The reschedules that may have been of a message, by its place in [`Story::sent`].
    pub fn times<'a>(&'a self, story: &'a Story, sent: u32) -> impl Iterator<Item = &'a Timed> {
        self.times.get(&sent).into_iter().flatten().map(|number| &story.times[*number as usize])
    }

    /// The delivery that had this token: its place in [`Story::got`].
    pub fn delivery(&self, token: Token) -> Option<u32> {
        self.by_token.get(&token).copied()
    }

    /// The operation with this request id: its place in [`Story::ops`].
    pub fn by_rid(&self, rid: Rid) -> Option<u32> {
        self.by_rid.get(&rid).copied()
    }

    /// The operation without a request id that was told this position.
    pub fn by_position(&self, cp: Position) -> Option<u32> {
        self.by_position.get(&(cp.index, cp.ordinal)).copied()
    }

    /// The settlements of a delivery's lease, by their begin.
    pub fn settles(&self, got: u32) -> &[u32] {
        let bound = |at: usize| self.first_settle.get(at).copied().unwrap_or(0) as usize;
        self.settles.get(bound(got as usize)..bound(got as usize + 1)).unwrap_or(&[])
    }

    /// All messages that were delivered: the value, and the deliveries by the end of their receive.
    pub fn lives<'a>(&'a self, story: &'a Story) -> impl Iterator<Item = (u64, &'a [u32])> {
        let value = |got: &u32| story.got[*got as usize].v;
        self.deliveries.chunk_by(move |a, b| value(a) == value(b)).map(move |chunk| (value(&chunk[0]), chunk))
    }

    /// The deliveries of one message, by the end of their receive.
    pub fn deliveries(&self, story: &Story, v: u64) -> &[u32] {
        let from = self.deliveries.partition_point(|got| story.got[*got as usize].v < v);
        let to = self.deliveries.partition_point(|got| story.got[*got as usize].v <= v);
        &self.deliveries[from..to]
    }
}
