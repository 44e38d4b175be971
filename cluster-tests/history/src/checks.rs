//! What must hold of every history, one file a property. To add one: write its file, and name it in [`all`].
//!
//! Most properties are looked at twice: in the exact form, by what the log of a node holds ([`Check::applied`]), and in
//! the black-box form, by what clients saw and by their own clock alone ([`Check::end`]).

mod ack_final;
mod clock;
mod commits;
mod conservation;
mod dead_letters;
mod dedup_ids;
mod early;
mod fencing;
mod gone;
mod group_order;
mod liveness;
mod lost;
mod one_lease;
mod phantom;
mod priorities;
mod reads;
mod realtime;
mod receive_count;
mod refused;
mod replay;
mod replicas;
mod request_ids;
mod resolution;
mod shape;
mod too_late;
mod unique;
mod vacuity;

use crate::case::Case;
use crate::fates::{Fates, Turn};
use crate::format::AuditLine;
use crate::leases::Leases;
use crate::model::{Model, Stop};

/// Violations of one check that are kept word for word; further ones are counted.
const KEPT: usize = 20;

/// A property of histories.
pub trait Check {
    /// Its name, such as `I7 ack is final`.
    fn name(&self) -> &'static str;

    /// Looks at an applied request, in the order of the log.
    fn applied(&mut self, _at: &Applying<'_>, _out: &mut Findings) {}

    /// Looks at the whole.
    fn end(&mut self, case: &Case, after: &After<'_>, out: &mut Findings);
}

/// An applied request, and what is known when it is.
pub struct Applying<'a> {
    /// The run.
    pub case: &'a Case,
    /// The request and its outcome.
    pub line: &'a AuditLine,
    /// The client's operation that it belongs to: its place in the story.
    pub op: Option<u32>,
    /// The leases before it.
    pub leases: &'a Leases,
    /// What it did to which message, as the log says.
    pub turns: &'a [Turn],
    /// What the log says of messages, after it.
    pub fates: &'a Fates,
    /// The reference model after it; absent once the model could not go on.
    pub model: Option<&'a Model>,
    /// Why the model could not go on, at the request at which it stopped.
    pub stop: Option<&'a Stop>,
}

/// What is known when the whole log has been looked at.
pub struct After<'a> {
    /// The reference model at the end of the log; absent where there is no audit, or the model could not go on.
    pub model: Option<&'a Model>,
    /// The leases at the end of the log.
    pub leases: &'a Leases,
    /// Lines of the audit; 0: there is none.
    pub lines: u64,
    /// The log index of the last of them.
    pub last_index: u64,
}

/// What a check found.
#[derive(Debug, Clone, Default)]
pub struct Findings {
    /// How many things it looked at.
    pub looked: u64,
    /// How many violations it found.
    pub found: u64,
    /// The first of them, in words.
    pub violations: Vec<String>,
    /// Why the run does not count.
    pub invalid: Vec<String>,
    /// What else is worth knowing.
    pub notes: Vec<String>,
}

impl Findings {
    /// Notes a violation.
    pub fn violation(&mut self, text: impl FnOnce() -> String) {
        self.found += 1;
        if self.violations.len() < KEPT {
            self.violations.push(text());
        }
    }

    /// Notes a violation unless `holds`.
    pub fn expect(&mut self, holds: bool, text: impl FnOnce() -> String) {
        self.looked += 1;
        if !holds {
            self.violation(text);
        }
    }
}

/// All checks, in the order of the report.
pub fn all() -> Vec<Box<dyn Check>> {
    vec![
        Box::new(shape::Shape),
        Box::new(replay::Replay::default()),
        Box::new(resolution::Resolution::default()),
        Box::new(realtime::Realtime),
        Box::new(lost::Lost::default()),
        Box::new(phantom::Phantom),
        Box::new(refused::Refused),
        Box::new(unique::Unique::default()),
        Box::new(one_lease::OneLease),
        Box::new(fencing::Fencing),
        Box::new(ack_final::AckFinal),
        Box::new(receive_count::ReceiveCount),
        Box::new(dead_letters::DeadLetters),
        Box::new(group_order::GroupOrder::default()),
        Box::new(request_ids::RequestIds::default()),
        Box::new(dedup_ids::DedupIds::default()),
        Box::new(early::Early),
        Box::new(gone::Gone),
        Box::new(too_late::TooLate),
        Box::new(priorities::Priorities::default()),
        Box::new(commits::Commits),
        Box::new(conservation::Conservation),
        Box::new(reads::Reads::default()),
        Box::new(replicas::Replicas::default()),
        Box::new(liveness::Liveness),
        Box::new(clock::Clock::default()),
        Box::new(vacuity::Vacuity),
    ]
}
