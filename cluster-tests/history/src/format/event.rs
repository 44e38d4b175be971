//! A line of `history.jsonl`.

use serde::{Deserialize, Serialize};

use super::call::Call;
use super::names::{Position, Rid};
use super::told::{Answer, Refusal, Told};

/// An operation's number, unique in the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Op(pub u64);

/// One event: the begin or the end of an operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Line", into = "Line")]
pub struct Event {
    /// Its number, from 0, without gaps.
    pub i: u64,
    /// When, in nanoseconds since the run's begin; never less than in the line before.
    pub t: u64,
    /// The client, which has at most one operation of each kind of work under way at a time.
    pub p: u32,
    /// The operation.
    pub op: Op,
    /// What.
    pub what: What,
}

/// What an event tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// A client asks.
    Invoke {
        /// The request's id; absent for reads, and for requests that the client did not name.
        rid: Option<Rid>,
        /// What it asks.
        call: Call,
    },
    /// It is told that it happened.
    Ok(Told),
    /// It is told that nothing happened.
    Fail(Refusal),
    /// It does not know.
    Info(Refusal),
}

/// An event as it is written.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    i: u64,
    t: u64,
    p: u32,
    op: u64,
    k: LineKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rid: Option<Rid>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    f: Option<Call>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cp: Option<Position>,
    #[serde(default, skip_serializing_if = "super::call::is_zero")]
    ts: u64,
    #[serde(default, skip_serializing_if = "super::call::is_zero")]
    node: u64,
    #[serde(default, skip_serializing_if = "super::call::is_zero")]
    term: u64,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    replayed: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    r: Option<Answer>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    e: Option<Refusal>,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum LineKind {
    Invoke,
    Ok,
    Fail,
    Info,
}

impl From<Event> for Line {
    fn from(event: Event) -> Self {
        let Event { i, t, p, op, what } = event;
        let empty = Line {
            i,
            t,
            p,
            op: op.0,
            k: LineKind::Invoke,
            rid: None,
            f: None,
            cp: None,
            ts: 0,
            node: 0,
            term: 0,
            replayed: false,
            r: None,
            e: None,
        };
        match what {
            What::Invoke { rid, call } => Line { rid, f: Some(call), ..empty },
            What::Ok(Told { cp, ts, node, term, replayed, answer }) => {
                Line { k: LineKind::Ok, cp, ts, node, term, replayed, r: Some(answer), ..empty }
            }
            What::Fail(refusal) => Line { k: LineKind::Fail, e: Some(refusal), ..empty },
            What::Info(refusal) => Line { k: LineKind::Info, e: Some(refusal), ..empty },
        }
    }
}

impl TryFrom<Line> for Event {
    type Error = String;

    fn try_from(line: Line) -> Result<Self, String> {
        let Line { i, t, p, op, k, rid, f, cp, ts, node, term, replayed, r, e } = line;
        let lacks = |field: &str| format!("expected the field `{field}` in event {i}, but it is not there");
        let what = match k {
            LineKind::Invoke => What::Invoke { rid, call: f.ok_or_else(|| lacks("f"))? },
            LineKind::Ok => What::Ok(Told { cp, ts, node, term, replayed, answer: r.ok_or_else(|| lacks("r"))? }),
            LineKind::Fail => What::Fail(e.ok_or_else(|| lacks("e"))?),
            LineKind::Info => What::Info(e.ok_or_else(|| lacks("e"))?),
        };
        Ok(Event { i, t, p, op: Op(op), what })
    }
}
