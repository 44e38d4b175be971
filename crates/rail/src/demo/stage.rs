//! The stages of the pipeline: orders → payment → stock → confirmation. Each has a queue, workers and dead letters.

use std::fmt;

use clap::ValueEnum;
use serde::Serialize;

use super::dataset::Order;

/// A stage, named after its queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Stage {
    /// Takes orders in; some cannot be read.
    Orders,
    /// Charges them; some have nothing to charge.
    Payment,
    /// Takes their CDs off the shelf; some want more than it holds.
    Stock,
    /// Writes to their customers; some have no address.
    Confirmation,
}

/// What is to be done with a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It goes on to the next stage; at the last one it is done.
    Pass,
    /// It fails this time: code and text.
    Retry(&'static str, &'static str),
    /// It fails for good: code and text.
    Reject(&'static str, &'static str),
}

impl Stage {
    /// In the order in which an order comes to them.
    pub(crate) const ALL: [Stage; 4] = [Stage::Orders, Stage::Payment, Stage::Stock, Stage::Confirmation];

    /// Its queue, which names it as well.
    pub(crate) fn queue(self) -> &'static str {
        match self {
            Stage::Orders => "orders",
            Stage::Payment => "payment",
            Stage::Stock => "stock",
            Stage::Confirmation => "confirmation",
        }
    }

    /// Its dead-letter queue.
    pub(crate) fn dead_letters(self) -> String {
        format!("{}.dlq", self.queue())
    }

    /// The stage after it.
    pub(crate) fn next(self) -> Option<Stage> {
        match self {
            Stage::Orders => Some(Stage::Payment),
            Stage::Payment => Some(Stage::Stock),
            Stage::Stock => Some(Stage::Confirmation),
            Stage::Confirmation => None,
        }
    }

    /// What is to be done with a delivery of `order`, `None` where its body cannot be read, at its `receive_count`th
    /// lease.
    pub(crate) fn verdict(self, order: Option<&Order>, receive_count: u32) -> Verdict {
        let Some(order) = order else {
            return Verdict::Reject("MALFORMED", "the body is no order");
        };
        match self {
            Stage::Payment if order.is_free() => Verdict::Reject("NOTHING_TO_CHARGE", "the order's total is zero"),
            Stage::Payment if order.fails_first() && receive_count == 1 => {
                Verdict::Retry("GATEWAY_TIMEOUT", "the payment gateway did not answer")
            }
            Stage::Stock if order.exceeds_shelf() => Verdict::Reject("SOLD_OUT", "the shelf does not hold as many"),
            Stage::Confirmation if order.lacks_address() => {
                Verdict::Reject("NO_ADDRESS", "the customer has no address")
            }
            Stage::Orders | Stage::Payment | Stage::Stock | Stage::Confirmation => Verdict::Pass,
        }
    }

    /// Where an order fails for good; `None`: it passes all stages.
    pub(crate) fn failing(order: &Order) -> Option<Stage> {
        // As it is read by the workers, and not the first time any more.
        let read = (!order.is_malformed()).then_some(order);
        Self::ALL.into_iter().find(|stage| matches!(stage.verdict(read, u32::MAX), Verdict::Reject(..)))
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.queue())
    }
}

#[cfg(test)]
mod tests {
    use super::super::dataset;
    use super::*;

    #[test]
    fn each_stage_leads_to_the_next() {
        let walked: Vec<Stage> = std::iter::successors(Some(Stage::Orders), |stage| stage.next()).collect();
        assert_eq!(walked, Stage::ALL);
        assert_eq!(Stage::Payment.dead_letters(), "payment.dlq");
        for stage in Stage::ALL {
            assert_eq!(Stage::from_str(stage.queue(), false), Ok(stage));
            assert_eq!(serde_json::to_value(stage).expect("json"), stage.queue());
        }
    }

    #[test]
    fn some_of_the_first_orders_fail_at_each_stage() {
        let failing = |count| {
            let orders = dataset::orders(count).expect("readable");
            Stage::ALL.map(|stage| orders.iter().filter(|order| Stage::failing(order) == Some(stage)).count())
        };
        assert_eq!(failing(500), [2, 1, 2, 2]);
        assert_eq!(failing(5_000), [25, 24, 14, 29]);
    }

    #[test]
    fn a_failure_for_a_time_is_over_at_the_second_lease() {
        let orders = dataset::orders(500).expect("readable");
        let order = orders.iter().find(|order| order.fails_first() && !order.is_free()).expect("one of many");
        assert!(matches!(Stage::Payment.verdict(Some(order), 1), Verdict::Retry(..)));
        assert_eq!(Stage::Payment.verdict(Some(order), 2), Verdict::Pass);
        assert_eq!(Stage::Orders.verdict(Some(order), 1), Verdict::Pass);
        assert!(matches!(Stage::Orders.verdict(None, 1), Verdict::Reject("MALFORMED", _)));
    }
}
