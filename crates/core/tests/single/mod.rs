//! Laws of single situations, which no random story would meet often enough.

use ticketrail_core::command::{Command, Commit, Tick};
use ticketrail_core::{Effect, Rejection, Request};

use crate::harness::{Machine, equal, init};
use crate::story::{Act, Memory};
use crate::{applied, clock, clock_keys, model, story, tick_until_quiet, told, without};

/// An entry without requests moves the clocks and nothing else.
#[test]
fn an_empty_entry_moves_the_clocks_alone() -> Result<(), String> {
    let (machine, _) = told(&[])?;
    let keys = clock_keys(&machine.view, machine.next(), machine.stamp + 5)?;
    let (_, after) = applied(&machine.view, machine.next(), machine.stamp + 5, Vec::new())?;
    equal("other keys", &without(&machine.view, &keys), &without(&after, &keys))?;
    equal("cluster time", &(machine.stamp + 5), &clock(&after)?.cluster.0)
}

/// Before the cluster has its secret nothing is accepted but the secret; the first one counts.
#[test]
fn nothing_happens_before_the_secret() -> Result<(), String> {
    let mut machine = Machine::bare();
    let mut memory = Memory::default();
    for act in [
        Act::OpenSession,
        Act::Delete(0),
        Act::Commit {
            messages: Vec::new(),
            settlings: Vec::new(),
            cancels: Vec::new(),
            reschedules: Vec::new(),
            auto_create: true,
            atomic: true,
        },
        Act::Purge(1),
    ] {
        let request = memory.request(&machine, &act);
        machine.propose(vec![request])?;
    }
    machine.propose(vec![Request::anonymous(Command::Tick(Tick {}))])?;
    machine.propose(vec![init(1), init(2)])?;
    machine.propose(vec![init(3)]).map(|_| ())
}

pub(crate) fn enqueues(queue: &str, count: usize, delay_ms: u64) -> Request {
    use ticketrail_core::command::{Content, Enqueue, QueueRef};
    let message = Some(Content { body: bytes::Bytes::from_static(b"x"), ..Content::default() });
    let enqueue = Enqueue { message, delay_ms, ..Enqueue::default() };
    Request::anonymous(Command::Commit(Commit {
        queues: vec![QueueRef { namespace: "default".into(), name: queue.into() }],
        enqueue: vec![enqueue; count],
        auto_create: true,
        ..Commit::default()
    }))
}

fn receives(queue: &str, max: u32) -> Request {
    use ticketrail_core::command::{QueueRef, Receive};
    let queues = vec![QueueRef { namespace: "default".into(), name: queue.into() }];
    Request::anonymous(Command::Receive(Receive { queues, max, ..Receive::default() }))
}

/// The jitter fills its range: the n-th failure waits anything between nothing and the ceiling, evenly.
#[test]
fn backoff_is_spread_over_its_whole_range() -> Result<(), String> {
    use ticketrail_core::command::{Expire, ExpiredLease, Retry, Settle, Verdict};
    const MESSAGES: u32 = 500;
    let mut machine = Machine::new()?;
    machine.propose(vec![enqueues("orders", MESSAGES as usize, 0)])?;
    // Failures 1 and 2 by the worker, 3 and 4 by expiry: the first in a row is ready at once.
    for (failure, ceiling_ms) in [(1, 2_000), (2, 4_000), (3, 0), (4, 16_000)] {
        let (_, deliveries) = machine.propose_seen(vec![receives("orders", MESSAGES)])?;
        equal("deliveries", &(MESSAGES as usize), &deliveries.len())?;
        if failure <= 2 {
            let settle = deliveries
                .into_iter()
                .map(|delivery| Settle { token: delivery.token, verdict: Some(Verdict::Retry(Retry::default())) })
                .collect();
            machine.propose(vec![Request::anonymous(Command::Commit(Commit { settle, ..Commit::default() }))])?;
        } else {
            for _ in 0..6 {
                machine.stamp += 10_000;
                machine.propose(vec![Request::anonymous(Command::Tick(Tick {}))])?;
            }
            let run_out = |lease: ticketrail_core::query::LeaseInfo| ExpiredLease {
                queue: lease.queue.0,
                sequence: lease.sequence,
                granted_index: lease.granted_index,
            };
            let leases = machine.model.leases().into_iter().map(run_out).collect();
            machine.propose(vec![Request::anonymous(Command::Expire(Expire { leases }))])?;
        }
        let now = machine.model.clock.cluster;
        let waits: Vec<u64> = machine.model.queues[0]
            .messages
            .iter()
            .map(|message| match message.state {
                model::State::Delayed(model::Due::At(due)) => due - now,
                model::State::Delayed(model::Due::Between { .. })
                | model::State::Ready(_)
                | model::State::Blocked { .. }
                | model::State::Leased(_) => 0,
            })
            .collect();
        // A hundred each in fifths of the range, give or take a third.
        for fifth in 0..5 {
            let (low, high) = (ceiling_ms * fifth / 5, ceiling_ms * (fifth + 1) / 5);
            let within = waits.iter().filter(|wait| (low..=high).contains(*wait)).count();
            if ceiling_ms > 0 && !(67..=133).contains(&within) {
                return Err(format!("after failure {failure}, {within} of {MESSAGES} wait {low} to {high} ms"));
            }
        }
        if ceiling_ms == 0 && waits.iter().any(|wait| *wait > 0) {
            return Err("a first expiry waits".into());
        }
        machine.term += 1;
        machine.stamp = now + 60_000;
        tick_until_quiet(&mut machine)?;
    }
    Ok(())
}

/// A burst is worked off in bounded ticks that follow each other; none is forgotten, none is early.
#[test]
fn a_burst_of_timers_is_worked_off_in_bounded_ticks() -> Result<(), String> {
    let mut machine = Machine::new()?;
    for _ in 0..2 {
        machine.propose(vec![enqueues("orders", 1_000, 5_000)])?;
    }
    machine.propose(vec![enqueues("orders", 500, 5_001)])?;
    machine.stamp += 5_000;
    machine.propose(vec![Request::anonymous(Command::Tick(Tick {}))])?;
    let after_one = machine.model.queues[0].stats();
    equal("after one tick", &(1_000, 1_500), &(after_one.ready, after_one.delayed))?;
    if !machine.effects.contains(&Effect::TickAgain) {
        return Err("a tick that left work did not say so".into());
    }
    tick_until_quiet(&mut machine)?;
    let quiet = machine.model.queues[0].stats();
    equal("when it is quiet", &(2_000, 500), &(quiet.ready, quiet.delayed))?;
    machine.stamp += 1;
    tick_until_quiet(&mut machine)?;
    equal("at last", &2_500, &machine.model.queues[0].stats().ready)?;
    // A receive gives a thousand at a time, in order.
    for _ in 0..3 {
        machine.propose(vec![receives("orders", 1_000)])?;
    }
    equal("received", &2_500, &machine.model.queues[0].stats().leased)
}

/// A purge and a delete answer at once, whatever the queue holds; ticks delete the keys later, all of them.
#[test]
fn purged_and_deleted_queues_leave_no_key_behind() -> Result<(), String> {
    use ticketrail_core::command::{DeleteQueue, PurgeQueue};
    let mut machine = Machine::new()?;
    machine.propose(vec![enqueues("mail", 1, 0)])?;
    tick_until_quiet(&mut machine)?;
    let keys_of =
        |machine: &Machine| -> Vec<bytes::Bytes> { machine.view.iter().map(|(key, _)| key.clone()).collect() };
    let before = keys_of(&machine);
    let orders = Some(story::queue(0));
    for delete in [false, true] {
        for _ in 0..2 {
            machine.propose(vec![enqueues("orders", 1_000, 0), enqueues("orders", 200, 3_600_000)])?;
        }
        machine.propose(vec![receives("orders", 300)])?;
        if delete {
            machine.propose(vec![Request::anonymous(Command::DeleteQueue(DeleteQueue { queue: orders.clone() }))])?;
        } else {
            machine.propose(vec![Request::anonymous(Command::PurgeQueue(PurgeQueue { queue: orders.clone() }))])?;
        }
        tick_until_quiet(&mut machine)?;
        machine.compare_pages(500)?;
    }
    // The timers of the delayed ones are far off, but their messages are gone: nothing of them may be left in the end.
    machine.term += 1;
    machine.stamp = machine.model.clock.cluster + 2 * 3_600_000;
    tick_until_quiet(&mut machine)?;
    equal("keys", &before, &keys_of(&machine))
}

/// An entry has a limit: the request that would pass it is refused without a trace and may come in the next entry; one
/// that fits no entry is refused for good.
#[test]
fn an_entry_that_is_full_refuses_without_a_trace() -> Result<(), String> {
    use ticketrail_core::command::{Content, Enqueue};
    let machine = Machine::new()?;
    let large = |count: usize, size: usize| {
        let message = Some(Content { body: vec![b'x'; size].into(), ..Content::default() });
        let enqueue = vec![Enqueue { message, ..Enqueue::default() }; count];
        let queues = vec![story::queue(0)];
        Request::anonymous(Command::Commit(Commit { queues, enqueue, auto_create: true, ..Commit::default() }))
    };
    let (at, stamp) = (machine.next(), machine.stamp + 1);
    let fitting = large(5, 1 << 20);
    let (both, after_both) = applied(&machine.view, at, stamp, vec![fitting.clone(), fitting.clone()])?;
    let (one, after_one) = applied(&machine.view, at, stamp, vec![fitting])?;
    if !matches!(both.replies.as_slice(), [Ok(_), Err(Rejection::EntryFull(_))]) {
        return Err("expected the second request to find the entry full".into());
    }
    equal("replies", &both.replies[0], &one.replies[0])?;
    if after_both != after_one {
        return Err("a request that found the entry full left a trace".into());
    }
    let (alone, after_alone) = applied(&machine.view, at, stamp, vec![large(9, 1 << 20)])?;
    if !matches!(alone.replies.as_slice(), [Err(Rejection::Invalid(_))]) {
        return Err(format!("expected a refusal for good, but got {} replies", alone.replies.len()));
    }
    let (_, after_nothing) = applied(&machine.view, at, stamp, Vec::new())?;
    if after_alone == after_nothing { Ok(()) } else { Err("a request that fits no entry left a trace".into()) }
}
