//! Makes legal histories from a seed, by the reference model run forward: clients that enqueue, receive, settle and
//! commit at the same time, with answers that get lost, leases that run out, repeats, refusals and changes of leader.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::format::{
    Answer, Applied, AuditLine, Call, Command, Delivery, EnqueuePart, Event, ExpiredLease, Meta, NewMessage, Op,
    Position, QueueName, Refusal, Rid, Settings, Settle, Token, Told, Verdict, What, fingerprint,
};
use crate::model::Model;

/// What to make.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Decides everything.
    pub seed: u64,
    /// Operations to begin, before all is received.
    pub ops: u64,
    /// Clients at one time, from 1.
    pub clients: usize,
    /// Queues, from 1.
    pub queues: u64,
    /// Messages that wait at most, about.
    pub backlog: u64,
}

/// A line of a run.
#[derive(Debug, Clone, PartialEq)]
pub enum Line {
    /// Of `history.jsonl`.
    Event(Box<Event>),
    /// Of `audit.jsonl`.
    Audit(Box<AuditLine>),
}

/// Random numbers from a seed: SplitMix64.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The numbers of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Any number.
    pub fn any(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`, which must be above 0.
    pub fn below(&mut self, n: u64) -> u64 {
        self.any() % n
    }

    /// True so often, of a thousand times.
    pub fn chance(&mut self, of_thousand: u64) -> bool {
        self.below(1_000) < of_thousand
    }
}

/// What becomes of an operation's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// It comes.
    Told,
    /// It is lost, and the request was applied.
    Lost,
    /// The request never came to a leader, and the client does not know.
    Vanished,
    /// It was refused before it came to the log.
    Refused,
    /// The first answer is lost; the request comes again.
    Repeated,
}

#[derive(Debug)]
struct Pending {
    op: Op,
    rid: Option<Rid>,
    call: Call,
    fate: Fate,
    /// The answer, once it was applied.
    told: Option<Told>,
    /// Attempts that were applied.
    attempts: u32,
}

#[derive(Debug)]
struct Client {
    p: u32,
    session: u64,
    seq: u64,
    pending: Option<Pending>,
    held: VecDeque<(Token, crate::format::MessageId)>,
    seen: Option<crate::format::MessageId>,
}

/// Where cluster time begins, in milliseconds.
const EPOCH: u64 = 1_764_000_000_000;

struct Run<'a> {
    options: Options,
    random: Random,
    model: Model,
    sink: &'a mut dyn FnMut(Line),
    clients: Vec<Client>,
    next_client: u32,
    next_event: u64,
    next_op: u64,
    next_value: u64,
    begun: u64,
    /// The clients' clock in nanoseconds.
    t: u64,
    index: u64,
    term: u64,
    /// No leader until then.
    down_until: u64,
    /// Leases by their end: queue, sequence, index of the grant.
    leases: BinaryHeap<Reverse<(u64, u64, u64, u64)>>,
    last_system: u64,
    draining: bool,
    closing: bool,
}

/// Makes a history; `sink` gets its lines, those of each file in their order. Returns what `meta.json` must say. An error
/// is a fault of the model: what it gives it does not take.
pub fn generate(options: Options, sink: &mut dyn FnMut(Line)) -> Result<Meta, String> {
    let mut run = Run {
        options,
        random: Random::new(options.seed),
        model: Model::new(),
        sink,
        clients: Vec::new(),
        next_client: 0,
        next_event: 0,
        next_op: 0,
        next_value: 1,
        begun: 0,
        t: 0,
        index: 1,
        term: 1,
        down_until: 0,
        leases: BinaryHeap::new(),
        last_system: 0,
        draining: false,
        closing: false,
    };
    run.entry(vec![(None, 0, Command::Init)])?;
    for number in 0..options.queues {
        let set = Settings {
            lease: Some(5_000),
            max_attempts: Some(3),
            base: Some(100),
            cap: Some(2_000),
            max_depth: Some(1_000_000),
            ..Settings::default()
        };
        let op = Op(run.next_op);
        run.next_op += 1;
        run.event(u32::MAX, op, What::Invoke { rid: None, call: Call::Create { q: queue(number), set: set.clone() } });
        run.entry(vec![(None, 0, Command::Create { q: queue(number), set })])?;
        let (cp, ts) = (Some(Position { index: run.index, ordinal: 0 }), run.model.now());
        let answer = Answer::Changed { q: number + 1 };
        run.event(u32::MAX, op, What::Ok(Told { cp, ts, node: 1, term: 1, replayed: false, answer }));
    }
    for _ in 0..options.clients {
        let client = run.new_client();
        run.clients.push(client);
    }
    run.work()?;
    let drained = run.drain()?;
    let mut meta = Meta { seed: options.seed, drained, drift_ppm: 1_000, jump_ms: 5, ..Meta::default() };
    meta.options.insert("queues".into(), options.queues.to_string());
    Ok(meta)
}

fn queue(number: u64) -> QueueName {
    QueueName::new("", &format!("q{number}"))
}

impl Run<'_> {
    fn new_client(&mut self) -> Client {
        let p = self.next_client;
        self.next_client += 1;
        Client { p, session: 0, seq: 0, pending: None, held: VecDeque::new(), seen: None }
    }

    fn event(&mut self, p: u32, op: Op, what: What) {
        let event = Event { i: self.next_event, t: self.t, p, op, what };
        self.next_event += 1;
        (self.sink)(Line::Event(Box::new(event)));
    }

    fn now(&self) -> u64 {
        EPOCH + self.t / 1_000_000
    }

    fn work(&mut self) -> Result<(), String> {
        while self.begun < self.options.ops {
            self.step()?;
        }
        Ok(())
    }

    /// Receives until nothing is left. Whether that came to an end.
    fn drain(&mut self) -> Result<bool, String> {
        self.draining = true;
        for _ in 0..self.options.ops * 20 + 1_000_000 {
            // Once nothing is there, nobody begins anything; what was asked is still answered.
            self.closing = self.model.depth() == 0;
            if self.closing && self.clients.iter().all(|client| client.pending.is_none()) {
                return Ok(true);
            }
            // Time passes faster, for leases must run out.
            self.t += 2_000_000;
            self.step()?;
        }
        Ok(false)
    }

    fn step(&mut self) -> Result<(), String> {
        self.t += self.random.below(20_000) + 1;
        if self.t.saturating_sub(self.last_system) > 50_000_000 {
            self.last_system = self.t;
            self.system()?;
        }
        let number = self.random.below(self.clients.len() as u64) as usize;
        match &self.clients[number].pending {
            None if self.closing => {}
            None => self.begin(number),
            Some(Pending { told: None, fate: Fate::Refused | Fate::Vanished, .. }) => self.end(number),
            Some(Pending { told: None, .. }) if self.t < self.down_until => {}
            Some(Pending { told: None, call, .. }) if call.kind().is_read() => self.look(number),
            Some(Pending { told: None, .. }) => self.propose(number)?,
            Some(Pending { told: Some(_), fate: Fate::Repeated, attempts: 1, .. }) => self.propose(number)?,
            Some(Pending { told: Some(_), .. }) => self.end(number),
        }
        Ok(())
    }

    /// What the leader does by itself.
    fn system(&mut self) -> Result<(), String> {
        if self.t < self.down_until {
            return Ok(());
        }
        if self.random.chance(2) && !self.draining {
            self.term += 1;
            self.down_until = self.t + 300_000_000;
            return Ok(());
        }
        // The clock moves first, so that what is due by it is known.
        self.entry(vec![(None, 0, Command::Nothing)])?;
        if self.model.is_due() {
            self.entry(vec![(None, 0, Command::Tick)])?;
        }
        let mut l = Vec::new();
        while let Some(Reverse((end, queue, sequence, granted))) = self.leases.peek().copied() {
            if end > self.model.lease_now() || l.len() == 200 {
                break;
            }
            self.leases.pop();
            l.push(ExpiredLease { queue, sequence, granted });
        }
        if !l.is_empty() {
            self.entry(vec![(None, 0, Command::Expire { l })])?;
        }
        Ok(())
    }

    fn begin(&mut self, number: usize) {
        let call = self.choose(number);
        let fate = match self.random.below(1_000) {
            _ if call.kind().is_read() || self.clients[number].session == 0 || self.draining => Fate::Told,
            0..5 => Fate::Lost,
            5..8 => Fate::Vanished,
            8..14 => Fate::Refused,
            14..30 => Fate::Repeated,
            _ => Fate::Told,
        };
        let op = Op(self.next_op);
        self.next_op += 1;
        self.begun += 1;
        let client = &mut self.clients[number];
        let rid = (client.session != 0 && !call.kind().is_read()).then(|| {
            client.seq += 1;
            Rid { session: client.session, seq: client.seq }
        });
        let p = client.p;
        client.pending = Some(Pending { op, rid, call: call.clone(), fate, told: None, attempts: 0 });
        self.event(p, op, What::Invoke { rid, call });
    }

    fn choose(&mut self, number: usize) -> Call {
        let q = queue(self.random.below(self.options.queues));
        if self.clients[number].session == 0 {
            return Call::Open { renew: 0 };
        }
        if self.clients[number].held.len() > 3 || (!self.clients[number].held.is_empty() && self.random.chance(600)) {
            return self.choose_settle(number);
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
                let dead = self.random.chance(if self.draining { 300 } else { 50 });
                let q = if dead { QueueName::new("", &format!("{q}.dlq")) } else { q };
                let max = 1 + self.random.below(5) as u32;
                // A client that just stops holds its leases until they run out.
                Call::Receive { q, max, wait: 0, lease: if self.random.chance(500) { 0 } else { 3_000 } }
            }
            _ => {
                let count = 1 + self.random.below(3);
                let m = (0..count).map(|_| self.message()).collect();
                Call::Enqueue { q, m }
            }
        }
    }

    fn message(&mut self) -> NewMessage {
        let v = self.next_value;
        self.next_value += 1;
        let d = if self.random.chance(100) { self.random.below(2_000) } else { 0 };
        NewMessage { v, h: fingerprint(&v.to_be_bytes()), n: 64 + v % 7, d, at: 0 }
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
                4..7 => Verdict::Retry { d: Some(self.random.below(500)) },
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
            s.push(Settle { tok, how });
        }
        if s.is_empty() {
            return Call::Stats { q: queue(0) };
        }
        if self.random.chance(200) && !self.draining && self.model.depth() < self.options.backlog {
            let q = queue(self.random.below(self.options.queues));
            let e = vec![EnqueuePart { q, m: self.message() }];
            return Call::Commit { s, e };
        }
        Call::Settle { s }
    }

    fn look(&mut self, number: usize) {
        let Some(pending) = self.clients[number].pending.as_mut() else { return };
        let answer = if let Call::Get { id } = &pending.call {
            Answer::Got(self.model.get(*id))
        } else if let Call::Stats { q } = &pending.call {
            Answer::Stats(self.model.stats(q))
        } else {
            return;
        };
        pending.told = Some(Told { cp: None, ts: 0, node: 1, term: self.term, replayed: false, answer });
    }

    /// Puts a client's request, and some that wait beside it, into an entry.
    fn propose(&mut self, number: usize) -> Result<(), String> {
        let mut batch = vec![number];
        while batch.len() < 4 {
            let other = self.random.below(self.clients.len() as u64) as usize;
            let waits = self.clients[other].pending.as_ref().is_some_and(|pending| {
                pending.told.is_none()
                    && !pending.call.kind().is_read()
                    && !matches!(pending.fate, Fate::Refused | Fate::Vanished)
            });
            if !waits || batch.contains(&other) {
                break;
            }
            batch.push(other);
        }
        let mut requests = Vec::with_capacity(batch.len());
        for client in batch {
            let Some(pending) = &self.clients[client].pending else { continue };
            let ab = pending.rid.map_or(0, |rid| rid.seq);
            requests.push((Some(client), ab, command(&pending.call)));
        }
        self.entry(requests)
    }

    /// Applies an entry of requests: by which client, what it has seen, and the command.
    fn entry(&mut self, requests: Vec<(Option<usize>, u64, Command)>) -> Result<(), String> {
        self.index += 1;
        let stamp = self.now();
        for ((client, ab, c), ordinal) in requests.into_iter().zip(0u32..) {
            let cp = Position { index: self.index, ordinal };
            let rid = client.and_then(|client| self.clients[client].pending.as_ref()?.rid);
            let (ts, lc) = if ordinal == 0 {
                self.model.clocks(self.term, stamp)
            } else {
                (self.model.now(), self.model.lease_now())
            };
            // The model is asked once its clocks stand where the entry puts them.
            if ordinal == 0 {
                self.model.enter_at(cp, self.term, stamp).map_err(|stop| format!("{stop:?}"))?;
            }
            let first = rid.and_then(|rid| self.model.first_outcome(rid, ab, &c, cp.index));
            let (r, replay) = match first {
                Some((at, applied)) => (applied, Some(at)),
                None => {
                    let random = &mut self.random;
                    let mut pick = |most: u64| random.any() % (most + 1);
                    (self.model.forward(&c, cp.index, ordinal, &mut pick), None)
                }
            };
            let line = AuditLine {
                cp,
                term: self.term,
                st: stamp,
                ts,
                lc,
                rid,
                ab: if rid.is_some() { ab } else { 0 },
                c,
                r,
                replay,
            };
            let stepped = if ordinal == 0 { self.model.step_entered(&line) } else { self.model.step(&line) };
            stepped.map_err(|stop| format!("expected the model to take {line:?}, but {stop:?}"))?;
            self.note_leases(&line);
            if let Some(client) = client {
                self.answer(client, &line);
            }
            (self.sink)(Line::Audit(Box::new(line)));
        }
        Ok(())
    }

    fn note_leases(&mut self, line: &AuditLine) {
        match (&line.c, &line.r) {
            (_, Applied::Granted { g }) if line.replay.is_none() => {
                for grant in g {
                    self.leases.push(Reverse((grant.end, grant.q, grant.seq, line.cp.index)));
                }
            }
            // A lease that was extended runs out later: the leader looks again then.
            (Command::Commit { s, .. }, Applied::Committed { s: outcomes, .. }) => {
                for (part, outcome) in s.iter().zip(outcomes) {
                    if let (crate::format::SettleOutcome::Extended { left }, Some((queue, seq, granted))) =
                        (outcome, self.model.lease_of(part.tok))
                    {
                        self.leases.push(Reverse((line.lc + left, queue, seq, granted)));
                    }
                }
            }
            _ => {}
        }
    }

    fn answer(&mut self, number: usize, line: &AuditLine) {
        let Some(pending) = &self.clients[number].pending else { return };
        let answer = match (&pending.call, &line.r) {
            (Call::Enqueue { .. }, Applied::Committed { e, .. }) => Answer::Enqueued { e: e.clone() },
            (Call::Settle { .. }, Applied::Committed { s, .. }) => Answer::Settled { s: s.clone() },
            (Call::Commit { .. }, Applied::Committed { s, e }) => Answer::Committed { s: s.clone(), e: e.clone() },
            (_, Applied::Granted { g }) => {
                let delivery = |grant: &crate::format::Grant| {
                    let (id, tok) = grant.tok?;
                    let (v, h, dead) = self.model.content(id)?;
                    let left = grant.end.saturating_sub(line.lc);
                    Some(Delivery { id, v, h, tok, left, rc: grant.rc, f: grant.f, dead })
                };
                Answer::Received { d: g.iter().filter_map(delivery).collect() }
            }
            (_, Applied::Session { s }) => Answer::Session { s: *s },
            (_, Applied::Changed { q }) => Answer::Changed { q: *q },
            (_, Applied::Removed { n }) => Answer::Removed { n: *n },
            _ => Answer::Changed { q: 0 },
        };
        let cp = line.replay.unwrap_or(line.cp);
        let ts = line.ts;
        let Some(pending) = self.clients[number].pending.as_mut() else { return };
        pending.attempts += 1;
        // A repeat of what had no effect is carried out anew.
        let replayed = line.replay.is_some();
        let ts = if replayed { pending.told.as_ref().map_or(ts, |told| told.ts) } else { ts };
        pending.told = Some(Told { cp: Some(cp), ts, node: self.term, term: self.term, replayed, answer });
        if let Applied::Refused(refusal) = &line.r {
            let op = pending.op;
            let client = &mut self.clients[number];
            client.pending = None;
            let p = client.p;
            self.event(p, op, What::Fail(refusal.clone()));
        }
    }

    fn end(&mut self, number: usize) {
        let Some(pending) = self.clients[number].pending.take() else { return };
        let (p, op) = (self.clients[number].p, pending.op);
        match (pending.fate, pending.told) {
            (Fate::Refused, _) => self.event(p, op, What::Fail(Refusal::new("NOT_LEADER"))),
            (Fate::Told | Fate::Repeated, Some(told)) => {
                let client = &mut self.clients[number];
                if let Answer::Session { s } = &told.answer {
                    client.session = *s;
                }
                if let Answer::Received { d } = &told.answer {
                    client.held.extend(d.iter().map(|delivery| (delivery.tok, delivery.id)));
                }
                self.event(p, op, What::Ok(told));
            }
            (Fate::Lost | Fate::Vanished | Fate::Told | Fate::Repeated, _) => {
                self.event(p, op, What::Info(Refusal::new("DEADLINE")));
                // Its leases run out.
                self.clients[number] = self.new_client();
            }
        }
    }
}

fn command(call: &Call) -> Command {
    match call {
        Call::Open { renew } => Command::Open { renew: *renew },
        Call::Enqueue { q, m } => Command::Commit {
            s: Vec::new(),
            e: m.iter().map(|m| EnqueuePart { q: q.clone(), m: *m }).collect(),
            atomic: false,
            auto: true,
        },
        Call::Receive { q, max, wait: _, lease } => {
            Command::Receive { q: q.clone(), max: *max, bytes: 0, lease: *lease }
        }
        Call::Settle { s } => Command::Commit { s: s.clone(), e: Vec::new(), atomic: false, auto: false },
        Call::Commit { s, e } => Command::Commit { s: s.clone(), e: e.clone(), atomic: true, auto: true },
        Call::Stats { .. } | Call::Get { .. } => Command::Nothing,
        Call::Create { q, set } => Command::Create { q: q.clone(), set: set.clone() },
        Call::Update { q, set } => Command::Update { q: q.clone(), set: set.clone() },
        Call::Pause { q, until } => Command::Pause { q: q.clone(), until: *until },
        Call::Resume { q } => Command::Resume { q: q.clone() },
        Call::Close { q } => Command::Close { q: q.clone() },
        Call::Reopen { q } => Command::Reopen { q: q.clone() },
        Call::Purge { q } => Command::Purge { q: q.clone() },
        Call::Delete { q } => Command::Delete { q: q.clone() },
    }
}
