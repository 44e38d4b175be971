//! What clients choose to do.

use super::{Options, Run, queue};
use crate::format::{
    Call, EnqueuePart, More, NewMessage, NewTime, OnGroup, Output, QueueName, Remains, Settings, Settle, Target,
    Verdict, fingerprint,
};

/// The queue whose messages are taken at most once.
fn once() -> QueueName {
    QueueName::new("", "once")
}

/// What queue `number` is made with.
pub(super) fn settings(options: Options, number: u64) -> Settings {
    let plain = Settings {
        lease: Some(5_000),
        max_attempts: Some(3),
        base: Some(100),
        cap: Some(2_000),
        max_depth: Some(1_000_000),
        ..Settings::default()
    };
    if !options.whole {
        return plain;
    }
    match (number + options.seed) % 4 {
        0 => Settings { dedup: Some(2_000), retain: Some(5_000), on_group: Some(OnGroup::Continue), ..plain },
        1 => Settings {
            dedup: Some(1_000),
            ttl: Some(30_000),
            on_expired: Some(Remains::DeadLetter),
            on_group: Some(OnGroup::Block),
            ..plain
        },
        2 => Settings {
            dedup: Some(60_000),
            on_group: Some(OnGroup::Follow),
            max_depth: Some(options.backlog.max(2)),
            shed: Some(vec![(50, 3), (80, 6)]),
            ..plain
        },
        _ => Settings {
            on_exhausted: Some(Remains::Nothing),
            max_wait: Some(2_000),
            expected_rate: Some(50_000),
            max_bytes: Some(options.backlog * 60),
            retain: Some(1_000),
            ..plain
        },
    }
}

impl Run<'_> {
    pub(super) fn choose(&mut self, number: usize) -> Call {
        if self.clients[number].session == 0 {
            return Call::Open { renew: 0 };
        }
        let q = self.some_queue();
        if self.clients[number].held.len() > 3 || (!self.clients[number].held.is_empty() && self.random.chance(600)) {
            return self.choose_settle(number);
        }
        if self.options.whole && !self.draining && self.random.chance(60) {
            return self.choose_own(number, q);
        }
        let dice = self.random.below(1_000);
        let seen = self.clients[number].seen;
        match dice {
            0..10 if !self.draining => Call::Stats { q },
            10..20 if !self.draining && seen.is_some() => match seen {
                Some(id) => Call::Get { id },
                None => Call::Stats { q },
            },
            _ if self.draining || self.random.below(self.options.backlog.max(1) * 2) < self.model.depth() => {
                self.choose_receive(q)
            }
            _ => {
                let count = 1 + self.random.below(3);
                let q = if self.options.whole && self.random.chance(100) { once() } else { q };
                let m = (0..count).map(|_| self.message(&q)).collect();
                Call::Enqueue { q, m, all: self.options.whole && self.random.chance(50) }
            }
        }
    }

    /// What an administrator does now and then.
    pub(super) fn choose_admin(&mut self) -> Call {
        let q = self.some_queue();
        match self.random.below(12) {
            0 => Call::Purge { q },
            1 => Call::Purge { q: QueueName::new("", &format!("{q}.dlq")) },
            2..4 => Call::Pause { q, until: self.now() + 1 + self.random.below(300) },
            4 => Call::Close { q },
            5..8 => Call::Reopen { q },
            8 => Call::SetNamespace {
                ns: "shop".into(),
                set: Settings { max_attempts: Some(1), ..Settings::default() },
                auto: if self.random.chance(500) { Some(self.random.chance(700)) } else { None },
            },
            9 => Call::DeleteNamespace { ns: "shop".into() },
            10 => Call::Delete { q: QueueName::new("shop", "orders") },
            _ => Call::Update { q, set: Settings { max_attempts: Some(2), ..Settings::default() } },
        }
    }

    fn some_queue(&mut self) -> QueueName {
        if self.options.whole && !self.draining && self.random.chance(20) {
            return QueueName::new("shop", "orders");
        }
        queue(self.random.below(self.options.queues))
    }

    fn choose_receive(&mut self, q: QueueName) -> Call {
        let max = 1 + self.random.below(5) as u32;
        // A client that just stops holds its leases until they run out.
        let lease = if self.random.chance(500) { 0 } else { 3_000 };
        if self.options.whole && self.draining {
            let names = self.model.queue_names();
            let some = names.get(self.random.below(names.len().max(1) as u64) as usize).cloned();
            return Call::Receive { q: some.unwrap_or(q), then: Vec::new(), max, wait: 0, lease, auto: false };
        }
        if self.options.whole && self.random.chance(100) {
            return Call::Receive { q: once(), then: Vec::new(), max, wait: 0, lease: 0, auto: true };
        }
        let dead = self.random.chance(if self.draining || self.options.whole { 300 } else { 50 });
        let q = if dead { QueueName::new("", &format!("{q}.dlq")) } else { q };
        let then = if self.options.whole && q.namespace() == "default" && self.random.chance(200) {
            (0..1 + self.random.below(2)).map(|_| queue(self.random.below(self.options.queues))).collect()
        } else {
            Vec::new()
        };
        Call::Receive { q, then, max, wait: 0, lease, auto: false }
    }

    /// Something about messages of its own: cancels, new times, looks.
    fn choose_own(&mut self, number: usize, q: QueueName) -> Call {
        let at = self.random.below(self.clients[number].own.len().max(1) as u64) as usize;
        let Some(target) = self.clients[number].own.get(at).cloned() else { return Call::Stats { q } };
        match self.random.below(10) {
            0..4 => Call::Cancel { c: vec![target] },
            4..8 => Call::Reschedule { t: vec![self.new_time(target)] },
            _ => match target {
                Target::Id(id) => Call::Get { id },
                Target::Dedup { q, dd } => Call::Find { q, dd },
            },
        }
    }

    fn new_time(&mut self, of: Target) -> NewTime {
        let d = if self.random.chance(300) { 0 } else { self.random.below(2_000) };
        let at = if self.random.chance(100) { self.now() + self.random.below(500) } else { 0 };
        NewTime { of, d, at }
    }

    fn message(&mut self, q: &QueueName) -> NewMessage {
        let v = self.next_value;
        self.next_value += 1;
        let d = if self.random.chance(100) { self.random.below(2_000) } else { 0 };
        let mut message = NewMessage { d, ..NewMessage::plain(v, fingerprint(&v.to_be_bytes()), 64 + v % 7) };
        if !self.options.whole {
            return message;
        }
        let mut more = More::default();
        if self.random.chance(250) {
            let groups = if self.random.chance(500) { 3 } else { 40 };
            more.g = format!("g{}", self.random.below(groups));
        }
        if self.random.chance(250) {
            more.p = Some(self.random.below(10) as u8);
        }
        if self.random.chance(150) {
            more.dd = format!("{}-{}", q.name(), self.random.below(60));
        }
        if self.random.chance(100) {
            more.ttl = 200 + self.random.below(3_000);
        }
        if self.random.chance(30) {
            more.x = self.now() + d + 1 + self.random.below(4_000);
        }
        if self.random.chance(50) {
            more.tries = Some(1 + self.random.below(3) as u32);
            more.base = Some(50);
            more.cap = Some(1_000);
        }
        if self.random.chance(20) {
            more.dlq = "graves".into();
        }
        if more != More::default() {
            message.more = Some(Box::new(more));
        }
        message
    }

    fn choose_settle(&mut self, number: usize) -> Call {
        let count = 1 + self.random.below(self.clients[number].held.len() as u64) as usize;
        let mut s = Vec::new();
        for _ in 0..count {
            let Some((tok, id)) = self.clients[number].held.pop_front() else { break };
            self.clients[number].seen = Some(id);
            let how = match self.random.below(100) {
                _ if self.draining => Verdict::Ack,
                0..4 => Verdict::Retry { d: None },
                4..7 => Verdict::Retry { d: Some(self.random.below(if self.options.whole { 3_000 } else { 500 })) },
                7..9 => Verdict::Reject,
                9..12 => Verdict::Release,
                12..15 => Verdict::Extend { lease: 4_000 },
                // Dies silently.
                15 => continue,
                _ => Verdict::Ack,
            };
            if matches!(how, Verdict::Extend { .. }) {
                self.clients[number].held.push_back((tok, id));
            }
            let speaks = self.options.whole && how == Verdict::Ack && self.random.chance(300);
            let out = speaks.then(|| Output { h: fingerprint(&tok.0.to_be_bytes()), n: 16 });
            s.push(Settle { tok, how, out });
        }
        if s.is_empty() {
            return Call::Stats { q: queue(0) };
        }
        if self.random.chance(200) && !self.draining && self.model.depth() < self.options.backlog {
            let q = queue(self.random.below(self.options.queues));
            let e = vec![EnqueuePart { m: self.message(&q), q }];
            let (mut c, mut t) = (Vec::new(), Vec::new());
            if self.options.whole && self.random.chance(400) {
                let own = self.clients[number].own.pop_front();
                match (own, self.random.chance(500)) {
                    (Some(target), true) => c.push(target),
                    (Some(target), false) => t.push(self.new_time(target)),
                    (None, _) => {}
                }
            }
            return Call::Commit { s, c, t, e, alone: self.options.whole && self.random.chance(100) };
        }
        Call::Settle { s }
    }
}
