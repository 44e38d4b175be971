//! The laws of the machine, over random stories: the naive model explains every reply and every figure after every
//! entry, the log replayed gives the same state, a batch is its requests one by one, a refusal leaves no trace, and no
//! message stays overdue. `TICKETRAIL_CASES` raises the number of stories.

mod graveyard;
mod harness;
mod lines;
mod met;
mod model;
mod single;
mod story;

use std::collections::BTreeMap;

use harness::{Machine, Replies, conserved, equal};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, FileFailurePersistence};
use single::enqueues;
use story::{Act, Memory, Scene, commit, plain_act, scene, story, turn_clock};
use ticketrail_core::command::{Command, Commit, Target, Tick};
use ticketrail_core::query::{Clock, Delivery, MessageState};
use ticketrail_core::reply::{
    Answered, CancelOutcome, Committed, EnqueueOutcome, Part, PartRefused, RescheduleOutcome, SessionOpened,
    SettleOutcome,
};
use ticketrail_core::{
    Answer, Effect, Entry, LeaseToken, LogPosition, MemView, Outcome, Query, Rejection, Reply, Request, Timestamp,
    Write, WriteSet, answer, apply, next_due,
};

fn cases(usual: u32) -> Config {
    let raised = std::env::var("TICKETRAIL_CASES").ok().and_then(|text| text.parse().ok());
    Config {
        cases: raised.unwrap_or(usual),
        max_shrink_iters: 20_000,
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct("proptest-regressions/laws.txt"))),
        ..Config::default()
    }
}

/// Plays one scene; every comparison of the harness is made.
fn play(machine: &mut Machine, memory: &mut Memory, scene: &Scene) -> Result<(Replies, Vec<Delivery>), String> {
    turn_clock(machine, &scene.clock);
    let mut requests: Vec<Request> = scene.acts.iter().map(|act| memory.request(machine, act)).collect();
    // The jitter of an expiry is heard only after its entry, so nothing in the entry may depend on it.
    requests.sort_by_key(|request| matches!(request.command, Some(Command::Expire(_))));
    let (replies, deliveries) = machine.propose_seen(requests)?;
    memory.tokens.extend(deliveries.iter().map(|delivery| delivery.token.clone()));
    for reply in replies.iter().flatten() {
        if let (false, Some(Answered::SessionOpened(SessionOpened { session }))) = (reply.replayed, &reply.answered)
            && !memory.sessions.iter().any(|(known, _)| known == session)
        {
            memory.sessions.push((*session, Vec::new()));
        }
        if let Some(Answered::Committed(committed)) = &reply.answered {
            for part in &committed.enqueued {
                if let Some(EnqueueOutcome::Enqueued(enqueued)) = &part.outcome
                    && let Some(id) = enqueued.place.message_id()
                    && !memory.messages.contains(&id)
                {
                    memory.messages.push(id);
                }
            }
        }
    }
    Ok((replies, deliveries))
}

fn told(whole: &[Scene]) -> Result<(Machine, Memory), String> {
    let mut machine = Machine::new()?;
    let mut memory = Memory::default();
    for (number, scene) in whole.iter().enumerate() {
        play(&mut machine, &mut memory, scene).map_err(|error| format!("scene {number}: {error}"))?;
    }
    Ok((machine, memory))
}

proptest! {
    #![proptest_config(cases(800))]

    /// Every reply is explained by the naive model, and so is every figure after every entry; nothing overdue is left;
    /// the log gives the state again.
    #[test]
    fn the_model_explains_every_reply(whole in story(60)) {
        let (mut machine, _) = told(&whole).map_err(TestCaseError::fail)?;
        machine.compare_pages(3).map_err(TestCaseError::fail)?;
        prop_assert!(machine.replay().map_err(TestCaseError::fail)? == machine.view, "replay(log) is not the state");
        finish(&mut machine).map_err(TestCaseError::fail)?;
    }
}

proptest! {
    #![proptest_config(cases(200))]

    /// By what anybody can see: each group is delivered in the order of its line through whatever happens, one at a time,
    /// and nobody who is blocked is delivered.
    #[test]
    fn each_group_is_received_in_line_order(whole in story(50)) {
        let mut machine = Machine::new().map_err(TestCaseError::fail)?;
        let (mut memory, mut lines) = (Memory::default(), lines::Lines::default());
        for scene in &whole {
            let (replies, deliveries) = play(&mut machine, &mut memory, scene).map_err(TestCaseError::fail)?;
            lines.observe(&machine, &replies, &deliveries).map_err(TestCaseError::fail)?;
        }
    }

    /// A snapshot and the entries after it give what the whole log gives.
    #[test]
    fn a_snapshot_and_the_tail_are_the_whole_log(whole in story(40), cut in any::<proptest::sample::Index>()) {
        let (machine, _) = told(&whole).map_err(TestCaseError::fail)?;
        let (head, tail) = machine.log.split_at(cut.index(machine.log.len()));
        let mut view = MemView::new();
        for (at, entry) in head {
            let outcome = apply(&view, *at, entry).map_err(|fault| TestCaseError::fail(fault.to_string()))?;
            view.commit(&outcome.writes);
        }
        // Nothing but its pairs.
        let put = |(key, value): (&bytes::Bytes, &bytes::Bytes)| Write::Put { key: key.clone(), value: value.clone() };
        let snapshot: WriteSet = view.iter().map(put).collect();
        let mut restored = MemView::new();
        restored.commit(&snapshot);
        for (at, entry) in tail {
            let outcome = apply(&restored, *at, entry).map_err(|fault| TestCaseError::fail(fault.to_string()))?;
            restored.commit(&outcome.writes);
        }
        prop_assert!(restored == machine.view, "snapshot + tail is not the whole log");
    }
}

/// Laws over stories that meet nothing would say nothing: of a hundred and fifty, each of these is met.
#[test]
fn stories_meet_all_that_may_happen() -> Result<(), String> {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut seen = BTreeMap::new();
    for _ in 0..150 {
        let whole = story(60).new_tree(&mut runner).map_err(|reason| reason.to_string())?.current();
        let (mut machine, mut memory) = (Machine::new()?, Memory::default());
        for scene in &whole {
            let (replies, _) = play(&mut machine, &mut memory, scene)?;
            met::count(&machine, &replies, &mut seen);
        }
    }
    match met::ALL.iter().find(|name| seen.get(*name).is_none_or(|times| *times == 0)) {
        Some(missing) => Err(format!("no story met {missing:?}, only {seen:?}")),
        None => Ok(()),
    }
}

/// What happens to a queue between two entries: time, enqueues, messages finished, and whether delivery is paused.
fn workday() -> impl Strategy<Value = Vec<(u64, usize, u32, u8)>> {
    let step = (
        prop_oneof![3 => 0u64..1_500, 2 => 0u64..10_000, 1 => Just(10_000u64)],
        prop_oneof![2 => 0usize..4, 1 => 0usize..30],
        prop_oneof![1 => Just(0u32), 3 => 1u32..12],
        0u8..12,
    );
    proptest::collection::vec(step, 10..80)
}

proptest! {
    #![proptest_config(cases(100))]

    /// The rate is what happened in the last six buckets, and who would wait too long by it is refused.
    #[test]
    fn the_rate_is_what_happened(day in workday(), max_wait in 1_000u64..60_000, expected in 0u64..3_000) {
        use ticketrail_core::command::{Pause, PauseQueue, QueueSettings, Receive, UpdateQueue};
        let mut machine = Machine::new().map_err(TestCaseError::fail)?;
        let queue = Some(story::queue(0));
        machine.propose(vec![enqueues("orders", 1, 0)]).map_err(TestCaseError::fail)?;
        let settings = QueueSettings {
            max_wait_ms: Some(max_wait),
            expected_rate_milli: Some(expected),
            ..QueueSettings::default()
        };
        let update = UpdateQueue { queue: queue.clone(), settings: Some(settings) };
        machine.propose(vec![Request::anonymous(Command::UpdateQueue(update))]).map_err(TestCaseError::fail)?;
        for (time, count, finished, pause) in day {
            machine.stamp += time;
            let mut requests = Vec::new();
            if pause < 2 {
                let pause = (pause == 0).then(Pause::default);
                requests.push(Command::PauseQueue(PauseQueue { queue: queue.clone(), pause }));
            }
            if finished > 0 {
                let queues = vec![story::queue(0)];
                requests.push(Command::Receive(Receive { queues, max: finished, auto_ack: true, ..Receive::default() }));
            }
            let mut requests: Vec<Request> = requests.into_iter().map(Request::anonymous).collect();
            if count > 0 {
                requests.push(enqueues("orders", count, 0));
            }
            machine.propose(requests).map_err(TestCaseError::fail)?;
        }
    }
}

/// Ticks until nothing is due, as the leader does.
fn tick_until_quiet(machine: &mut Machine) -> Result<(), String> {
    for _ in 0..1_000 {
        machine.propose(vec![Request::anonymous(Command::Tick(Tick {}))])?;
        let again = machine.effects.contains(&Effect::TickAgain);
        let due = next_due(&machine.view).map_err(|fault| fault.to_string())?;
        if !again && due.is_none_or(|due| due.0 > machine.model.clock.cluster) {
            return match machine.model.next_due() {
                Some(due) if due <= machine.model.clock.cluster => {
                    Err(format!("nothing is due any more, but a message is, since {due}"))
                }
                Some(_) | None => Ok(()),
            };
        }
    }
    Err("a thousand ticks, and still something is due".into())
}

/// Works everything off, as workers and the leader would: at the end each queue is empty and its books balance.
fn finish(machine: &mut Machine) -> Result<(), String> {
    use ticketrail_core::command::{
        Ack, Expire, ExpiredLease, PauseQueue, QueueSettings, Receive, Settle, UpdateQueue, Verdict,
    };
    let names: Vec<_> = machine.model.queues.iter().map(|queue| queue.name.clone()).collect();
    for name in &names {
        let settings = QueueSettings { max_attempts: Some(0), ..QueueSettings::default() };
        machine.propose(vec![
            Request::anonymous(Command::PauseQueue(PauseQueue { queue: Some(name.clone()), pause: None })),
            Request::anonymous(Command::UpdateQueue(UpdateQueue {
                queue: Some(name.clone()),
                settings: Some(settings),
            })),
        ])?;
    }
    // No delay is longer than an hour and a bit, no lease longer than 12 h: one new term, then leases by their clock.
    machine.term += 1;
    machine.stamp = machine.model.clock.cluster + 2 * 3_600_000;
    tick_until_quiet(machine)?;
    for _ in 0..20_000 {
        let leases = machine.model.leases();
        if leases.is_empty() {
            break;
        }
        let last = leases.iter().map(|lease| lease.deadline.0).max().unwrap_or(0);
        // A lease of 12 h is 4,320 steps of 10 s: let such be acked by its token instead.
        if last.saturating_sub(machine.model.clock.lease) > 200_000 {
            let mut settle = Vec::new();
            for queue in &machine.model.queues {
                for lease in queue.messages.iter().filter_map(|message| message.lease()) {
                    if let Some(token) = &lease.token {
                        settle.push(Settle { token: token.clone(), verdict: Some(Verdict::Ack(Ack::default())) });
                    }
                }
            }
            machine.propose(vec![Request::anonymous(Command::Commit(Commit { settle, ..Commit::default() }))])?;
        } else {
            machine.stamp += 10_000;
        }
        let leases = leases
            .iter()
            .map(|lease| ExpiredLease {
                queue: lease.queue.0,
                sequence: lease.sequence,
                granted_index: lease.granted_index,
            })
            .collect();
        machine.propose(vec![Request::anonymous(Command::Expire(Expire { leases }))])?;
    }
    machine.term += 1;
    machine.stamp = machine.model.clock.cluster + 2 * 86_400_000;
    tick_until_quiet(machine)?;
    // In rounds: an ack here may let a line go on there.
    for _ in 0..100 {
        let names: Vec<_> = machine.model.queues.iter().map(|queue| queue.name.clone()).collect();
        let mut is_done = true;
        for name in names {
            let receive = Receive { queues: vec![name], max: 1_000, ..Receive::default() };
            let (_, deliveries) = machine.propose_seen(vec![Request::anonymous(Command::Receive(receive))])?;
            is_done &= deliveries.is_empty();
            let settle = deliveries
                .into_iter()
                .map(|delivery| Settle { token: delivery.token, verdict: Some(Verdict::Ack(Ack::default())) })
                .collect();
            machine.propose(vec![Request::anonymous(Command::Commit(Commit { settle, ..Commit::default() }))])?;
        }
        if is_done {
            break;
        }
    }
    for queue in &machine.model.queues {
        let stats = queue.stats();
        conserved(&stats)?;
        if stats.depth() != 0 || stats.bytes != 0 || stats.groups_blocked != 0 {
            return Err(format!("{:?} should be worked off, but holds {stats:?}", queue.name));
        }
    }
    Ok(())
}

/// The keys that even an empty entry writes: clocks and digest.
fn clock_keys(view: &MemView, at: LogPosition, stamp: u64) -> Result<Vec<bytes::Bytes>, String> {
    let outcome = apply(view, at, &Entry::new(Timestamp(stamp), Vec::new())).map_err(|fault| fault.to_string())?;
    outcome
        .writes
        .iter()
        .map(|write| match write {
            Write::Put { key, .. } => Ok(key.clone()),
            Write::Delete { .. } | Write::DeleteRange { .. } => Err(format!("an empty entry removes: {write:?}")),
        })
        .collect()
}

fn clock(view: &MemView) -> Result<Clock, String> {
    let Answer::Clock(clock) = answer(view, &Query::Clock).map_err(|fault| fault.to_string())? else {
        return Err("expected the clock".into());
    };
    Ok(clock)
}

fn applied(view: &MemView, at: LogPosition, stamp: u64, requests: Vec<Request>) -> Result<(Outcome, MemView), String> {
    let outcome = apply(view, at, &Entry::new(Timestamp(stamp), requests)).map_err(|fault| fault.to_string())?;
    let mut after = view.clone();
    after.commit(&outcome.writes);
    Ok((outcome, after))
}

/// What the other keys hold.
fn without(view: &MemView, keys: &[bytes::Bytes]) -> Vec<(bytes::Bytes, bytes::Bytes)> {
    view.iter().filter(|(key, _)| !keys.contains(key)).map(|(key, value)| (key.clone(), value.clone())).collect()
}

proptest! {
    #![proptest_config(cases(400))]

    /// A request that is refused leaves no trace: the writes are those of the entry without it, clocks and digest aside.
    #[test]
    fn a_refusal_leaves_no_trace(whole in story(30), acts in proptest::collection::vec(plain_act(), 1..8)) {
        let (machine, mut memory) = told(&whole).map_err(TestCaseError::fail)?;
        let at = machine.next();
        let stamp = machine.model.clock.cluster + 1;
        let mut requests: Vec<Request> = acts.iter().map(|act| memory.request(&machine, act)).collect();
        // The id of a new session is its place in the entry.
        requests.retain(|request| !matches!(request.command, Some(Command::OpenSession(_))));
        let (all, _) = applied(&machine.view, at, stamp, requests.clone()).map_err(TestCaseError::fail)?;
        let mut kept = Vec::new();
        for (request, reply) in requests.into_iter().zip(&all.replies) {
            match reply {
                Ok(_) => kept.push(request),
                Err(Rejection::EntryFull(_)) => return Err(TestCaseError::fail("a small entry is full")),
                Err(_) => {}
            }
        }
        let (without_refused, _) = applied(&machine.view, at, stamp, kept).map_err(TestCaseError::fail)?;
        let answers: Vec<_> = all.replies.iter().flatten().map(|reply| reply.answered.clone()).collect();
        let others: Vec<_> = without_refused.replies.iter().flatten().map(|reply| reply.answered.clone()).collect();
        prop_assert_eq!(answers, others);
        prop_assert_eq!(&all.effects, &without_refused.effects);
        prop_assert_eq!(&all.writes, &without_refused.writes);
    }

    /// An atomic commit is what the same commit of independent parts is, where none of these is refused. Where one is,
    /// it is refused for the first of them and leaves no trace.
    #[test]
    fn an_atomic_commit_happens_whole_or_not_at_all(whole in story(40), commits in proptest::collection::vec(commit(), 1..5)) {
        let (machine, mut memory) = told(&whole).map_err(TestCaseError::fail)?;
        let (at, stamp) = (machine.next(), machine.model.clock.cluster + 1);
        let (nothing, _) = applied(&machine.view, at, stamp, Vec::new()).map_err(TestCaseError::fail)?;
        for act in commits {
            let request = memory.request(&machine, &act);
            let Some(Command::Commit(commit)) = request.command else {
                return Err(TestCaseError::fail("a commit that is none"));
            };
            // The parts of an atomic one must be in one namespace; here they all are in the one that most are in.
            let commit = within_default(&machine, commit);
            let played = |atomic| {
                let commit = Commit { atomic, ..commit.clone() };
                applied(&machine.view, at, stamp, vec![Request::anonymous(Command::Commit(commit))])
            };
            let (apart, _) = played(false).map_err(TestCaseError::fail)?;
            let (together, _) = played(true).map_err(TestCaseError::fail)?;
            let [Ok(Reply { answered: Some(Answered::Committed(committed)), .. })] = apart.replies.as_slice() else {
                return Err(TestCaseError::fail("independent parts have results of their own"));
            };
            let expected = match first_refused(committed) {
                None => apart,
                Some(why) => Outcome { replies: vec![Err(why)], ..nothing.clone() },
            };
            prop_assert_eq!(together, expected);
        }
    }

    /// A batch is its requests one by one, each at the same position and time.
    #[test]
    fn a_batch_is_its_requests_one_by_one(whole in story(30), scenes in proptest::collection::vec(scene(), 1..4)) {
        let (machine, mut memory) = told(&whole).map_err(TestCaseError::fail)?;
        let at = machine.next();
        let stamp = machine.model.clock.cluster + 1;
        let acts: Vec<Act> = scenes.into_iter().flat_map(|scene| scene.acts).collect();
        let mut requests: Vec<Request> = acts.iter().map(|act| memory.request(&machine, act)).collect();
        // The id of a new session is its place in the log.
        requests.retain(|request| !matches!(request.command, Some(Command::OpenSession(_))));
        if requests.is_empty() {
            return Ok(());
        }
        let (batch, batched) = applied(&machine.view, at, stamp, requests.clone()).map_err(TestCaseError::fail)?;
        let mut view = machine.view.clone();
        for (n, request) in requests.into_iter().enumerate() {
            let position = LogPosition { index: at.index + n as u64, ..at };
            let (single, after) = applied(&view, position, stamp, vec![request]).map_err(TestCaseError::fail)?;
            view = after;
            prop_assert_eq!(shape(&batch.replies[n]), shape(&single.replies[0]), "request {}", n);
        }
        equal("clock", &clock(&batched).map_err(TestCaseError::fail)?.cluster, &clock(&view).map_err(TestCaseError::fail)?.cluster)
            .map_err(TestCaseError::fail)?;
        for name in (0..6).map(story::queue) {
            let query = Query::Queue(name.clone());
            prop_assert_eq!(answer(&batched, &query).ok(), answer(&view, &query).ok());
            for state in [MessageState::Ready, MessageState::Delayed, MessageState::Blocked] {
                let (after, filter) = (bytes::Bytes::new(), Default::default());
                let query = Query::Peek { queue: name.clone(), state, after, limit: 1_000, filter };
                prop_assert_eq!(answer(&batched, &query).ok(), answer(&view, &query).ok());
            }
        }
    }
}

/// The commit without what is in another namespace than `default`.
fn within_default(machine: &Machine, mut commit: Commit) -> Commit {
    let foreign: Vec<u64> = machine
        .model
        .queues
        .iter()
        .filter(|queue| queue.name.namespace != "default")
        .filter_map(|queue| queue.id)
        .collect();
    commit
        .settle
        .retain(|settle| LeaseToken::from_bytes(&settle.token).map_or(true, |token| !foreign.contains(&token.queue.0)));
    let at_home = |target: &Target| match (&target.id, &target.queue) {
        (Some(id), _) => !machine.model.queues.iter().any(|queue| {
            let is_foreign = queue.name.namespace != "default";
            is_foreign && queue.messages.iter().any(|message| id.message_id() == Some(message.id))
        }),
        (None, Some(queue)) => queue.namespace == "default",
        (None, None) => true,
    };
    commit.cancel.retain(at_home);
    commit.reschedule.retain(|reschedule| reschedule.target.as_ref().is_none_or(at_home));
    let namespaces: Vec<String> = commit.queues.iter().map(|queue| queue.namespace.clone()).collect();
    commit.enqueue.retain(|enqueue| namespaces.get(enqueue.queue as usize).is_none_or(|name| name == "default"));
    commit
}

/// The refusal of the whole that the first refused part brings: settlements come first, then cancels, reschedules and
/// enqueues.
fn first_refused(committed: &Committed) -> Option<Rejection> {
    let settled = committed.settled.iter().zip(0u32..).filter_map(|(result, number)| match &result.outcome {
        Some(SettleOutcome::Rejected(why)) => Some((Part::Settle(number), why.clone())),
        Some(_) | None => None,
    });
    let enqueued = committed.enqueued.iter().zip(0u32..).filter_map(|(result, number)| match &result.outcome {
        Some(EnqueueOutcome::Rejected(why)) => Some((Part::Enqueue(number), why.clone())),
        Some(EnqueueOutcome::Enqueued(_)) | None => None,
    });
    let cancelled = committed.cancelled.iter().zip(0u32..).filter_map(|(result, number)| match &result.outcome {
        Some(CancelOutcome::Rejected(why)) => Some((Part::Cancel(number), why.clone())),
        Some(CancelOutcome::Cancelled(_) | CancelOutcome::Gone(_)) | None => None,
    });
    let rescheduled = committed.rescheduled.iter().zip(0u32..).filter_map(|(result, number)| match &result.outcome {
        Some(RescheduleOutcome::Rejected(why)) => Some((Part::Reschedule(number), why.clone())),
        Some(RescheduleOutcome::Rescheduled(_)) | None => None,
    });
    let (part, why) = settled.chain(cancelled).chain(rescheduled).chain(enqueued).next()?;
    Some(Rejection::PartRefused(PartRefused { part: Some(part), why: Some(Box::new(why)) }))
}

proptest! {
    #![proptest_config(cases(200))]

    /// No scan of `apply` walks the same dead key again and again: every lane and the timers have a head that only moves
    /// forward. Only the sweep after a purge or a delete walks a queue from its beginning, so there is none here; and what
    /// an atomic commit walked before it was refused counts for nothing, so its parts stand alone here.
    #[test]
    fn a_dead_key_is_walked_at_most_once(mut whole in story(60)) {
        for scene in &mut whole {
            scene.acts.retain(|act| !act.sweeps());
            scene.acts.iter_mut().for_each(Act::stand_alone);
        }
        let (machine, _) = told(&whole).map_err(TestCaseError::fail)?;
        let mut graveyard = graveyard::Graveyard::default();
        for (at, entry) in &machine.log {
            let outcome = apply(&graveyard, *at, entry).map_err(|fault| TestCaseError::fail(fault.to_string()))?;
            graveyard.commit(&outcome);
        }
        prop_assert_eq!(graveyard.walked_more_than(1), None);
    }
}

/// A reply without where it happened.
fn shape(reply: &Result<Reply, Rejection>) -> Result<Option<Answered>, Rejection> {
    let mut reply = reply.clone()?;
    if let Some(Answered::Received(received)) = &mut reply.answered {
        for handle in received.handles.iter_mut().chain(received.taken.iter_mut().map(|taken| &mut taken.handle)) {
            handle.granted_index = 0;
        }
    }
    Ok(reply.answered)
}
