//! The audit: what became of each order, from the producers' and workers' ledgers alone.
//!
//! - *Redelivery*: a delivery with a receive count above 1.
//! - *Duplicate absorbed*: a reply that was an earlier attempt's.
//! - *Charge absorbed*: a redelivery that found its order in the charge ledger.
//! - *Finished twice*: two acks answered OK for one order, two message ids for one order, or a delivery invoked after an
//!   OK ack of that order.
//! - *Lost*: acknowledged to a producer, but neither finished nor dead-lettered.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::dataset::Order;
use super::ledger::{AckOutcome, Charge, ChargeLine, Invocation, ProducerLine, WorkerLine};

/// What the audit reads.
#[derive(Debug, Default)]
pub(crate) struct Evidence {
    /// The orders that were to be sent.
    pub(crate) orders: Vec<Order>,
    /// All producers' ledgers.
    pub(crate) producers: Vec<ProducerLine>,
    /// All workers' ledgers.
    pub(crate) workers: Vec<WorkerLine>,
    /// The charge ledger.
    pub(crate) charges: Vec<ChargeLine>,
    /// The orders found in the dead-letter queue by looking, with their message ids.
    pub(crate) dead_letters: Vec<(String, String)>,
    /// When the server was killed, in nanoseconds of the machine's monotonic clock.
    pub(crate) kills_ns: Vec<u64>,
}

/// What the audit finds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Audit {
    /// Orders acknowledged to a producer.
    pub(crate) acknowledged: usize,
    /// Orders whose ack was answered OK.
    pub(crate) finished: usize,
    /// Orders in the dead-letter queue.
    pub(crate) dead_lettered: usize,
    /// Deliveries with a receive count above 1.
    pub(crate) redeliveries: usize,
    /// Replies that were an earlier attempt's.
    pub(crate) duplicates_absorbed: usize,
    /// Redeliveries that found their order charged.
    pub(crate) charges_absorbed: usize,
    /// Orders finished twice.
    pub(crate) finished_twice: BTreeSet<String>,
    /// Orders lost.
    pub(crate) lost: BTreeSet<String>,
    /// The longest gap between acknowledged enqueues around a kill, in milliseconds.
    pub(crate) longest_write_outage_ms: u64,
    /// Whatever else is not as it must be.
    pub(crate) findings: Vec<String>,
}

impl Audit {
    /// Whether nothing is lost, nothing is finished twice and nothing else is wrong.
    pub(crate) fn is_clean(&self) -> bool {
        self.lost.is_empty() && self.finished_twice.is_empty() && self.findings.is_empty()
    }
}

/// What the ledgers say of one order.
#[derive(Debug, Default)]
struct Story<'a> {
    messages: BTreeSet<&'a str>,
    acknowledged: bool,
    /// When its acks were answered OK.
    acked_ns: Vec<u64>,
    dead_lettered: bool,
    /// When deliveries of it were worked on.
    invoked_ns: BTreeSet<u64>,
    charges: usize,
}

/// Judges the ledgers.
pub(crate) fn audit(evidence: &Evidence) -> Audit {
    let mut stories: BTreeMap<&str, Story> = BTreeMap::new();
    let mut findings = Vec::new();
    let mut duplicates_absorbed = 0;
    for line in &evidence.producers {
        match line {
            ProducerLine::Acknowledged { order, message, replayed, .. } => {
                let story = stories.entry(order).or_default();
                story.acknowledged = true;
                story.messages.insert(message);
                duplicates_absorbed += usize::from(*replayed);
            }
            ProducerLine::Failed { order, error } => {
                findings.push(format!("{order} was not acknowledged: {error}"));
            }
        }
    }
    // A delivery has a line before its ack and one after; a worker that was killed leaves the first alone.
    let mut deliveries: BTreeMap<(&str, u32), &Invocation> = BTreeMap::new();
    for line in &evidence.workers {
        let invocation = match line {
            WorkerLine::ReceiveReplayed { .. } => {
                duplicates_absorbed += 1;
                continue;
            }
            WorkerLine::Invoked(invocation) => invocation,
            WorkerLine::Settled { invocation, outcome, replayed, at_ns } => {
                duplicates_absorbed += usize::from(*replayed);
                let story = stories.entry(&invocation.order).or_default();
                match outcome {
                    AckOutcome::Acked => story.acked_ns.push(*at_ns),
                    AckOutcome::DeadLettered => story.dead_lettered = true,
                    AckOutcome::Again | AckOutcome::LeaseLost | AckOutcome::Unknown => {}
                    AckOutcome::Refused => findings.push(format!("an ack of {} was refused", invocation.order)),
                }
                invocation
            }
        };
        let story = stories.entry(&invocation.order).or_default();
        story.messages.insert(&invocation.message);
        story.invoked_ns.insert(invocation.invoked_ns);
        deliveries.insert((&invocation.message, invocation.receive_count), invocation);
    }
    for charge in &evidence.charges {
        stories.entry(&charge.order).or_default().charges += 1;
    }
    let redelivered = || deliveries.values().filter(|invocation| invocation.receive_count > 1);
    let redeliveries = redelivered().count();
    let charges_absorbed = redelivered().filter(|invocation| invocation.charge == Charge::AlreadyCharged).count();

    let looked_at: BTreeMap<&str, &str> = evidence.dead_letters.iter().map(|(o, m)| (o.as_str(), m.as_str())).collect();
    if looked_at.len() != evidence.dead_letters.len() {
        findings.push("an order is in the dead-letter queue twice".to_owned());
    }
    let wanted: BTreeMap<&str, &Order> = evidence.orders.iter().map(|order| (order.order.as_str(), order)).collect();
    for (name, story) in &stories {
        match wanted.get(name) {
            None => findings.push(format!("{name} is none of the orders sent")),
            Some(order) => findings.extend(wrong_charge(order, story)),
        }
        if let Some(message) = looked_at.get(name)
            && !story.messages.contains(message)
        {
            findings.push(format!("{name} is in the dead-letter queue as {message}, which is not its message"));
        }
    }
    for (name, order) in &wanted {
        match (order.is_free(), looked_at.contains_key(name)) {
            (true, false) => findings.push(format!("{name} has a total of zero, but is not in the dead-letter queue")),
            (false, true) => findings.push(format!("{name} is in the dead-letter queue, but its total is not zero")),
            (true, true) | (false, false) => {}
        }
        if !stories.get(name).is_some_and(|story| story.acknowledged) {
            findings.push(format!("{name} was never acknowledged"));
        }
    }
    findings.extend(
        looked_at.keys().filter(|name| !wanted.contains_key(*name)).map(|name| format!("{name} is no order of ours")),
    );

    let lost = |story: &Story, name: &str| {
        story.acknowledged && story.acked_ns.is_empty() && !(story.dead_lettered || looked_at.contains_key(name))
    };
    Audit {
        acknowledged: stories.values().filter(|story| story.acknowledged).count(),
        finished: stories.values().filter(|story| !story.acked_ns.is_empty()).count(),
        dead_lettered: looked_at.len(),
        redeliveries,
        duplicates_absorbed,
        charges_absorbed,
        finished_twice: named(&stories, |story, _| finished_twice(story)),
        lost: named(&stories, lost),
        longest_write_outage_ms: longest_outage_ns(evidence) / 1_000_000,
        findings,
    }
}

fn named(stories: &BTreeMap<&str, Story>, is: impl Fn(&Story, &str) -> bool) -> BTreeSet<String> {
    stories.iter().filter(|(name, story)| is(story, name)).map(|(name, _)| (*name).to_owned()).collect()
}

fn finished_twice(story: &Story) -> bool {
    let Some(finished_ns) = story.acked_ns.iter().min() else {
        return story.messages.len() > 1;
    };
    story.acked_ns.len() > 1 || story.messages.len() > 1 || story.invoked_ns.iter().any(|at| at > finished_ns)
}

/// An order is charged exactly once if it is finished, never if it is free, and never finished and dead-lettered.
fn wrong_charge(order: &Order, story: &Story) -> Option<String> {
    let name = &order.order;
    let finished = !story.acked_ns.is_empty();
    if story.charges > 1 {
        return Some(format!("{name} was charged {} times", story.charges));
    }
    if finished && story.charges == 0 {
        return Some(format!("{name} is finished, but was never charged"));
    }
    if order.is_free() && (finished || story.charges > 0) {
        return Some(format!("{name} has a total of zero, but was charged or finished"));
    }
    if finished && story.dead_lettered {
        return Some(format!("{name} is finished and dead-lettered"));
    }
    None
}

/// The longest gap between acknowledged enqueues around a kill: from the last before it to the first after it.
fn longest_outage_ns(evidence: &Evidence) -> u64 {
    evidence.kills_ns.iter().filter_map(|kill| outage_ns(&evidence.producers, *kill)).max().unwrap_or(0)
}

/// The gap around one kill; `None` where nothing was acknowledged before or after it.
pub(crate) fn outage_ns(producers: &[ProducerLine], kill_ns: u64) -> Option<u64> {
    let acknowledged = || {
        producers.iter().filter_map(|line| match line {
            ProducerLine::Acknowledged { at_ns, .. } => Some(*at_ns),
            ProducerLine::Failed { .. } => None,
        })
    };
    let before = acknowledged().filter(|at| *at <= kill_ns).max()?;
    let after = acknowledged().filter(|at| *at > kill_ns).min()?;
    Some(after - before)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(name: &str, cents: u64) -> Order {
        Order { order: name.to_owned(), customer: "c".to_owned(), placed_on: "1997-01-01".to_owned(), items: 1, cents }
    }

    fn sent(name: &str, message: &str, at_ns: u64) -> ProducerLine {
        ProducerLine::Acknowledged {
            order: name.to_owned(),
            message: message.to_owned(),
            replayed: false,
            cut: false,
            at_ns,
        }
    }

    fn invocation(name: &str, message: &str, receive_count: u32, charge: Charge, invoked_ns: u64) -> Invocation {
        Invocation { order: name.to_owned(), message: message.to_owned(), receive_count, charge, invoked_ns }
    }

    fn settled(invocation: Invocation, outcome: AckOutcome) -> WorkerLine {
        let at_ns = invocation.invoked_ns + 1;
        WorkerLine::Settled { invocation, outcome, replayed: false, at_ns }
    }

    fn charged(name: &str) -> ChargeLine {
        ChargeLine { order: name.to_owned(), cents: 1, worker: "w".to_owned(), message: "m".to_owned() }
    }

    /// Three orders: `a` finished, `b` finished at its second delivery, `z` free and dead-lettered.
    fn clean() -> Evidence {
        let b1 = invocation("b", "m2", 1, Charge::Charged, 20);
        let b2 = invocation("b", "m2", 2, Charge::AlreadyCharged, 30);
        Evidence {
            orders: vec![order("a", 5), order("b", 7), order("z", 0)],
            producers: vec![sent("a", "m1", 1), sent("b", "m2", 2), sent("z", "m3", 3)],
            workers: vec![
                WorkerLine::Invoked(invocation("a", "m1", 1, Charge::Charged, 10)),
                settled(invocation("a", "m1", 1, Charge::Charged, 10), AckOutcome::Acked),
                WorkerLine::Invoked(b1),
                WorkerLine::Invoked(b2.clone()),
                settled(b2, AckOutcome::Acked),
                settled(invocation("z", "m3", 1, Charge::None, 40), AckOutcome::DeadLettered),
            ],
            charges: vec![charged("a"), charged("b")],
            dead_letters: vec![("z".to_owned(), "m3".to_owned())],
            kills_ns: Vec::new(),
        }
    }

    #[test]
    fn a_clean_run_is_clean() {
        let audit = audit(&clean());
        assert!(audit.is_clean(), "{audit:?}");
        assert_eq!((audit.acknowledged, audit.finished, audit.dead_lettered), (3, 2, 1));
        assert_eq!((audit.redeliveries, audit.charges_absorbed, audit.duplicates_absorbed), (1, 1, 0));
    }

    #[test]
    fn an_order_without_an_end_is_lost() {
        let mut evidence = clean();
        evidence
            .workers
            .retain(|line| !matches!(line, WorkerLine::Settled { invocation, .. } if invocation.order == "b"));
        let audit = audit(&evidence);
        assert_eq!(audit.lost, BTreeSet::from(["b".to_owned()]));
        assert!(!audit.is_clean());
    }

    #[test]
    fn an_unknown_or_lost_ack_is_no_end() {
        for outcome in [AckOutcome::Unknown, AckOutcome::LeaseLost, AckOutcome::Again] {
            let mut evidence = clean();
            for line in &mut evidence.workers {
                if let WorkerLine::Settled { invocation, outcome: found, .. } = line
                    && invocation.order == "a"
                {
                    *found = outcome;
                }
            }
            assert_eq!(audit(&evidence).lost, BTreeSet::from(["a".to_owned()]), "{outcome:?}");
        }
    }

    #[test]
    fn two_acks_of_one_order_are_finished_twice() {
        let mut evidence = clean();
        // Invoked before the first ack was answered: only the second OK gives it away.
        evidence.workers.push(settled(invocation("a", "m1", 2, Charge::AlreadyCharged, 10), AckOutcome::Acked));
        assert_eq!(audit(&evidence).finished_twice, BTreeSet::from(["a".to_owned()]));
    }

    #[test]
    fn two_messages_of_one_order_are_finished_twice() {
        let mut evidence = clean();
        evidence.producers.push(sent("z", "m9", 4));
        assert_eq!(audit(&evidence).finished_twice, BTreeSet::from(["z".to_owned()]));
        let mut evidence = clean();
        evidence.workers.push(WorkerLine::Invoked(invocation("a", "m9", 1, Charge::AlreadyCharged, 5)));
        assert_eq!(audit(&evidence).finished_twice, BTreeSet::from(["a".to_owned()]));
    }

    #[test]
    fn a_delivery_after_an_ok_ack_is_finished_twice() {
        let mut evidence = clean();
        let late = invocation("a", "m1", 2, Charge::AlreadyCharged, 99);
        evidence.workers.push(settled(late, AckOutcome::LeaseLost));
        assert_eq!(audit(&evidence).finished_twice, BTreeSet::from(["a".to_owned()]));
    }

    #[test]
    fn the_dead_letter_queue_holds_exactly_the_free_orders() {
        let mut missing = clean();
        missing.dead_letters.clear();
        assert!(audit(&missing).findings.iter().any(|f| f.contains("z has a total of zero")));
        let mut other = clean();
        other.dead_letters.push(("a".to_owned(), "m1".to_owned()));
        assert!(audit(&other).findings.iter().any(|f| f.contains("a is in the dead-letter queue")));
        let mut twice = clean();
        twice.dead_letters.push(("z".to_owned(), "m3".to_owned()));
        assert!(audit(&twice).findings.iter().any(|f| f.contains("twice")));
        let mut foreign = clean();
        foreign.dead_letters.push(("q".to_owned(), "m8".to_owned()));
        assert!(!audit(&foreign).is_clean());
    }

    #[test]
    fn charges_are_checked_against_the_orders() {
        let mut twice = clean();
        twice.charges.push(charged("a"));
        assert!(audit(&twice).findings.iter().any(|f| f.contains("charged 2 times")));
        let mut free = clean();
        free.charges.push(charged("z"));
        assert!(!audit(&free).is_clean());
        let mut never = clean();
        never.charges.clear();
        assert!(audit(&never).findings.iter().any(|f| f.contains("never charged")));
    }

    #[test]
    fn an_order_that_no_producer_got_through_is_a_finding() {
        let mut evidence = clean();
        evidence.producers.remove(0);
        let found = audit(&evidence);
        assert!(found.findings.iter().any(|f| f.contains("a was never acknowledged")), "{found:?}");
        evidence.producers.push(ProducerLine::Failed { order: "a".to_owned(), error: "full".to_owned() });
        assert!(audit(&evidence).findings.iter().any(|f| f.contains("full")));
    }

    #[test]
    fn replayed_replies_are_counted_wherever_they_come() {
        let mut evidence = clean();
        for line in &mut evidence.producers {
            if let ProducerLine::Acknowledged { replayed, .. } = line {
                *replayed = true;
            }
        }
        evidence.workers.push(WorkerLine::ReceiveReplayed { messages: 4 });
        if let Some(WorkerLine::Settled { replayed, .. }) = evidence.workers.get_mut(1) {
            *replayed = true;
        }
        assert_eq!(audit(&evidence).duplicates_absorbed, 5);
    }

    #[test]
    fn the_outage_is_the_longest_gap_around_a_kill() {
        let mut evidence = clean();
        evidence.producers =
            [1, 2, 50, 51, 52, 300].map(|ms| sent("a", "m1", ms * 1_000_000)).into_iter().collect::<Vec<_>>();
        evidence.kills_ns = vec![10_000_000];
        assert_eq!(audit(&evidence).longest_write_outage_ms, 48, "the gap to 300 is around no kill");
        evidence.kills_ns.push(60_000_000);
        assert_eq!(audit(&evidence).longest_write_outage_ms, 248);
        assert_eq!(outage_ns(&evidence.producers, 400_000_000), None, "nothing was acknowledged after it");
    }
}
