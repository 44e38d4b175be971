//! The product against the reference model, which shares no code with it: random traffic through `core`, as an audit
//! tells it, is what the model says. And chains over it agree or differ as they should.

use std::collections::VecDeque;

use bytes::Bytes;
use ticketrail_audit::chain::{Chain, compare};
use ticketrail_audit::lines::Lines;
use ticketrail_audit::log::{Before, Step};
use ticketrail_core::command::{
    Ack, CloseQueue, Commit, Content, CreateQueue, DeleteNamespace, DeleteQueue, Enqueue, Expire, ExpiredLease, Extend,
    Failure, InitCluster, OpenSession, Pause, PauseQueue, PurgeQueue, QueueRef, QueueSettings, Receive, Release,
    Reschedule, Retry, RetryPolicy, SetNamespace, Settle, Shed, ShedRule, Target, Tick, UpdateQueue, Verdict,
};
use ticketrail_core::reply::{EnqueueOutcome, PlaceRecord};
use ticketrail_core::{
    Answer, Answered, Command, Entry, LogPosition, MemView, Query, Request, RequestId, Timestamp, answer, apply,
};
use ticketrail_history::format::body;
use ticketrail_history::generate::Random;
use ticketrail_history::model::{Model, Stop};

/// Random traffic on a state.
struct Traffic {
    random: Random,
    view: MemView,
    term: u64,
    index: u64,
    /// The leader's clock in milliseconds.
    clock: u64,
    tokens: VecDeque<Bytes>,
    sessions: Vec<(u64, u64)>,
    repeats: Vec<Request>,
    next: u64,
    /// Messages that were enqueued, the last of them.
    born: VecDeque<PlaceRecord>,
    /// Whether a queue's groups wait or follow and so on: what it is made with.
    whole: bool,
}

fn queue(number: u64) -> QueueRef {
    QueueRef { namespace: "default".into(), name: format!("q{number}") }
}

impl Traffic {
    fn new(seed: u64) -> Self {
        let random = Random::new(seed);
        let (tokens, sessions, repeats) = (VecDeque::new(), Vec::new(), Vec::new());
        let whole = !seed.is_multiple_of(4);
        let (view, born) = (MemView::new(), VecDeque::new());
        Self { random, view, term: 1, index: 0, clock: 1_000_000, tokens, sessions, repeats, next: 1, born, whole }
    }

    fn name(&mut self) -> QueueRef {
        let number = self.random.below(3);
        let dead = self.random.chance(150);
        let name = queue(number);
        if dead { QueueRef { name: format!("{}.dlq", name.name), ..name } } else { name }
    }

    fn settings(&mut self) -> QueueSettings {
        let mut some = |of: &[u64]| (of[self.random.below(of.len() as u64) as usize]).into();
        QueueSettings {
            max_depth: some(&[0, 20, 1_000]),
            max_bytes: some(&[0, 2_000, 0]),
            lease_ms: some(&[1_000, 3_000, 999]),
            max_attempts: Some(self.random.below(4) as u32),
            failure_window_ms: Some([1_000, 86_400_000][self.random.below(2) as usize]),
            backoff_base_ms: Some(100),
            backoff_cap_ms: Some(1_000),
            ..self.whole_settings()
        }
    }

    /// What a queue has that most have not.
    fn whole_settings(&mut self) -> QueueSettings {
        if !self.whole {
            return QueueSettings::default();
        }
        let pick = |random: &mut Random, of: &[u64]| of[random.below(of.len() as u64) as usize];
        let random = &mut self.random;
        let rule = |above_percent, below_priority| ShedRule { above_percent, below_priority };
        QueueSettings {
            max_wait_ms: Some(pick(random, &[0, 0, 500, 5_000])),
            expected_rate_milli: Some(pick(random, &[0, 2_000, 100_000])),
            on_group_failure: Some(random.below(3) as i32),
            shed: random.chance(300).then(|| Shed { rules: vec![rule(50, 3), rule(80, 6)] }),
            ttl_ms: Some(pick(random, &[0, 0, 0, 4_000])),
            retain_done_ms: Some(pick(random, &[0, 3_000, 700_000])),
            dedup_window_ms: Some(pick(random, &[1_000, 5_000, 3_600_000])),
            on_expired: Some(random.below(2) as i32),
            on_exhausted: Some(i32::from(random.chance(250))),
            ..QueueSettings::default()
        }
    }

    fn enqueue(&mut self, queue: u32) -> Enqueue {
        self.next += 1;
        let size = 8 + self.random.below(200) as usize;
        let content = Content { body: body::make(self.next, size).into(), ..Content::default() };
        let delay_ms = if self.random.chance(300) { self.random.below(3_000) } else { 0 };
        let deliver_at_ms = if self.random.chance(50) { self.clock + self.random.below(2_000) } else { 0 };
        let plain = Enqueue { queue, message: Some(content), delay_ms, deliver_at_ms, ..Enqueue::default() };
        if !self.whole { plain } else { self.whole_enqueue(plain) }
    }

    /// A message with what most have not.
    fn whole_enqueue(&mut self, plain: Enqueue) -> Enqueue {
        let random = &mut self.random;
        let mut message = plain;
        if random.chance(400) {
            let groups = if random.chance(500) { 2 } else { 20 };
            message.group = format!("g{}", random.below(groups));
        }
        if random.chance(300) {
            message.priority = Some(random.below(10) as u32);
        }
        if random.chance(300) {
            message.dedup_id = format!("d{}", random.below(30));
        }
        if random.chance(150) {
            message.ttl_ms = 1 + random.below(6_000);
        }
        if random.chance(60) {
            message.expires_at_ms = self.clock + random.below(8_000);
        }
        if random.chance(100) {
            let backoff_base_ms = random.chance(500).then_some(50);
            message.retry =
                Some(RetryPolicy { max_attempts: Some(random.below(3) as u32), backoff_base_ms, backoff_cap_ms: None });
        }
        if random.chance(30) {
            message.dead_letter_queue = "graves".into();
        }
        message
    }

    fn target(&mut self) -> Target {
        if self.random.chance(300) {
            let dedup_id = format!("d{}", self.random.below(30));
            return Target { id: None, queue: Some(self.name()), dedup_id };
        }
        let at = self.random.below(self.born.len().max(1) as u64) as usize;
        let id = self.born.get(at).copied().unwrap_or(PlaceRecord { queue: 1, lane: 4, sequence: 1 });
        Target { id: Some(id), queue: None, dedup_id: String::new() }
    }

    fn reschedule(&mut self) -> Reschedule {
        let delay_ms = [0, 0, self.random.below(4_000)][self.random.below(3) as usize];
        let deliver_at_ms = if self.random.chance(100) { self.clock + self.random.below(3_000) } else { 0 };
        Reschedule { target: Some(self.target()), delay_ms, deliver_at_ms }
    }

    fn settle(&mut self) -> Option<Settle> {
        let keep = self.random.chance(150);
        let at = self.random.below(self.tokens.len().max(1) as u64) as usize;
        let token = if keep { self.tokens.get(at).cloned()? } else { self.tokens.remove(at)? };
        let failure = Failure { code: "E".into(), text: "no".into() };
        let verdict = match self.random.below(10) {
            0..4 => Verdict::Ack(Ack {
                output: if self.random.chance(200) { Bytes::from_static(b"done") } else { Bytes::new() },
            }),
            4 => Verdict::Retry(Retry { failure: Some(failure), delay_ms: None }),
            5 => Verdict::Retry(Retry { failure: None, delay_ms: Some(self.random.below(1_500)) }),
            6 => Verdict::Reject(failure),
            7 => Verdict::Release(Release {}),
            8 => Verdict::Extend(Extend { lease_ms: [0, 1_000, 9_000, 5][self.random.below(4) as usize] }),
            _ => Verdict::Ack(Ack::default()),
        };
        Some(Settle { token, verdict: Some(verdict) })
    }

    fn command(&mut self) -> Command {
        match self.random.below(100) {
            0..35 => {
                let count = self.random.below(3);
                let settle: Vec<Settle> = (0..count).filter_map(|_| self.settle()).collect();
                let queues = vec![self.name(), queue(0)];
                let enqueue = (0..self.random.below(4)).map(|number| self.enqueue((number % 2) as u32)).collect();
                let (atomic, auto_create) = (self.random.chance(400), self.random.chance(800));
                let queues = if queues[0] == queues[1] { vec![queue(0), queue(1)] } else { queues };
                let some = |traffic: &mut Self| {
                    if traffic.whole { traffic.random.below(3) / 2 * (1 + traffic.random.below(2)) } else { 0 }
                };
                let cancels = some(self);
                let cancel = (0..cancels).map(|_| self.target()).collect();
                let times = some(self);
                let reschedule = (0..times).map(|_| self.reschedule()).collect();
                Command::Commit(Commit { queues, enqueue, settle, cancel, reschedule, atomic, auto_create })
            }
            35..60 => {
                let (max, max_bytes) = (1 + self.random.below(6) as u32, [0, 0, 300][self.random.below(3) as usize]);
                let lease_ms = [0, 1_000, 2_500, 7][self.random.below(4) as usize];
                let mut queues = vec![self.name()];
                if self.whole && self.random.chance(250) {
                    queues.push(self.name());
                    queues.push(QueueRef { namespace: "default".into(), name: "graves".into() });
                }
                let auto_ack = self.whole && self.random.chance(150);
                Command::Receive(Receive { queues, max, max_bytes, lease_ms, worker: "w".into(), auto_ack })
            }
            60..72 => Command::Tick(Tick {}),
            72..84 => Command::Expire(Expire { leases: self.expired() }),
            84 => Command::OpenSession(OpenSession { renew: 0 }),
            85 => {
                let renew = self.sessions.first().map_or(7, |(session, _)| *session);
                Command::OpenSession(OpenSession { renew })
            }
            86..89 => Command::CreateQueue(CreateQueue { queue: Some(self.name()), settings: Some(self.settings()) }),
            89..91 => Command::UpdateQueue(UpdateQueue { queue: Some(self.name()), settings: Some(self.settings()) }),
            91..94 => {
                let until_ms = [0, self.clock + self.random.below(1_000)][self.random.below(2) as usize];
                let pause = Pause { reason: String::new(), author: String::new(), until_ms };
                let pause = if self.random.chance(400) { Some(pause) } else { None };
                Command::PauseQueue(PauseQueue { queue: Some(self.name()), pause })
            }
            94..96 => Command::CloseQueue(CloseQueue { queue: Some(self.name()), closed: self.random.chance(300) }),
            96..98 => Command::PurgeQueue(PurgeQueue { queue: Some(self.name()) }),
            98 if self.whole && self.random.chance(500) => {
                let defaults = Some(self.settings());
                let auto_create = self.random.chance(500).then(|| self.random.chance(700));
                let namespace = "default".to_owned();
                if self.random.chance(300) {
                    Command::DeleteNamespace(DeleteNamespace { namespace })
                } else {
                    Command::SetNamespace(SetNamespace { namespace, defaults, auto_create })
                }
            }
            98 => Command::DeleteQueue(DeleteQueue { queue: Some(self.name()) }),
            _ => Command::InitCluster(InitCluster { secret: Bytes::from(vec![9; 32]) }),
        }
    }

    /// Leases as a leader would name them, and some that go on.
    fn expired(&mut self) -> Vec<ExpiredLease> {
        let Answer::Leases(leases) = answer(&self.view, &Query::Leases { after: None, limit: 50 }).unwrap() else {
            panic!("expected leases");
        };
        let mut named = Vec::new();
        for lease in leases {
            if self.random.chance(600) {
                let granted_index = lease.granted_index;
                named.push(ExpiredLease { queue: lease.queue.0, sequence: lease.sequence, granted_index });
            }
        }
        named
    }

    fn request(&mut self) -> Request {
        if !self.repeats.is_empty() && self.random.chance(100) {
            let at = self.random.below(self.repeats.len() as u64) as usize;
            return self.repeats.swap_remove(at);
        }
        let command = self.command();
        let by_session = !matches!(command, Command::Tick(_) | Command::Expire(_) | Command::InitCluster(_));
        if self.sessions.is_empty() || !by_session || self.random.chance(200) {
            return Request::anonymous(command);
        }
        if self.whole && self.random.chance(100) {
            let id = RequestId { token_high: self.random.any(), token_low: self.random.any(), ..RequestId::default() };
            let request = Request::of(id, command);
            if self.random.chance(300) {
                self.repeats.push(request.clone());
            }
            return request;
        }
        let at = self.random.below(self.sessions.len() as u64) as usize;
        let (session, seq) = &mut self.sessions[at];
        *seq += 1;
        let acked_below = seq.saturating_sub(self.random.below(30));
        let id = RequestId { session: *session, seq: *seq, acked_below, ..RequestId::default() };
        let request = Request::of(id, command);
        if self.random.chance(150) {
            self.repeats.push(request.clone());
        }
        request
    }

    /// Applies one more entry and shows it to the model. Returns how many requests it had; `None`: the log does not tell the
    /// model enough to go on.
    fn step(&mut self, lines: &mut Lines, model: &mut Model, chain: &mut Chain) -> Result<Option<u64>, String> {
        self.index += 1 + self.random.below(2);
        self.clock += self.random.below(400);
        if self.random.chance(10) {
            self.term += 1;
            self.clock += self.random.below(20_000);
        }
        let requests = match self.index {
            1 | 2 => vec![Request::anonymous(Command::InitCluster(InitCluster { secret: Bytes::from(vec![7; 32]) }))],
            _ => (0..self.random.below(5)).map(|_| self.request()).collect(),
        };
        let entry = Entry::new(Timestamp(self.clock), requests);
        let at = LogPosition { term: self.term, index: self.index };
        let before = Before::of(&self.view, &entry).map_err(|e| e.to_string())?;
        let outcome = apply(&self.view, at, &entry).map_err(|e| e.to_string())?;
        self.view.commit(&outcome.writes);
        for reply in outcome.replies.iter().flatten() {
            match &reply.answered {
                Some(Answered::SessionOpened(opened)) if self.sessions.iter().all(|(id, _)| *id != opened.session) => {
                    self.sessions.push((opened.session, 0));
                    if self.sessions.len() > 3 {
                        self.sessions.remove(0);
                    }
                }
                Some(Answered::Received(received)) if !reply.replayed => {
                    let delivered = answer(&self.view, &Query::Deliver(received.handles.clone()));
                    let Ok(Answer::Deliveries(delivered)) = delivered else { return Err("expected deliveries".into()) };
                    self.tokens.extend(delivered.into_iter().map(|delivery| delivery.token));
                }
                Some(Answered::Committed(committed)) => {
                    for outcome in committed.enqueued.iter().filter_map(|result| result.outcome.as_ref()) {
                        if let EnqueueOutcome::Enqueued(enqueued) = outcome {
                            self.born.push_back(enqueued.place);
                        }
                    }
                    while self.born.len() > 60 {
                        self.born.pop_front();
                    }
                }
                _ => {}
            }
        }
        let bytes = entry.to_bytes();
        let step = Step { at, bytes: &bytes, entry: &entry, outcome: &outcome, before: &before, view: &self.view };
        chain.step(&step);
        let lines = lines.of(&step).map_err(|e| e.to_string())?;
        for line in &lines {
            match model.step(line) {
                Ok(()) => {}
                Err(Stop::Unsure(_)) => return Ok(None),
                Err(Stop::Wrong(mismatch)) => return Err(format!("{line:?}\n{mismatch:?}")),
            }
            // What is written reads back.
            let text = serde_json::to_string(line).map_err(|e| e.to_string())?;
            let again = serde_json::from_str(&text).map_err(|e| e.to_string())?;
            if *line != again {
                return Err(format!("expected {line:?} to read back, but got {again:?}"));
            }
        }
        Ok(Some(lines.len() as u64))
    }
}

#[test]
fn random_traffic_is_what_the_model_says() {
    let (mut requests, mut unsure) = (0, 0);
    let mut failed = Vec::new();
    for seed in 0..60 {
        let (mut traffic, mut lines, mut model) = (Traffic::new(seed), Lines::default(), Model::new());
        let mut chain = Chain::new();
        for _ in 0..1_500 {
            match traffic.step(&mut lines, &mut model, &mut chain) {
                Ok(Some(applied)) => requests += applied,
                Ok(None) => {
                    unsure += 1;
                    break;
                }
                Err(problem) => {
                    failed.push(format!("seed {seed}, index {}: {problem}", traffic.index));
                    break;
                }
            }
        }
        let problem = model.end_entry().err();
        assert_eq!(problem, None, "seed {seed}");
    }
    assert!(failed.is_empty(), "{} seeds failed: {}", failed.len(), failed.join("\n"));
    println!("{requests} requests; {unsure} of 60 seeds ended where the log does not tell enough");
    assert!(requests > 80_000, "{requests}");
}

#[test]
fn chains_of_one_log_agree_and_others_differ() -> anyhow::Result<()> {
    let chain_of = |seed: u64, steps: u64| {
        let (mut traffic, mut lines, mut model) = (Traffic::new(seed), Lines::default(), Model::new());
        let mut chain = Chain::new();
        for _ in 0..steps {
            traffic.step(&mut lines, &mut model, &mut chain).unwrap();
        }
        chain.finish()
    };
    let named = |seed: u64, steps: u64| (format!("chain {seed}/{steps}"), chain_of(seed, steps));
    let compared = compare(&[named(1, 1_000), named(1, 700)])?;
    assert!(compared >= 3, "{compared}");
    // Another log writes its lines after other indexes, so one line is changed instead.
    let mut other = named(1, 1_000);
    other.1[2].hash.0 ^= 1;
    let problem = compare(&[named(1, 1_000), other]).unwrap_err().to_string();
    assert!(problem.contains("to have one hash at index"), "{problem}");
    Ok(())
}
