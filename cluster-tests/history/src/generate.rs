//! Makes legal histories from a seed, by the reference model run forward: clients that enqueue, receive, settle and
//! commit at the same time, with answers that get lost, leases that run out, repeats, refusals and changes of leader; on
//! demand with all that a queue can do.

mod choice;
mod random;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::format::{
    Answer, Applied, AuditLine, Call, Command, Delivery, EnqueueOutcome, EnqueuePart, Event, ExpiredLease, Meta, Op,
    Position, QueueName, Refusal, Rid, Taken, Target, Token, Told, What,
};
use crate::model::{Asked, Model, Shown};

pub use random::Random;

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
    /// Whether clients use all that a queue can do: groups, priorities, dedup ids, times to live, cancels and the rest.
    pub whole: bool,
    /// Whether calls are on their way for seconds now and then, there or back.
    pub held_up: bool,
}

/// A line of a run.
#[derive(Debug, Clone, PartialEq)]
pub enum Line {
    /// Of `history.jsonl`.
    Event(Box<Event>),
    /// Of `audit.jsonl`.
    Audit(Box<AuditLine>),
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
    /// Messages of its own that it may cancel or put at another time.
    own: VecDeque<Target>,
    /// Nothing of it comes on before this time.
    held_up_until: u64,
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
        run.admin(Call::Create { q: queue(number), set: choice::settings(options, number) })?;
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
        Client {
            p,
            session: 0,
            seq: 0,
            pending: None,
            held: VecDeque::new(),
            seen: None,
            own: VecDeque::new(),
            held_up_until: 0,
        }
    }

    fn event(&mut self, p: u32, op: Op, what: What) {
        let event = Event { i: self.next_event, t: self.t, p, op, what };
        self.next_event += 1;
        (self.sink)(Line::Event(Box::new(event)));
    }

    /// A call of nobody's, which is answered at once.
    fn admin(&mut self, call: Call) -> Result<(), String> {
        let op = Op(self.next_op);
        self.next_op += 1;
        let c = command(&call);
        self.event(u32::MAX, op, What::Invoke { rid: None, call });
        let r = self.entry(vec![(None, 0, c)])?.pop();
        let what = match r {
            Some(Applied::Refused(refusal)) => What::Fail(refusal),
            Some(Applied::Removed { n }) => self.told_admin(Answer::Removed { n }),
            Some(Applied::Changed { q }) => self.told_admin(Answer::Changed { q }),
            _ => self.told_admin(Answer::Changed { q: 0 }),
        };
        self.event(u32::MAX, op, what);
        Ok(())
    }

    fn told_admin(&self, answer: Answer) -> What {
        let (cp, ts) = (Some(Position { index: self.index, ordinal: 0 }), self.model.now());
        What::Ok(Told { cp, ts, node: self.term, term: self.term, replayed: false, answer })
    }

    fn now(&self) -> u64 {
        EPOCH + self.t / 1_000_000
    }

    fn work(&mut self) -> Result<(), String> {
        while self.begun < self.options.ops {
            if self.options.whole && self.random.below(2_000) == 0 && self.t >= self.down_until {
                let call = self.choose_admin();
                self.admin(call)?;
            }
            self.step()?;
        }
        Ok(())
    }

    /// Receives until nothing is left. Whether that came to an end.
    fn drain(&mut self) -> Result<bool, String> {
        self.draining = true;
        while self.t < self.down_until {
            self.t += 10_000_000;
        }
        for q in self.model.queue_names() {
            self.admin(Call::Resume { q: q.clone() })?;
            self.admin(Call::Reopen { q })?;
        }
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
        self.t += self.random.below(if self.options.whole { 2_000_000 } else { 20_000 }) + 1;
        if self.t.saturating_sub(self.last_system) > 50_000_000 {
            self.last_system = self.t;
            self.system()?;
        }
        let number = self.random.below(self.clients.len() as u64) as usize;
        if self.t < self.clients[number].held_up_until {
            return Ok(());
        }
        if self.options.held_up && self.random.below(300) == 0 {
            self.clients[number].held_up_until = self.t + self.random.below(5_000_000_000);
        }
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
            Rid::of(client.session, client.seq)
        });
        let free = self.options.whole && rid.is_some() && self.random.chance(50);
        let rid = if free { Some(Rid::token(self.random.any(), self.random.any())) } else { rid };
        let client = &mut self.clients[number];
        let p = client.p;
        client.pending = Some(Pending { op, rid, call: call.clone(), fate, told: None, attempts: 0 });
        self.event(p, op, What::Invoke { rid, call });
    }

    fn look(&mut self, number: usize) {
        let Some(pending) = self.clients[number].pending.as_ref() else { return };
        let answer = if let Call::Get { id } = &pending.call {
            self.see(*id)
        } else if let Call::Find { q, dd } = &pending.call {
            self.model.find(q, dd).map_or(Answer::Got(None), |id| self.see(id))
        } else if let Call::Stats { q } = &pending.call {
            Answer::Stats(self.model.stats(q))
        } else {
            return;
        };
        let told = Told { cp: None, ts: 0, node: 1, term: self.term, replayed: false, answer };
        if let Some(pending) = self.clients[number].pending.as_mut() {
            pending.told = Some(told);
        }
    }

    fn see(&self, id: crate::format::MessageId) -> Answer {
        match (self.model.get(id), self.model.outcome(id)) {
            (None, Some(done)) => Answer::Done(done),
            (info, _) => Answer::Got(info),
        }
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
        self.entry(requests).map(|_| ())
    }

    /// Applies an entry of requests: by which client, what it has seen, and the command. Returns the outcomes.
    fn entry(&mut self, requests: Vec<(Option<usize>, u64, Command)>) -> Result<Vec<Applied>, String> {
        self.index += 1;
        let stamp = self.now();
        let mut outcomes = Vec::with_capacity(requests.len());
        for ((client, ab, command), ordinal) in requests.into_iter().zip(0u32..) {
            let cp = Position { index: self.index, ordinal };
            let rid = client.and_then(|client| self.clients[client].pending.as_ref()?.rid);
            let asked = Asked { cp, term: self.term, stamp, rid, acked_below: ab, command };
            let random = &mut self.random;
            let mut pick = |most: u64| if most == u64::MAX { random.any() } else { random.any() % (most + 1) };
            let line = self.model.make(asked.clone(), &mut pick).map_err(|stop| format!("{asked:?}: {stop:?}"))?;
            self.note_leases(&line);
            if let Some(client) = client {
                self.answer(client, &line);
            }
            outcomes.push(line.r.clone());
            (self.sink)(Line::Audit(Box::new(line)));
        }
        Ok(outcomes)
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
        let several = matches!(&pending.call, Call::Receive { then, .. } if !then.is_empty());
        let from = |id: u64| if several { self.model.name_of(id) } else { None };
        let answer = match (&pending.call, &line.r) {
            (Call::Enqueue { .. }, Applied::Committed { e, .. }) => Answer::Enqueued { e: e.clone() },
            (Call::Settle { .. }, Applied::Committed { s, .. }) => Answer::Settled { s: s.clone() },
            (Call::Cancel { .. }, Applied::Committed { c, .. }) => Answer::Cancelled { c: c.clone() },
            (Call::Reschedule { .. }, Applied::Committed { t, .. }) => Answer::Rescheduled { t: t.clone() },
            (Call::Commit { .. }, Applied::Committed { s, c, t, e }) => {
                Answer::Committed { s: s.clone(), c: c.clone(), t: t.clone(), e: e.clone() }
            }
            (_, Applied::Granted { g }) => {
                let delivery = |grant: &crate::format::Grant| {
                    let (id, tok) = grant.tok?;
                    let Shown { v, h, dead, group: g } = self.model.shown(id)?;
                    let left = grant.end.saturating_sub(line.lc);
                    Some(Delivery { id, v, h, tok, left, rc: grant.rc, f: grant.f, dead, q: from(grant.q), g })
                };
                Answer::Received { d: g.iter().filter_map(delivery).collect() }
            }
            (_, Applied::Taken { d }) => {
                let taken = |(out, shown): (&crate::format::TakenOut, &Shown)| {
                    let Shown { v, h, dead, group: g } = shown.clone();
                    Taken { id: out.id, v, h, rc: out.rc, f: out.f, dead, q: from(out.q), g }
                };
                Answer::Taken { d: d.iter().zip(self.model.taken()).map(taken).collect() }
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
                if let (Call::Enqueue { q, m, .. }, Answer::Enqueued { e }) = (&pending.call, &told.answer) {
                    for (message, outcome) in m.iter().zip(e) {
                        let EnqueueOutcome::In { id, .. } = outcome else { continue };
                        let dd = message.dedup_id();
                        let by_id = dd.is_empty() || id.sequence % 2 == 0;
                        let target =
                            if by_id { Target::Id(*id) } else { Target::Dedup { q: q.clone(), dd: dd.to_owned() } };
                        client.own.push_back(target);
                        if client.own.len() > 8 {
                            client.own.pop_front();
                        }
                    }
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
    match call.clone() {
        Call::Open { renew } => Command::Open { renew },
        Call::Enqueue { q, m, all } => {
            let e = m.into_iter().map(|m| EnqueuePart { q: q.clone(), m }).collect();
            Command::Commit { s: Vec::new(), c: Vec::new(), t: Vec::new(), e, atomic: all, auto: true }
        }
        Call::Receive { q, then, max, wait: _, lease, auto } => {
            Command::Receive { q, then, max, bytes: 0, lease, auto }
        }
        Call::Settle { s } => {
            Command::Commit { s, c: Vec::new(), t: Vec::new(), e: Vec::new(), atomic: false, auto: false }
        }
        Call::Cancel { c } => {
            Command::Commit { s: Vec::new(), c, t: Vec::new(), e: Vec::new(), atomic: false, auto: false }
        }
        Call::Reschedule { t } => {
            Command::Commit { s: Vec::new(), c: Vec::new(), t, e: Vec::new(), atomic: false, auto: false }
        }
        Call::Commit { s, c, t, e, alone } => Command::Commit { s, c, t, e, atomic: !alone, auto: true },
        Call::Stats { .. } | Call::Get { .. } | Call::Find { .. } => Command::Nothing,
        Call::Create { q, set } => Command::Create { q, set },
        Call::Update { q, set } => Command::Update { q, set },
        Call::Pause { q, until } => Command::Pause { q, until },
        Call::Resume { q } => Command::Resume { q },
        Call::Close { q } => Command::Close { q },
        Call::Reopen { q } => Command::Reopen { q },
        Call::Purge { q } => Command::Purge { q },
        Call::Delete { q } => Command::Delete { q },
        Call::SetNamespace { ns, set, auto } => Command::SetNamespace { ns, set, auto },
        Call::DeleteNamespace { ns } => Command::DeleteNamespace { ns },
    }
}
