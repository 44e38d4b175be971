//! The format of a run's directory. Field names are short, for there are tens of millions of lines:
//!
//! - `history.jsonl`: an [`Event`] a line, what clients asked and were told;
//! - `nemesis.jsonl`: a [`NemesisLine`] a line, the faults and the proof that they took effect;
//! - `audit.jsonl`: an [`AuditLine`] for each request that one node has applied, in their order;
//! - `chain-<node>.jsonl`: a [`ChainLine`] now and then, the rolling hash of a node's log and writes;
//! - `meta.json`: a [`Meta`].
//!
//! Times named `t` are nanoseconds of the recorder's clock since the run's begin. Times named `ts`, `at` and `due` are
//! cluster time in milliseconds since the Unix epoch, and those of a lease are milliseconds on the lease clock.

mod audit;
mod call;
mod event;
mod meta;
mod names;
mod nemesis;
mod settings;
mod told;

pub use audit::{Applied, AuditLine, ChainLine, Command, ExpiredLease, Grant, TakenOut};
pub use call::{Call, EnqueuePart, Kind, More, NewMessage, NewTime, Output, Settle, Target, Verdict};
pub use event::{Event, Op, What};
pub use meta::{Expect, Meta};
pub use names::{Hash, MessageId, NameError, Position, QueueName, Rid, Token, body, fingerprint};
pub use nemesis::{NemesisLine, Phase};
pub use settings::{OnGroup, Remains, Settings};
pub use told::{
    Answer, CancelOutcome, DeadLetter, Delivery, Done, EnqueueOutcome, Info, MessageState, Refusal, SettleOutcome,
    Stats, Taken, TimeOutcome, Told,
};
