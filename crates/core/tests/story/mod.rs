//! Random stories: what may happen to a machine, as data that proptest can shrink.

use std::collections::BTreeMap;

use bytes::Bytes;
use ticketrail_core::command::{
    CloseQueue, Command, Commit, Content, CreateQueue, DeleteNamespace, DeleteQueue, Enqueue, Expire, ExpiredLease,
    OpenSession, Pause, PauseQueue, PurgeQueue, QueueRef, QueueSettings, Receive, Reschedule, RetryPolicy,
    SetNamespace, Settle, Target, Tick, UpdateQueue, Verdict,
};
use ticketrail_core::reply::PlaceRecord;
use ticketrail_core::{MessageId, Request, RequestId};

mod chance;

pub(crate) use chance::{commit, plain_act, scene, story};

use crate::harness::Machine;
use crate::model::State;

/// One entry: how the clock moves before it, and what it asks for.
#[derive(Debug, Clone)]
pub(crate) struct Scene {
    pub(crate) clock: ClockMove,
    pub(crate) acts: Vec<Act>,
}

/// How the stamp of an entry differs from that of the one before.
#[derive(Debug, Clone)]
pub(crate) enum ClockMove {
    /// Forward.
    By(u64),
    /// Back: the leader's clock was set.
    Back(u64),
    /// To the moment when the next message is due, or that many milliseconds beside it.
    ToDue(i64),
    /// To the moment when the next lease ends, or that many milliseconds beside it.
    ToDeadline(i64),
    /// A new leader, so much later.
    NewTerm(u64),
}

/// One request, whose parts are found in the machine's state when its turn comes.
#[derive(Debug, Clone)]
pub(crate) enum Act {
    Create(u8, QueueSettings),
    Update(u8, QueueSettings),
    Delete(u8),
    Purge(u8),
    Pause(u8, Option<u64>),
    Resume(u8),
    Close(u8, bool),
    Commit {
        messages: Vec<NewMessage>,
        settlings: Vec<Settling>,
        cancels: Vec<Aim>,
        reschedules: Vec<NewTime>,
        auto_create: bool,
        atomic: bool,
    },
    Receive {
        queues: Vec<u8>,
        max: u32,
        max_bytes: u64,
        lease_ms: u64,
        worker: u8,
        auto_ack: bool,
    },
    SetNamespace(u8, QueueSettings, Option<bool>),
    DeleteNamespace(u8),
    /// The leader's own: all leases that ran out, and some that did not.
    Expire {
        others: u8,
    },
    Tick,
    OpenSession,
    RenewSession(u8),
    Init,
    Request {
        session: u8,
        seq: Seq,
        acked_below: u8,
        act: Box<Act>,
    },
    /// A request with 16 bytes of its own in place of a session; `again`: with the command it had before.
    Token {
        token: u8,
        again: bool,
        act: Box<Act>,
    },
}

impl Act {
    /// Makes the parts of an atomic commit independent.
    pub(crate) fn stand_alone(&mut self) {
        match self {
            Act::Commit { atomic, .. } => *atomic = false,
            Act::Request { act, .. } | Act::Token { act, .. } => act.stand_alone(),
            Act::Create(..)
            | Act::Update(..)
            | Act::Delete(_)
            | Act::Purge(_)
            | Act::Pause(..)
            | Act::Resume(_)
            | Act::Close(..)
            | Act::Receive { .. }
            | Act::SetNamespace(..)
            | Act::DeleteNamespace(_)
            | Act::Expire { .. }
            | Act::Tick
            | Act::OpenSession
            | Act::RenewSession(_)
            | Act::Init => {}
        }
    }

    /// Whether it leaves a queue's keys to be swept.
    pub(crate) fn sweeps(&self) -> bool {
        match self {
            Act::Delete(_) | Act::Purge(_) => true,
            Act::Request { act, .. } | Act::Token { act, .. } => act.sweeps(),
            Act::Create(..)
            | Act::Update(..)
            | Act::Pause(..)
            | Act::Resume(_)
            | Act::Close(..)
            | Act::Commit { .. }
            | Act::Receive { .. }
            | Act::SetNamespace(..)
            | Act::DeleteNamespace(_)
            | Act::Expire { .. }
            | Act::Tick
            | Act::OpenSession
            | Act::RenewSession(_)
            | Act::Init => false,
        }
    }
}

/// Which number a request has.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Seq {
    /// The next one, or a few further on.
    Next(u8),
    /// One used before, with the same command.
    Repeat(u8),
    /// One used before, with whatever command comes.
    Reuse(u8),
    Zero,
}

#[derive(Debug, Clone)]
pub(crate) struct NewMessage {
    pub(crate) queue: u8,
    pub(crate) size: usize,
    pub(crate) delay_ms: u64,
    /// From now; negative: the past.
    pub(crate) deliver_in_ms: Option<i64>,
    pub(crate) tagged: bool,
    /// 0: none.
    pub(crate) group: u8,
    pub(crate) priority: Option<u32>,
    /// 0: none.
    pub(crate) dedup: u8,
    pub(crate) ttl_ms: u64,
    /// From now; negative: the past.
    pub(crate) expires_in_ms: Option<i64>,
    pub(crate) retry: Option<RetryPolicy>,
    pub(crate) grave: &'static str,
}

/// A message to cancel or to reschedule.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Aim {
    /// One that is somewhere now.
    Here(u8),
    /// One of all ever enqueued.
    Any(u16),
    /// By a dedup id, in a queue.
    Dedup(u8, u8),
    /// An id of nothing.
    Nonsense(u8),
}

/// A message, and when it is to be ready.
#[derive(Debug, Clone)]
pub(crate) struct NewTime {
    pub(crate) aim: Aim,
    pub(crate) delay_ms: u64,
    /// From now; negative: the past.
    pub(crate) deliver_in_ms: Option<i64>,
}

/// One settlement: of which token, and how.
#[derive(Debug, Clone)]
pub(crate) struct Settling {
    pub(crate) which: Which,
    pub(crate) verdict: Verdict,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Which {
    /// One of the leases that are there.
    Live(u8),
    /// One of all tokens ever given.
    Any(u16),
    /// A live lease's token with its hash changed.
    Forged(u8),
    /// A token of nothing.
    Nonsense(u8),
    /// No token at all.
    Malformed(u8),
}

/// What is remembered between the scenes of a story.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// Every token ever given.
    pub(crate) tokens: Vec<Bytes>,
    /// Every session ever opened, with the requests made in it.
    pub(crate) sessions: Vec<(u64, Vec<(u64, Command)>)>,
    /// Every message ever enqueued.
    pub(crate) messages: Vec<MessageId>,
    /// Every request with a token of its own.
    requests: Vec<(u8, Command)>,
    bodies: u64,
}

pub(crate) const QUEUES: [(&str, &str); 6] = [
    ("default", "orders"),
    ("default", "orders.dlq"),
    ("default", "mail"),
    ("default", "graves"),
    ("default", "orders.dlq.dlq"),
    ("shop", "orders"),
];

pub(crate) fn queue(pick: u8) -> QueueRef {
    let (namespace, name) = QUEUES[pick as usize % QUEUES.len()];
    QueueRef { namespace: namespace.into(), name: name.into() }
}

impl Memory {
    /// The request that an act stands for, in the machine as it is.
    pub(crate) fn request(&mut self, machine: &Machine, act: &Act) -> Request {
        if let Act::Token { token, again, act } = act {
            let command = self.command(machine, act);
            let known = self.requests.iter().find(|(known, _)| known == token).map(|(_, command)| command.clone());
            if known.is_none() {
                self.requests.push((*token, command.clone()));
            }
            let command = known.filter(|_| *again).unwrap_or(command);
            let id = RequestId { token_high: 7, token_low: u64::from(*token), ..RequestId::default() };
            return Request::of(id, command);
        }
        let Act::Request { session, seq, acked_below, act } = act else {
            return Request::anonymous(self.command(machine, act));
        };
        let command = self.command(machine, act);
        // Now and then of a session that never was.
        if self.sessions.is_empty() || *session == 0 {
            let id = RequestId { session: 99, seq: 1, ..RequestId::default() };
            return Request::of(id, command);
        }
        let index = *session as usize % self.sessions.len();
        let (id, used) = &mut self.sessions[index];
        let highest = used.iter().map(|(seq, _)| *seq).max().unwrap_or(0);
        let pick = |n: u8, used: &[(u64, Command)]| used.get(n as usize % used.len().max(1)).cloned();
        let (seq, command) = match seq {
            Seq::Zero => (0, command),
            Seq::Next(skip) => (highest + 1 + u64::from(*skip), command),
            Seq::Repeat(n) => pick(*n, used).unwrap_or((1, command)),
            Seq::Reuse(n) => (pick(*n, used).map_or(1, |(seq, _)| seq), command),
        };
        if seq != 0 && !used.iter().any(|(known, _)| *known == seq) {
            used.push((seq, command.clone()));
        }
        // Mostly far behind, sometimes above the request itself.
        let acked_below = highest.saturating_sub(u64::from(*acked_below));
        Request::of(RequestId { session: *id, seq, acked_below, ..RequestId::default() }, command)
    }

    fn command(&mut self, machine: &Machine, act: &Act) -> Command {
        match act {
            Act::Create(pick, settings) => {
                Command::CreateQueue(CreateQueue { queue: Some(queue(*pick)), settings: Some(settings.clone()) })
            }
            Act::Update(pick, settings) => {
                Command::UpdateQueue(UpdateQueue { queue: Some(queue(*pick)), settings: Some(settings.clone()) })
            }
            Act::Delete(pick) => Command::DeleteQueue(DeleteQueue { queue: Some(queue(*pick)) }),
            Act::Purge(pick) => Command::PurgeQueue(PurgeQueue { queue: Some(queue(*pick)) }),
            Act::Pause(pick, until) => Command::PauseQueue(PauseQueue {
                queue: Some(queue(*pick)),
                pause: Some(Pause {
                    reason: "stocktaking".into(),
                    author: "ann".into(),
                    until_ms: until.map_or(0, |ms| machine.stamp + ms),
                }),
            }),
            Act::Resume(pick) => Command::PauseQueue(PauseQueue { queue: Some(queue(*pick)), pause: None }),
            Act::Close(pick, closed) => Command::CloseQueue(CloseQueue { queue: Some(queue(*pick)), closed: *closed }),
            Act::Commit { messages, settlings, cancels, reschedules, auto_create, atomic } => {
                let queues: Vec<QueueRef> = (0..QUEUES.len() as u8).map(queue).collect();
                Command::Commit(Commit {
                    queues,
                    enqueue: messages.iter().map(|message| self.enqueue(machine, message)).collect(),
                    settle: settlings.iter().filter_map(|settling| self.settle(machine, settling)).collect(),
                    cancel: cancels.iter().filter_map(|aim| self.target(machine, *aim)).collect(),
                    reschedule: reschedules.iter().filter_map(|new| self.reschedule(machine, new)).collect(),
                    atomic: *atomic,
                    auto_create: *auto_create,
                })
            }
            Act::Receive { queues, max, max_bytes, lease_ms, worker, auto_ack } => Command::Receive(Receive {
                queues: queues.iter().map(|pick| queue(*pick)).collect(),
                max: *max,
                max_bytes: *max_bytes,
                lease_ms: *lease_ms,
                worker: format!("w{worker}"),
                auto_ack: *auto_ack,
            }),
            Act::SetNamespace(pick, settings, auto_create) => Command::SetNamespace(SetNamespace {
                namespace: queue(*pick).namespace,
                defaults: Some(settings.clone()),
                auto_create: *auto_create,
            }),
            Act::DeleteNamespace(pick) => {
                Command::DeleteNamespace(DeleteNamespace { namespace: queue(*pick).namespace })
            }
            Act::Expire { others } => Command::Expire(self.expire(machine, *others)),
            Act::Tick => Command::Tick(Tick {}),
            Act::OpenSession => Command::OpenSession(OpenSession { renew: 0 }),
            Act::RenewSession(pick) => {
                let index = *pick as usize % self.sessions.len().max(1);
                let renew = self.sessions.get(index).map_or(12_345, |(id, _)| *id);
                Command::OpenSession(OpenSession { renew })
            }
            Act::Init => Command::InitCluster(ticketrail_core::command::InitCluster { secret: vec![9; 32].into() }),
            Act::Request { act, .. } | Act::Token { act, .. } => self.command(machine, act),
        }
    }

    fn enqueue(&mut self, machine: &Machine, message: &NewMessage) -> Enqueue {
        self.bodies += 1;
        let mut body = format!("m{}", self.bodies).into_bytes();
        body.resize(body.len().max(message.size), b'.');
        let mut tags = BTreeMap::new();
        if message.tagged {
            tags.insert("shop".to_owned(), "9".to_owned());
        }
        let beside = |ms: Option<i64>| ms.map_or(0, |ms| machine.stamp.saturating_add_signed(ms));
        let named = |kind: &str, number: u8| if number == 0 { String::new() } else { format!("{kind}{number}") };
        Enqueue {
            queue: u32::from(message.queue) % QUEUES.len() as u32,
            message: Some(Content { body: body.into(), tags, ..Content::default() }),
            delay_ms: message.delay_ms,
            deliver_at_ms: beside(message.deliver_in_ms),
            group: named("g", message.group),
            priority: message.priority,
            dedup_id: named("d", message.dedup),
            ttl_ms: message.ttl_ms,
            expires_at_ms: beside(message.expires_in_ms),
            retry: message.retry,
            dead_letter_queue: message.grave.into(),
        }
    }

    /// A target; none where there is no such message.
    fn target(&self, machine: &Machine, aim: Aim) -> Option<Target> {
        let by_id = |id: MessageId| Target { id: Some(PlaceRecord::from(id.origin)), ..Target::default() };
        Some(match aim {
            Aim::Here(pick) => {
                let ids: Vec<MessageId> =
                    machine.model.queues.iter().flat_map(|queue| &queue.messages).map(|message| message.id).collect();
                by_id(*ids.get(pick as usize % ids.len().max(1))?)
            }
            Aim::Any(pick) => by_id(*self.messages.get(pick as usize % self.messages.len().max(1))?),
            Aim::Dedup(pick, number) => Target { id: None, queue: Some(queue(pick)), dedup_id: format!("d{number}") },
            Aim::Nonsense(pick) => {
                let lane = u32::from(pick % 10) + if pick % 2 == 0 { 16 } else { 0 };
                let id = PlaceRecord { queue: u64::from(pick) % 5, lane, sequence: u64::from(pick) / 5 };
                Target { id: Some(id), ..Target::default() }
            }
        })
    }

    fn reschedule(&self, machine: &Machine, new: &NewTime) -> Option<Reschedule> {
        Some(Reschedule {
            target: Some(self.target(machine, new.aim)?),
            delay_ms: new.delay_ms,
            deliver_at_ms: new.deliver_in_ms.map_or(0, |ms| machine.stamp.saturating_add_signed(ms)),
        })
    }

    /// A settlement; none where there is no such lease.
    fn settle(&self, machine: &Machine, settling: &Settling) -> Option<Settle> {
        let live = |pick: u8| {
            let mut tokens: Vec<&Bytes> = Vec::new();
            for queue in &machine.model.queues {
                for message in &queue.messages {
                    if let State::Leased(lease) = &message.state {
                        tokens.extend(&lease.token);
                    }
                }
            }
            tokens.get(pick as usize % tokens.len().max(1)).map(|token| (*token).clone())
        };
        let token = match settling.which {
            Which::Live(pick) => live(pick)?,
            Which::Any(pick) => self.tokens.get(pick as usize % self.tokens.len().max(1))?.clone(),
            Which::Forged(pick) => {
                let mut token = live(pick)?.to_vec();
                if let Some(last) = token.last_mut() {
                    *last ^= 1;
                }
                token.into()
            }
            Which::Nonsense(pick) => ticketrail_core::LeaseToken {
                group: ticketrail_core::GroupId::QUEUES,
                queue: ticketrail_core::QueueId(u64::from(pick) % 5),
                sequence: u64::from(pick) / 5,
                hash: [pick; 16],
            }
            .to_bytes()
            .into(),
            Which::Malformed(length) => vec![1; length as usize % 37].into(),
        };
        Some(Settle { token, verdict: Some(settling.verdict.clone()) })
    }

    fn expire(&self, machine: &Machine, others: u8) -> Expire {
        let mut leases = Vec::new();
        let now = machine.model.clock.lease;
        for (n, lease) in machine.model.leases().into_iter().enumerate() {
            // Those that ran out, and by the bits of `others` some that did not, or under an older grant.
            let over = lease.deadline.0 <= now;
            let picked = others >> (n % 8) & 1 == 1;
            if over || picked {
                let older = others % 8 == 7;
                let granted_index = if older { lease.granted_index.saturating_sub(1) } else { lease.granted_index };
                leases.push(ExpiredLease { queue: lease.queue.0, sequence: lease.sequence, granted_index });
            }
        }
        if others & 1 == 1 {
            leases.push(ExpiredLease { queue: u64::from(others), sequence: 1, granted_index: 1 });
        }
        leases.truncate(1_000);
        Expire { leases }
    }
}

/// Moves the stamp and the term as the scene says.
pub(crate) fn turn_clock(machine: &mut Machine, clock: &ClockMove) {
    let (cluster, lease) = (machine.model.clock.cluster, machine.model.clock.lease);
    let beside = |at: u64, ms: i64| at.saturating_add_signed(ms);
    match clock {
        ClockMove::By(ms) => machine.stamp = cluster + ms,
        ClockMove::Back(ms) => machine.stamp = cluster.saturating_sub(*ms),
        ClockMove::ToDue(ms) => {
            machine.stamp = beside(machine.model.next_due().unwrap_or(cluster), *ms).min(cluster + 400 * 86_400_000)
        }
        ClockMove::ToDeadline(ms) => {
            let deadline = machine.model.leases().iter().map(|lease| lease.deadline.0).min().unwrap_or(lease);
            machine.stamp = beside(cluster + deadline.saturating_sub(lease), *ms);
        }
        ClockMove::NewTerm(ms) => {
            machine.term += 1;
            machine.stamp = cluster + ms;
        }
    }
}
