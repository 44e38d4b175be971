//! Random stories: what may happen to a machine, as data that proptest can shrink.

use std::collections::BTreeMap;

use bytes::Bytes;
use proptest::prelude::*;
use ticketrail_core::command::{
    Ack, CloseQueue, Command, Commit, Content, CreateQueue, DeleteQueue, Enqueue, Expire, ExpiredLease, Extend,
    Failure, OpenSession, Pause, PauseQueue, PurgeQueue, QueueRef, QueueSettings, Receive, Release, Retry, Settle,
    Tick, UpdateQueue, Verdict,
};
use ticketrail_core::{Request, RequestId};

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
        auto_create: bool,
        atomic: bool,
    },
    Receive {
        queue: u8,
        max: u32,
        max_bytes: u64,
        lease_ms: u64,
        worker: u8,
    },
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
}

impl Act {
    /// Whether it leaves a queue's keys to be swept.
    pub(crate) fn sweeps(&self) -> bool {
        match self {
            Act::Delete(_) | Act::Purge(_) => true,
            Act::Request { act, .. } => act.sweeps(),
            Act::Create(..)
            | Act::Update(..)
            | Act::Pause(..)
            | Act::Resume(_)
            | Act::Close(..)
            | Act::Commit { .. }
            | Act::Receive { .. }
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
            Act::Commit { messages, settlings, auto_create, atomic } => {
                let queues: Vec<QueueRef> = (0..QUEUES.len() as u8).map(queue).collect();
                Command::Commit(Commit {
                    queues,
                    enqueue: messages.iter().map(|message| self.enqueue(machine, message)).collect(),
                    settle: settlings.iter().filter_map(|settling| self.settle(machine, settling)).collect(),
                    atomic: *atomic,
                    auto_create: *auto_create,
                })
            }
            Act::Receive { queue: pick, max, max_bytes, lease_ms, worker } => Command::Receive(Receive {
                queues: vec![queue(*pick)],
                max: *max,
                max_bytes: *max_bytes,
                lease_ms: *lease_ms,
                worker: format!("w{worker}"),
            }),
            Act::Expire { others } => Command::Expire(self.expire(machine, *others)),
            Act::Tick => Command::Tick(Tick {}),
            Act::OpenSession => Command::OpenSession(OpenSession { renew: 0 }),
            Act::RenewSession(pick) => {
                let index = *pick as usize % self.sessions.len().max(1);
                let renew = self.sessions.get(index).map_or(12_345, |(id, _)| *id);
                Command::OpenSession(OpenSession { renew })
            }
            Act::Init => Command::InitCluster(ticketrail_core::command::InitCluster { secret: vec![9; 32].into() }),
            Act::Request { act, .. } => self.command(machine, act),
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
        let deliver_at_ms = message.deliver_in_ms.map_or(0, |ms| machine.stamp.saturating_add_signed(ms));
        Enqueue {
            queue: u32::from(message.queue) % QUEUES.len() as u32,
            message: Some(Content { body: body.into(), tags, ..Content::default() }),
            delay_ms: message.delay_ms,
            deliver_at_ms,
        }
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

fn settings() -> impl Strategy<Value = QueueSettings> {
    let small = (
        proptest::option::weighted(0.5, 0u64..6),
        proptest::option::weighted(0.3, 0u64..400),
        proptest::option::weighted(0.4, prop_oneof![Just(1_000u64), 1_000u64..30_000]),
        proptest::option::weighted(0.6, 0u32..4),
    );
    let slow = (
        proptest::option::weighted(0.4, prop_oneof![Just(1_000u64), 1_000u64..100_000]),
        proptest::option::weighted(0.3, prop_oneof![Just(1u64), 1u64..5_000]),
        proptest::option::weighted(0.3, 5_000u64..50_000),
        proptest::option::weighted(
            0.3,
            prop_oneof![Just(String::new()), Just("graves".into()), Just("mail".into()), Just("a b".into())],
        ),
    );
    (small, slow, 0u8..40).prop_map(
        |((max_depth, max_bytes, lease_ms, max_attempts), (window, base, cap, target), odd)| {
            let mut settings = QueueSettings {
                max_depth,
                max_bytes,
                lease_ms,
                max_attempts,
                failure_window_ms: window,
                backoff_base_ms: base,
                backoff_cap_ms: cap,
                dead_letter_queue: target,
            };
            match odd {
                0 => settings.lease_ms = Some(999),
                1 => settings.lease_ms = Some(43_200_001),
                2 => settings.max_attempts = Some(101),
                3 => settings.failure_window_ms = Some(999),
                4 => settings.backoff_base_ms = Some(0),
                5 => settings.backoff_cap_ms = Some(86_400_001),
                _ => {}
            }
            settings
        },
    )
}

fn message() -> impl Strategy<Value = NewMessage> {
    let delay =
        prop_oneof![12 => Just(0u64), 6 => 1u64..20_000, 1 => Just(366 * 86_400_000 + 1), 1 => Just(3_600_000u64)];
    let deliver = prop_oneof![
        16 => Just(None),
        3 => (-5_000i64..20_000).prop_map(Some),
        1 => Just(Some(400 * 86_400_000)),
    ];
    let size = prop_oneof![8 => 0usize..60, 1 => Just(4_097usize), 1 => 4_000usize..9_000];
    (pick(), size, delay, deliver, any::<bool>()).prop_map(|(queue, size, delay_ms, deliver_in_ms, tagged)| {
        NewMessage { queue, size, delay_ms, deliver_in_ms, tagged }
    })
}

fn verdict() -> impl Strategy<Value = Verdict> {
    let failure = (0u8..3, 0usize..20).prop_map(|(code, text)| Failure {
        code: ["", "timeout", "declined"][code as usize].into(),
        text: "x".repeat(text),
    });
    prop_oneof![
        3 => Just(Verdict::Ack(Ack {})),
        4 => (proptest::option::weighted(0.5, failure.clone()), proptest::option::weighted(0.3, prop_oneof![Just(0u64), 1u64..20_000, Just(400 * 86_400_000)]))
            .prop_map(|(failure, delay_ms)| Verdict::Retry(Retry { failure, delay_ms })),
        2 => failure.prop_map(Verdict::Reject),
        2 => Just(Verdict::Release(Release {})),
        2 => prop_oneof![Just(0u64), Just(1_000u64), 1_000u64..60_000, Just(12 * 3_600_000), Just(500u64)]
            .prop_map(|lease_ms| Verdict::Extend(Extend { lease_ms })),
    ]
}

fn settling() -> impl Strategy<Value = Settling> {
    let which = prop_oneof![
        12 => any::<u8>().prop_map(Which::Live),
        3 => any::<u16>().prop_map(Which::Any),
        1 => any::<u8>().prop_map(Which::Forged),
        1 => any::<u8>().prop_map(Which::Nonsense),
        1 => any::<u8>().prop_map(Which::Malformed),
    ];
    (which, verdict()).prop_map(|(which, verdict)| Settling { which, verdict })
}

/// Mostly `orders` and its dead letters.
fn pick() -> impl Strategy<Value = u8> {
    prop_oneof![6 => Just(0u8), 3 => Just(1u8), 2 => 2u8..6]
}

/// Enqueues and settlements together.
pub(crate) fn commit() -> impl Strategy<Value = Act> {
    let messages = proptest::collection::vec(message(), 0..5);
    let settlings = proptest::collection::vec(settling(), 0..3);
    (messages, settlings, proptest::bool::weighted(0.9), any::<bool>())
        .prop_map(|(messages, settlings, auto_create, atomic)| Act::Commit { messages, settlings, auto_create, atomic })
}

/// A request that is no wrapper.
pub(crate) fn plain_act() -> impl Strategy<Value = Act> {
    prop_oneof![
        2 => (pick(), settings()).prop_map(|(queue, settings)| Act::Create(queue, settings)),
        4 => (pick(), settings()).prop_map(|(queue, settings)| Act::Update(queue, settings)),
        1 => pick().prop_map(Act::Delete),
        1 => pick().prop_map(Act::Purge),
        1 => (pick(), proptest::option::of(0u64..20_000)).prop_map(|(queue, until)| Act::Pause(queue, until)),
        4 => pick().prop_map(Act::Resume),
        2 => (pick(), proptest::bool::weighted(0.2)).prop_map(|(queue, closed)| Act::Close(queue, closed)),
        16 => commit(),
        24 => (proptest::collection::vec(settling(), 1..5), proptest::bool::weighted(0.2)).prop_map(
            |(settlings, atomic)| Act::Commit { messages: Vec::new(), settlings, auto_create: false, atomic }
        ),
        30 => (
            pick(),
            prop_oneof![30 => 1u32..6, 1 => Just(0u32), 2 => Just(1_000u32), 1 => Just(1_001u32)],
            prop_oneof![4 => Just(0u64), 1 => 1u64..200],
            prop_oneof![12 => Just(0u64), 10 => 1_000u64..20_000, 1 => Just(999u64)],
            0u8..3,
        ).prop_map(|(queue, max, max_bytes, lease_ms, worker)| Act::Receive { queue, max, max_bytes, lease_ms, worker }),
        8 => any::<u8>().prop_map(|others| Act::Expire { others }),
        1 => Just(Act::OpenSession),
        1 => any::<u8>().prop_map(Act::RenewSession),
    ]
}

fn act() -> impl Strategy<Value = Act> {
    let seq = prop_oneof![
        5 => (0u8..3).prop_map(Seq::Next),
        5 => any::<u8>().prop_map(Seq::Repeat),
        1 => any::<u8>().prop_map(Seq::Reuse),
        1 => Just(Seq::Zero),
    ];
    prop_oneof![
        30 => plain_act(),
        12 => (any::<u8>(), seq, prop_oneof![4 => 4u8..20, 1 => 0u8..4], plain_act())
            .prop_map(|(session, seq, acked_below, act)| Act::Request { session, seq, acked_below, act: Box::new(act) }),
        1 => Just(Act::Init),
    ]
}

fn clock_move() -> impl Strategy<Value = ClockMove> {
    prop_oneof![
        6 => (0u64..2_000).prop_map(ClockMove::By),
        2 => (0u64..15_000).prop_map(ClockMove::By),
        1 => Just(ClockMove::By(3_600_000)),
        1 => (0u64..100_000).prop_map(ClockMove::Back),
        3 => (-1i64..2).prop_map(ClockMove::ToDue),
        3 => (-1i64..2).prop_map(ClockMove::ToDeadline),
        1 => prop_oneof![Just(0u64), 0u64..100_000, Just(600_000u64)].prop_map(ClockMove::NewTerm),
    ]
}

/// Timers fire in entries of their own, as do batches; so does an expiry, whose jitter is heard only after its entry.
pub(crate) fn scene() -> impl Strategy<Value = Scene> {
    let acts = proptest::collection::vec(act(), 1..6);
    prop_oneof![
        1 => clock_move().prop_map(|clock| Scene { clock, acts: vec![Act::Tick] }),
        4 => (-1i64..2).prop_map(|ms| Scene { clock: ClockMove::ToDue(ms), acts: vec![Act::Tick] }),
        4 => ((-1i64..2), any::<u8>())
            .prop_map(|(ms, others)| Scene { clock: ClockMove::ToDeadline(ms), acts: vec![Act::Expire { others }] }),
        14 => (clock_move(), acts).prop_map(|(clock, acts)| Scene { clock, acts }),
    ]
}

/// A whole story.
pub(crate) fn story(scenes: usize) -> impl Strategy<Value = Vec<Scene>> {
    proptest::collection::vec(scene(), 1..scenes).prop_map(|mut scenes| {
        let acts = vec![Act::OpenSession, Act::Create(0, QueueSettings::default())];
        scenes.insert(0, Scene { clock: ClockMove::By(0), acts });
        scenes
    })
}
