//! The CDNOW orders, shipped compressed inside the program. Their source is named in `data/README.md`.

use std::io::Read as _;

use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};

static COMPRESSED: &[u8] = include_bytes!("../../data/cdnow_orders.csv.gz");

/// Orders in the data set.
pub(crate) const ORDERS: usize = 69_659;
/// CDs of one order that the shelf holds.
const SHELF: u32 = 14;

/// One order, and the body of its message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Order {
    /// Its number: `CD-00001`.
    pub(crate) order: String,
    /// The customer's number.
    pub(crate) customer: String,
    /// The day, `1997-01-01`.
    pub(crate) placed_on: String,
    /// CDs bought.
    pub(crate) items: u32,
    /// The total in cents.
    pub(crate) cents: u64,
}

impl Order {
    /// Whether there is nothing to charge: such an order fails for good.
    pub(crate) fn is_free(&self) -> bool {
        self.cents == 0
    }

    /// Whether its first charge fails: 3 %, chosen by a hash of its number.
    pub(crate) fn fails_first(&self) -> bool {
        fnv1a(self.order.as_bytes()) % 100 < 3
    }

    /// Whether its message is sent with a body that cannot be read: 0.5 %, chosen by a hash of its number.
    pub(crate) fn is_malformed(&self) -> bool {
        fnv1a(format!("body of {}", self.order).as_bytes()).is_multiple_of(200)
    }

    /// Whether it wants more CDs than there are of one.
    pub(crate) fn exceeds_shelf(&self) -> bool {
        self.items > SHELF
    }

    /// Whether nobody knows where its customer lives: 0.5 %, chosen by a hash of the customer's number.
    pub(crate) fn lacks_address(&self) -> bool {
        fnv1a(format!("address of {}", self.customer).as_bytes()).is_multiple_of(200)
    }

    /// The body of its message: JSON, or half of it.
    pub(crate) fn body(&self) -> anyhow::Result<Vec<u8>> {
        let mut body = serde_json::to_vec(self).context("the body of an order")?;
        if self.is_malformed() {
            body.truncate(body.len() / 2);
        }
        Ok(body)
    }
}

/// FNV-1a: the same on every machine and in every release, which the standard library's hashers are not.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// The first `count` orders.
pub(crate) fn orders(count: usize) -> anyhow::Result<Vec<Order>> {
    let mut text = String::new();
    flate2::read::GzDecoder::new(COMPRESSED).read_to_string(&mut text).context("unpacking the shipped orders")?;
    let mut lines = text.lines();
    let header = lines.next().unwrap_or_default();
    if header != "order_id,customer,placed_on,items,total" {
        bail!("expected the shipped orders to begin with their columns, but found {header:?}");
    }
    lines.take(count).map(parse).collect()
}

fn parse(line: &str) -> anyhow::Result<Order> {
    let fields: Vec<&str> = line.split(',').collect();
    let [order, customer, placed_on, items, total] = fields[..] else {
        bail!("expected five fields in a shipped order, but found {line:?}");
    };
    let cents = cents(total).with_context(|| format!("the total of {line:?}"))?;
    let items = items.parse().with_context(|| format!("the items of {line:?}"))?;
    Ok(Order { order: order.to_owned(), customer: customer.to_owned(), placed_on: placed_on.to_owned(), items, cents })
}

/// `11.77` in cents.
fn cents(total: &str) -> anyhow::Result<u64> {
    let (whole, fraction) = total.split_once('.').context("expected dollars and cents")?;
    if fraction.len() != 2 {
        bail!("expected two digits of cents, but found {fraction:?}");
    }
    let (whole, fraction): (u64, u64) = (whole.parse()?, fraction.parse()?);
    Ok(whole * 100 + fraction)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_data_set_is_whole() {
        let all = orders(usize::MAX).expect("readable");
        assert_eq!(all.len(), ORDERS);
        assert_eq!(all.iter().filter(|order| order.is_free()).count(), 80);
        assert_eq!(all.iter().map(|order| &order.order).collect::<BTreeSet<_>>().len(), ORDERS, "numbers are unique");
        let first = Order {
            order: "CD-00001".to_owned(),
            customer: "00001".to_owned(),
            placed_on: "1997-01-01".to_owned(),
            items: 1,
            cents: 1_177,
        };
        assert_eq!(all.first(), Some(&first));
        assert_eq!(all.last().map(|order| order.order.as_str()), Some("CD-69659"));
    }

    #[test]
    fn the_first_five_thousand_hold_24_free_orders() {
        let some = orders(5_000).expect("readable");
        assert_eq!(some.len(), 5_000);
        assert_eq!(some.iter().filter(|order| order.is_free()).count(), 24);
    }

    #[test]
    fn three_percent_fail_at_first() {
        let all = orders(usize::MAX).expect("readable");
        let failing = all.iter().filter(|order| order.fails_first()).count();
        assert!((1_800..2_400).contains(&failing), "{failing} of {ORDERS}");
        let again = all.iter().filter(|order| order.fails_first()).count();
        assert_eq!(failing, again);
    }

    #[test]
    fn only_a_whole_body_is_read() {
        let some = orders(1_000).expect("readable");
        let malformed = some.iter().filter(|order| order.is_malformed()).count();
        assert!((1..20).contains(&malformed), "{malformed}");
        for order in &some {
            let read = serde_json::from_slice::<Order>(&order.body().expect("a body")).ok();
            assert_eq!(read.as_ref(), (!order.is_malformed()).then_some(order));
        }
    }

    #[test]
    fn totals_are_read_exactly() {
        assert_eq!(cents("11.77").ok(), Some(1_177));
        assert_eq!(cents("0.00").ok(), Some(0));
        for bad in ["", "11", "11.7", "x.00", "-1.00"] {
            assert!(cents(bad).is_err(), "{bad}");
        }
    }
}
