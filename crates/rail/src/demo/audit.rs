//! The audit: what became of each order at each stage, from the producers' and workers' ledgers.
//!
//! - *Acknowledged*: the reply that it is on the stage's queue has come: to a producer, or to a worker of the stage before.
//! - *Redelivery*: a delivery with a receive count above 1.
//! - *Duplicate absorbed*: a reply that was an earlier attempt's.
//! - *Charge absorbed*: a redelivery that found its order in the charge ledger.
//! - *Finished twice*: two commits or acks answered OK for one order, two message ids for one order, or a delivery invoked
//!   after an OK answer for that order.
//! - *Lost*: acknowledged, but neither finished nor dead-lettered.
//! - *Acked without child*: finished, but never delivered at the next stage.
//! - *Child without ack*: delivered, but not finished at the stage before.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::dataset::Order;
use super::ledger::{AckOutcome, Charge, ChargeLine, Invocation, ProducerLine, WorkerLine};
use super::stage::Stage;

/// What the audit reads.
#[derive(Debug, Clone, Default)]
pub(crate) struct Evidence {
    /// The orders that were to be sent.
    pub(crate) orders: Vec<Order>,
    /// All producers' ledgers.
    pub(crate) producers: Vec<ProducerLine>,
    /// All workers' ledgers, by stage.
    pub(crate) workers: BTreeMap<Stage, Vec<WorkerLine>>,
    /// The charge ledger.
    pub(crate) charges: Vec<ChargeLine>,
    /// The cluster's own books, by stage.
    pub(crate) books: BTreeMap<Stage, Books>,
}

/// What the cluster says of a stage's queue at the end.
#[derive(Debug, Clone, Default)]
pub(crate) struct Books {
    /// The orders found in the dead-letter queue by looking, with their message ids.
    pub(crate) dead_letters: Vec<(String, String)>,
    /// Messages that the queue still holds.
    pub(crate) depth: u64,
    /// Messages enqueued ever.
    pub(crate) enqueued: u64,
    /// Messages acked ever.
    pub(crate) acked: u64,
}

/// What the audit finds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Audit {
    /// Each stage, in order.
    pub(crate) stages: Vec<StageAudit>,
    /// Redeliveries at payment that found their order charged.
    pub(crate) charges_absorbed: usize,
    /// Whatever else is not as it must be.
    pub(crate) findings: Vec<String>,
}

/// What the audit finds at one stage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct StageAudit {
    /// The stage.
    pub(crate) stage: Stage,
    /// Orders acknowledged to be on its queue.
    pub(crate) acknowledged: usize,
    /// Orders finished: acked, and enqueued for the next stage by the same commit.
    pub(crate) finished: usize,
    /// Orders in its dead-letter queue.
    pub(crate) dead_lettered: usize,
    /// Deliveries with a receive count above 1.
    pub(crate) redeliveries: usize,
    /// Replies, about orders enqueued by producers and settled by its workers, that were an earlier attempt's.
    pub(crate) duplicates_absorbed: usize,
    /// Orders finished twice.
    pub(crate) finished_twice: BTreeSet<String>,
    /// Orders lost.
    pub(crate) lost: BTreeSet<String>,
    /// Orders finished here that never came to the next stage.
    pub(crate) acked_without_child: BTreeSet<String>,
    /// Orders that came to the next stage without being finished here.
    pub(crate) child_without_ack: BTreeSet<String>,
}

impl Audit {
    /// Whether nothing is lost, nothing is finished twice, no commit was torn and nothing else is wrong.
    pub(crate) fn is_clean(&self) -> bool {
        self.findings.is_empty() && self.stages.iter().all(StageAudit::is_clean)
    }

    /// All orders of one kind, over all stages.
    pub(crate) fn all(&self, kind: impl Fn(&StageAudit) -> &BTreeSet<String>) -> BTreeSet<String> {
        self.stages.iter().flat_map(|stage| kind(stage).iter().cloned()).collect()
    }
}

impl StageAudit {
    fn is_clean(&self) -> bool {
        let Self { finished_twice, lost, acked_without_child, child_without_ack, .. } = self;
        [finished_twice, lost, acked_without_child, child_without_ack].into_iter().all(BTreeSet::is_empty)
    }
}

/// What the ledgers say of one order at one stage.
#[derive(Debug, Default)]
struct Story<'a> {
    /// Its messages, as whoever enqueued them and whoever had them say.
    messages: BTreeSet<&'a str>,
    acknowledged: bool,
    delivered: bool,
    /// When commits or acks were answered OK.
    acked_ns: Vec<u64>,
    /// Whether a commit or an ack had no answer: it may have taken effect.
    in_doubt: bool,
    dead_lettered: bool,
    /// When deliveries of it were worked on.
    invoked_ns: BTreeSet<u64>,
}

impl Story<'_> {
    fn is_finished(&self) -> bool {
        !self.acked_ns.is_empty()
    }

    fn is_finished_twice(&self) -> bool {
        let again = self.acked_ns.iter().min().is_some_and(|first| self.invoked_ns.iter().any(|at| at > first));
        self.messages.len() > 1 || self.acked_ns.len() > 1 || again
    }
}

/// What the ledgers say of one stage.
#[derive(Debug, Default)]
struct Book<'a> {
    stories: BTreeMap<&'a str, Story<'a>>,
    /// Each has a line before its commit and one after; a worker that was killed leaves the first alone.
    deliveries: BTreeMap<(&'a str, u32), &'a Invocation>,
    duplicates: usize,
}

impl<'a> Book<'a> {
    fn story(&mut self, order: &'a str) -> &mut Story<'a> {
        self.stories.entry(order).or_default()
    }

    /// A reply has said that a message is on the stage's queue.
    fn acknowledged(&mut self, order: &'a str, message: &'a str) {
        let story = self.story(order);
        story.acknowledged = true;
        story.messages.insert(message);
    }

    fn redelivered(&self) -> impl Iterator<Item = &&'a Invocation> {
        self.deliveries.values().filter(|invocation| invocation.receive_count > 1)
    }
}

/// Judges the ledgers.
pub(crate) fn audit(evidence: &Evidence) -> Audit {
    let mut findings = Vec::new();
    let books = read(evidence, &mut findings);
    let orders: BTreeMap<&str, &Order> = evidence.orders.iter().map(|order| (order.order.as_str(), order)).collect();
    let mut stages = Vec::new();
    let mut in_doubt = false;
    for (stage, book) in Stage::ALL.into_iter().zip(&books) {
        let told = evidence.books.get(&stage).cloned().unwrap_or_default();
        let dead = dead_letters(stage, &told, book, &orders, &mut findings);
        let next = books.get(stages.len() + 1);
        stages.push(judge(stage, book, next, &dead));
        // What is in doubt, nobody wrote down; and its child may have come to the next stage.
        in_doubt |= book.stories.values().any(|story| story.in_doubt);
        if !in_doubt {
            compare(stage, book, &told, &mut findings);
        }
        if told.depth > 0 {
            findings.push(format!("the queue {stage} still holds {} messages", told.depth));
        }
    }
    if let Some(first) = books.first() {
        let sent = |name: &str| first.stories.get(name).is_some_and(|story| story.acknowledged);
        findings.extend(orders.keys().filter(|name| !sent(name)).map(|name| format!("{name} was never acknowledged")));
    }
    for (stage, book) in Stage::ALL.iter().zip(&books) {
        let strange = book.stories.keys().filter(|name| !orders.contains_key(*name));
        findings.extend(strange.map(|name| format!("{name} came to {stage}, but is none of the orders sent")));
    }
    let payment = Stage::ALL.iter().zip(&books).find_map(|(stage, book)| (*stage == Stage::Payment).then_some(book));
    let absorbed = |invocation: &&&Invocation| invocation.charge == Charge::AlreadyCharged;
    let charges_absorbed = payment.map_or(0, |book| book.redelivered().filter(absorbed).count());
    findings.extend(wrong_charges(evidence, payment));
    Audit { stages, charges_absorbed, findings }
}

/// Reads the ledgers into a book for each stage.
fn read<'a>(evidence: &'a Evidence, findings: &mut Vec<String>) -> [Book<'a>; Stage::ALL.len()] {
    let mut books = Stage::ALL.map(|_| Book::default());
    for line in &evidence.producers {
        match line {
            ProducerLine::Acknowledged { order, message, replayed, .. } => {
                books[0].acknowledged(order, message);
                books[0].duplicates += usize::from(*replayed);
            }
            ProducerLine::Failed { order, error } => {
                findings.push(format!("{order} was not acknowledged: {error}"));
            }
        }
    }
    for (place, stage) in Stage::ALL.into_iter().enumerate() {
        for line in evidence.workers.get(&stage).into_iter().flatten() {
            let invocation = match line {
                WorkerLine::Invoked(invocation) => invocation,
                WorkerLine::Settled { invocation, outcome, child, replayed, at_ns } => {
                    books[place].duplicates += usize::from(*replayed);
                    let story = books[place].story(&invocation.order);
                    match outcome {
                        AckOutcome::Acked => story.acked_ns.push(*at_ns),
                        AckOutcome::DeadLettered => story.dead_lettered = true,
                        AckOutcome::Unknown => story.in_doubt = true,
                        AckOutcome::Again | AckOutcome::LeaseLost => {}
                        AckOutcome::Refused => {
                            findings.push(format!("an ack of {} at {stage} was refused", invocation.order));
                        }
                    }
                    if let Some((child, next)) = child.as_deref().zip(books.get_mut(place + 1)) {
                        next.acknowledged(&invocation.order, child);
                    }
                    invocation
                }
            };
            let story = books[place].story(&invocation.order);
            story.delivered = true;
            story.messages.insert(&invocation.message);
            story.invoked_ns.insert(invocation.invoked_ns);
            books[place].deliveries.insert((&invocation.message, invocation.receive_count), invocation);
        }
    }
    books
}

/// The orders in a stage's dead-letter queue: exactly those that fail there, each once, as the message that it was.
fn dead_letters(
    stage: Stage,
    told: &Books,
    book: &Book,
    orders: &BTreeMap<&str, &Order>,
    findings: &mut Vec<String>,
) -> BTreeSet<String> {
    let queue = stage.dead_letters();
    let mut dead = BTreeSet::new();
    for (name, message) in &told.dead_letters {
        if !dead.insert(name.clone()) {
            findings.push(format!("{name} is in {queue} twice"));
        }
        if !book.stories.get(name.as_str()).is_some_and(|story| story.messages.contains(message.as_str())) {
            findings.push(format!("{name} is in {queue} as {message}, which is not its message"));
        }
        if orders.get(name.as_str()).is_none_or(|order| Stage::failing(order) != Some(stage)) {
            findings.push(format!("{name} is in {queue}, but should not fail there"));
        }
    }
    let missing = orders.values().filter(|order| Stage::failing(order) == Some(stage) && !dead.contains(&order.order));
    findings.extend(missing.map(|order| format!("{} should be in {queue}, but is not", order.order)));
    dead
}

fn judge(stage: Stage, book: &Book, next: Option<&Book>, dead: &BTreeSet<String>) -> StageAudit {
    let named = |is: &dyn Fn(&str, &Story) -> bool| -> BTreeSet<String> {
        let stories = book.stories.iter().filter(|(name, story)| is(name, story));
        stories.map(|(name, _)| (*name).to_owned()).collect()
    };
    let came = |name: &str| next.is_none_or(|next| next.stories.get(name).is_some_and(|story| story.delivered));
    let passed = |name: &&str| book.stories.get(name).is_some_and(|story| story.is_finished() || story.in_doubt);
    let children = next.into_iter().flat_map(|next| next.stories.iter().filter(|(_, story)| story.delivered));
    StageAudit {
        stage,
        acknowledged: book.stories.values().filter(|story| story.acknowledged).count(),
        finished: book.stories.values().filter(|story| story.is_finished()).count(),
        dead_lettered: dead.len(),
        redeliveries: book.redelivered().count(),
        duplicates_absorbed: book.duplicates,
        finished_twice: named(&|name, story| {
            story.is_finished_twice() || (story.is_finished() && (story.dead_lettered || dead.contains(name)))
        }),
        lost: named(&|name, story| {
            story.acknowledged && !(story.is_finished() || story.dead_lettered || dead.contains(name))
        }),
        acked_without_child: named(&|name, story| story.is_finished() && !came(name)),
        child_without_ack: children.map(|(name, _)| *name).filter(|name| !passed(name)).map(str::to_owned).collect(),
    }
}

/// Holds the cluster's own counts against the ledgers'.
fn compare(stage: Stage, book: &Book, told: &Books, findings: &mut Vec<String>) {
    let acked: usize = book.stories.values().map(|story| story.acked_ns.len()).sum();
    let acknowledged = book.stories.values().filter(|story| story.acknowledged).count();
    for (what, counted, written) in [("acked", told.acked, acked), ("enqueued", told.enqueued, acknowledged)] {
        if counted != written as u64 {
            findings.push(format!("the cluster counts {counted} messages {what} at {stage}, the ledgers {written}"));
        }
    }
}

/// An order is charged exactly once if it is finished at payment, and never if it fails there or before.
fn wrong_charges(evidence: &Evidence, payment: Option<&Book>) -> Vec<String> {
    let mut charges: BTreeMap<&str, usize> = BTreeMap::new();
    for charge in &evidence.charges {
        *charges.entry(&charge.order).or_default() += 1;
    }
    let wrong = |order: &Order| {
        let name = order.order.as_str();
        let paid = payment.and_then(|book| book.stories.get(name)).is_some_and(Story::is_finished);
        let never = Stage::failing(order).is_some_and(|stage| stage <= Stage::Payment);
        match (charges.get(name).copied().unwrap_or(0), paid) {
            (0, true) => Some(format!("{name} is finished at payment, but was never charged")),
            (1.., _) if never => Some(format!("{name} was charged, but has nothing to charge")),
            (count @ 2.., _) => Some(format!("{name} was charged {count} times")),
            (0, false) | (1, _) => None,
        }
    };
    evidence.orders.iter().filter_map(wrong).collect()
}

#[cfg(test)]
mod tests {
    use super::super::dataset;
    use super::*;

    const TIMES: u64 = 10;

    /// What the demo knows of an order's way: the stages it comes to, and how it ends.
    fn message(order: &Order, stage: Stage) -> String {
        format!("{stage}.{}", order.order)
    }

    fn invocation(order: &Order, stage: Stage, receive_count: u32, charge: Charge, invoked_ns: u64) -> Invocation {
        let message = message(order, stage);
        Invocation { order: order.order.clone(), message, receive_count, charge, invoked_ns }
    }

    fn settled(invocation: Invocation, outcome: AckOutcome, child: Option<String>) -> WorkerLine {
        let at_ns = invocation.invoked_ns + 1;
        WorkerLine::Settled { invocation, outcome, child, replayed: false, at_ns }
    }

    /// A run without faults of the first 500 orders.
    fn clean() -> Evidence {
        let orders = dataset::orders(500).expect("readable");
        let mut evidence = Evidence { orders: orders.clone(), ..Evidence::default() };
        for order in &orders {
            evidence.producers.push(ProducerLine::Acknowledged {
                order: order.order.clone(),
                message: message(order, Stage::Orders),
                replayed: false,
                cut: false,
                at_ns: 1,
            });
            let mut at = TIMES;
            for stage in Stage::ALL {
                let fails = Stage::failing(order) == Some(stage);
                let lines = evidence.workers.entry(stage).or_default();
                let charges = stage == Stage::Payment && !fails;
                let charge = if charges { Charge::Charged } else { Charge::None };
                let done = invocation(order, stage, 1, charge, at);
                lines.push(WorkerLine::Invoked(done.clone()));
                let books = evidence.books.entry(stage).or_default();
                books.enqueued += 1;
                if fails {
                    lines.push(settled(done, AckOutcome::DeadLettered, None));
                    books.dead_letters.push((order.order.clone(), message(order, stage)));
                    break;
                }
                let child = stage.next().map(|next| message(order, next));
                lines.push(settled(done, AckOutcome::Acked, child));
                books.acked += 1;
                if charges {
                    evidence.charges.push(ChargeLine {
                        order: order.order.clone(),
                        cents: order.cents,
                        worker: "w".to_owned(),
                        message: message(order, stage),
                    });
                }
                at += TIMES;
            }
        }
        evidence
    }

    /// An order that passes all stages.
    fn passing(evidence: &Evidence) -> Order {
        evidence.orders.iter().find(|order| Stage::failing(order).is_none()).expect("most do").clone()
    }

    fn lines(evidence: &mut Evidence, stage: Stage) -> &mut Vec<WorkerLine> {
        evidence.workers.get_mut(&stage).expect("a stage")
    }

    /// Changes how an order's settlements at a stage ended.
    fn change(evidence: &mut Evidence, stage: Stage, order: &Order, to: AckOutcome) {
        for line in lines(evidence, stage) {
            if let WorkerLine::Settled { invocation, outcome, .. } = line
                && invocation.order == order.order
            {
                *outcome = to;
            }
        }
    }

    /// Removes all that was written of an order at a stage.
    fn forget(evidence: &mut Evidence, stage: Stage, order: &Order) {
        lines(evidence, stage).retain(|line| match line {
            WorkerLine::Invoked(invocation) | WorkerLine::Settled { invocation, .. } => invocation.order != order.order,
        });
    }

    fn stage(audit: &Audit, stage: Stage) -> &StageAudit {
        audit.stages.iter().find(|audit| audit.stage == stage).expect("a stage")
    }

    fn only(order: &Order) -> BTreeSet<String> {
        BTreeSet::from([order.order.clone()])
    }

    #[test]
    fn a_clean_run_is_clean() {
        let audit = audit(&clean());
        assert!(audit.is_clean(), "{audit:?}");
        let counts: Vec<_> =
            audit.stages.iter().map(|stage| (stage.acknowledged, stage.finished, stage.dead_lettered)).collect();
        assert_eq!(counts, [(500, 498, 2), (498, 497, 1), (497, 495, 2), (495, 493, 2)]);
        assert_eq!(audit.charges_absorbed, 0);
    }

    #[test]
    fn a_worker_killed_between_line_and_commit_is_a_redelivery_and_no_fault() {
        let mut evidence = clean();
        let order = passing(&evidence);
        let first = WorkerLine::Invoked(invocation(&order, Stage::Payment, 1, Charge::Charged, 15));
        for line in lines(&mut evidence, Stage::Payment) {
            if let WorkerLine::Invoked(invocation) | WorkerLine::Settled { invocation, .. } = line
                && invocation.order == order.order
            {
                invocation.receive_count = 2;
                invocation.charge = Charge::AlreadyCharged;
            }
        }
        lines(&mut evidence, Stage::Payment).insert(0, first);
        let audit = audit(&evidence);
        assert!(audit.is_clean(), "{audit:?}");
        assert_eq!((stage(&audit, Stage::Payment).redeliveries, audit.charges_absorbed), (1, 1));
    }

    #[test]
    fn an_order_without_an_end_is_lost() {
        let mut evidence = clean();
        let order = passing(&evidence);
        forget(&mut evidence, Stage::Confirmation, &order);
        let found = audit(&evidence);
        assert_eq!(stage(&found, Stage::Confirmation).lost, only(&order));
        assert_eq!(stage(&found, Stage::Stock).acked_without_child, only(&order));
        assert!(!found.is_clean());
    }

    #[test]
    fn an_unknown_or_lost_ack_is_no_end() {
        for outcome in [AckOutcome::Unknown, AckOutcome::LeaseLost, AckOutcome::Again] {
            let mut evidence = clean();
            let order = passing(&evidence);
            change(&mut evidence, Stage::Confirmation, &order, outcome);
            assert_eq!(stage(&audit(&evidence), Stage::Confirmation).lost, only(&order), "{outcome:?}");
        }
    }

    #[test]
    fn a_child_whose_parent_was_not_acked_is_found() {
        let mut evidence = clean();
        let order = passing(&evidence);
        change(&mut evidence, Stage::Stock, &order, AckOutcome::LeaseLost);
        let found = audit(&evidence);
        assert_eq!(stage(&found, Stage::Stock).child_without_ack, only(&order));
        assert!(stage(&found, Stage::Payment).child_without_ack.is_empty());
        // Nobody knows whether it was acked.
        change(&mut evidence, Stage::Stock, &order, AckOutcome::Unknown);
        assert!(stage(&audit(&evidence), Stage::Stock).child_without_ack.is_empty());
    }

    #[test]
    fn two_acks_of_one_order_are_finished_twice() {
        let mut evidence = clean();
        let order = passing(&evidence);
        // Invoked before the first ack was answered: only the second OK gives it away.
        let again = settled(invocation(&order, Stage::Stock, 2, Charge::None, 30), AckOutcome::Acked, None);
        lines(&mut evidence, Stage::Stock).push(again);
        assert_eq!(stage(&audit(&evidence), Stage::Stock).finished_twice, only(&order));
    }

    #[test]
    fn two_messages_of_one_order_are_finished_twice() {
        let mut evidence = clean();
        let order = passing(&evidence);
        evidence.producers.push(ProducerLine::Acknowledged {
            order: order.order.clone(),
            message: "another".to_owned(),
            replayed: false,
            cut: false,
            at_ns: 4,
        });
        assert_eq!(stage(&audit(&evidence), Stage::Orders).finished_twice, only(&order));
        let mut evidence = clean();
        let mut other = invocation(&order, Stage::Stock, 1, Charge::None, 5);
        other.message = "another".to_owned();
        lines(&mut evidence, Stage::Stock).push(WorkerLine::Invoked(other));
        assert_eq!(stage(&audit(&evidence), Stage::Stock).finished_twice, only(&order));
    }

    #[test]
    fn a_delivery_after_an_ok_answer_is_finished_twice() {
        let mut evidence = clean();
        let order = passing(&evidence);
        let late = invocation(&order, Stage::Orders, 2, Charge::None, 99);
        lines(&mut evidence, Stage::Orders).push(settled(late, AckOutcome::LeaseLost, None));
        assert_eq!(stage(&audit(&evidence), Stage::Orders).finished_twice, only(&order));
    }

    #[test]
    fn the_dead_letters_are_exactly_the_orders_that_fail() {
        type Change<'c> = &'c dyn Fn(&mut Vec<(String, String)>);
        let of = |evidence: &mut Evidence, change: Change<'_>| {
            change(&mut evidence.books.get_mut(&Stage::Stock).expect("a stage").dead_letters);
            audit(evidence).findings
        };
        let order = passing(&clean());
        let missing = of(&mut clean(), &|dead| drop(dead.pop()));
        assert!(missing.iter().any(|found| found.contains("should be in stock.dlq")), "{missing:?}");
        let other = of(&mut clean(), &|dead| dead.push((order.order.clone(), message(&order, Stage::Stock))));
        assert!(other.iter().any(|found| found.contains("should not fail there")), "{other:?}");
        let twice = of(&mut clean(), &|dead| dead.extend(dead.first().cloned()));
        assert!(twice.iter().any(|found| found.contains("twice")), "{twice:?}");
        let foreign = of(&mut clean(), &|dead| dead.push(("q".to_owned(), "m8".to_owned())));
        assert!(foreign.iter().any(|found| found.contains("not its message")), "{foreign:?}");
    }

    #[test]
    fn charges_are_checked_against_the_orders() {
        let findings = |change: &dyn Fn(&mut Vec<ChargeLine>)| {
            let mut evidence = clean();
            change(&mut evidence.charges);
            audit(&evidence).findings
        };
        let twice = findings(&|charges| charges.extend(charges.first().cloned()));
        assert!(twice.iter().any(|found| found.contains("charged 2 times")), "{twice:?}");
        let never = findings(&|charges| drop(charges.pop()));
        assert!(never.iter().any(|found| found.contains("never charged")), "{never:?}");
        let free = clean().orders.into_iter().find(Order::is_free).expect("one");
        let charged = findings(&|charges| {
            charges.extend(charges.first().cloned().map(|line| ChargeLine { order: free.order.clone(), ..line }));
        });
        assert!(charged.iter().any(|found| found.contains("nothing to charge")), "{charged:?}");
    }

    #[test]
    fn an_order_that_no_producer_got_through_is_a_finding() {
        let mut evidence = clean();
        evidence.producers.remove(0);
        let found = audit(&evidence);
        assert!(found.findings.iter().any(|found| found.contains("CD-00001 was never acknowledged")), "{found:?}");
        evidence.producers.push(ProducerLine::Failed { order: "CD-00001".to_owned(), error: "full".to_owned() });
        assert!(audit(&evidence).findings.iter().any(|found| found.contains("full")));
    }

    #[test]
    fn the_clusters_books_are_held_against_the_ledgers() {
        for change in [
            |books: &mut Books| books.depth = 1,
            |books: &mut Books| books.acked += 1,
            |books: &mut Books| books.enqueued -= 1,
        ] {
            let mut evidence = clean();
            change(evidence.books.get_mut(&Stage::Stock).expect("a stage"));
            let found = audit(&evidence);
            assert_eq!(found.findings.len(), 1, "{found:?}");
        }
    }

    #[test]
    fn replayed_replies_are_counted_at_the_stage_whose_queue_answered() {
        let mut evidence = clean();
        if let Some(ProducerLine::Acknowledged { replayed, .. }) = evidence.producers.first_mut() {
            *replayed = true;
        }
        for line in lines(&mut evidence, Stage::Payment).iter_mut().take(4) {
            if let WorkerLine::Settled { replayed, .. } = line {
                *replayed = true;
            }
        }
        let counts: Vec<usize> = audit(&evidence).stages.iter().map(|stage| stage.duplicates_absorbed).collect();
        assert_eq!(counts, [1, 2, 0, 0]);
    }
}
