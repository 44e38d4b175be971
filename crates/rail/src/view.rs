//! Queues and messages as they are printed: [`queue`], [`message`].

pub(crate) mod message;
pub(crate) mod queue;

use crate::output::short;

/// Milliseconds for a person; `-` where there are none.
fn ms(value: Option<u64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| short(std::time::Duration::from_millis(value)))
}
