//! The central contract: one committed entry in, its outcome out.

use crate::LogPosition;
use crate::command::Entry;
use crate::query::{Answer, Query};
use crate::reply::{Fault, Outcome};
use crate::time::Timestamp;
use crate::view::View;

/// Applies one committed entry. Pure: the same view and entry give the same outcome on every replica.
/// `Err(Fault)` means that this replica's data is broken: the node stops. A user's mistake is never a fault.
pub fn apply(_view: &dyn View, _at: LogPosition, _entry: &Entry) -> Result<Outcome, Fault> {
    Err(Fault::Newer("nothing is known yet".into()))
}

/// When the leader must propose the next `Tick`, on cluster time; `None`: nothing is due ever.
pub fn next_due(_view: &dyn View) -> Result<Option<Timestamp>, Fault> {
    Ok(None)
}

/// Answers a question from the state alone.
pub fn query(_view: &dyn View, _query: &Query) -> Result<Answer, Fault> {
    Err(Fault::Newer("nothing is known yet".into()))
}
