//! Append-only ledgers: JSON lines, each on disk before the next step is taken.
//!
//! A process may be killed while it writes, so a ledger may end in a torn line. Whoever opens it next to write seals
//! that line with a line end; readers skip what does not parse. A torn line was never acted on.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// What a producer writes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "snake_case")]
pub(crate) enum ProducerLine {
    /// The queue has acknowledged an order.
    Acknowledged {
        /// The order.
        order: String,
        /// The message's id.
        message: String,
        /// Whether the reply was that of an earlier attempt: a duplicate was absorbed.
        replayed: bool,
        /// Whether the connection was cut between sending and reading.
        cut: bool,
        /// When the reply came, in nanoseconds of the machine's monotonic clock.
        at_ns: u64,
    },
    /// An order was not acknowledged, or nobody knows.
    Failed {
        /// The order.
        order: String,
        /// Why.
        error: String,
    },
}

/// What a worker of a stage writes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "snake_case")]
pub(crate) enum WorkerLine {
    /// A delivery was worked on; written before its commit is sent.
    Invoked(Invocation),
    /// What the queue answered to its commit, ack or nack.
    Settled {
        /// The delivery.
        #[serde(flatten)]
        invocation: Invocation,
        /// The answer.
        outcome: AckOutcome,
        /// The message for the next stage that was enqueued by the same commit.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        child: Option<String>,
        /// Whether the reply was that of an earlier attempt: a duplicate was absorbed.
        replayed: bool,
        /// When the reply came, in nanoseconds of the machine's monotonic clock.
        at_ns: u64,
    },
}

/// One delivery in a worker's hands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Invocation {
    /// The order.
    pub(crate) order: String,
    /// The message's id.
    pub(crate) message: String,
    /// Leases ever granted on the message, this one included.
    pub(crate) receive_count: u32,
    /// Whether the order was charged by it.
    pub(crate) charge: Charge,
    /// When work on it began, in nanoseconds of the machine's monotonic clock.
    pub(crate) invoked_ns: u64,
}

/// What became of the charge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Charge {
    /// Charged now.
    Charged,
    /// The order stood in the charge ledger already.
    AlreadyCharged,
    /// Not charged: the attempt failed before, or it is none of payment's.
    None,
}

/// What the queue answered to a commit, an ack or a nack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum AckOutcome {
    /// Finished, and at all stages but the last one enqueued for the next.
    Acked,
    /// A permanent nack: in the dead-letter queue.
    DeadLettered,
    /// A transient nack: again, later or at once.
    Again,
    /// The lease was over: somebody else has it.
    LeaseLost,
    /// Refused for another reason, or purged: not expected here.
    Refused,
    /// No answer before the deadline.
    Unknown,
}

/// One line of the charge ledger, which all workers share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ChargeLine {
    /// The order.
    pub(crate) order: String,
    /// The amount in cents.
    pub(crate) cents: u64,
    /// Who charged it.
    pub(crate) worker: String,
    /// For which message.
    pub(crate) message: String,
}

/// A ledger that this process alone appends to.
#[derive(Debug)]
pub(crate) struct Ledger {
    file: File,
    path: PathBuf,
}

impl Ledger {
    /// Opens a ledger to append to it, or begins one.
    pub(crate) fn open(path: &Path) -> anyhow::Result<Self> {
        let mut file = OpenOptions::new()
            .create(true)
            .read(true)
            .append(true)
            .open(path)
            .with_context(|| format!("opening the ledger {}", path.display()))?;
        seal(&mut file).with_context(|| format!("sealing the ledger {}", path.display()))?;
        Ok(Self { file, path: path.to_owned() })
    }

    /// Appends lines; they are on disk when it returns.
    pub(crate) fn append<T: Serialize>(&mut self, lines: &[T]) -> anyhow::Result<()> {
        append(&mut self.file, lines).with_context(|| format!("appending to the ledger {}", self.path.display()))
    }
}

/// Appends lines to `file` in one write and syncs them.
pub(crate) fn append<T: Serialize>(file: &mut File, lines: &[T]) -> anyhow::Result<()> {
    if lines.is_empty() {
        return Ok(());
    }
    let mut text = Vec::new();
    for line in lines {
        serde_json::to_writer(&mut text, line)?;
        text.push(b'\n');
    }
    file.write_all(&text)?;
    file.sync_data()?;
    Ok(())
}

/// Ends a torn last line, left by a writer that was killed.
pub(crate) fn seal(file: &mut File) -> anyhow::Result<()> {
    let length = file.seek(SeekFrom::End(0))?;
    if length == 0 {
        return Ok(());
    }
    file.seek(SeekFrom::Start(length - 1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    if last != *b"\n" {
        file.write_all(b"\n")?;
    }
    Ok(())
}

/// Reads a growing ledger piece by piece.
#[derive(Debug)]
pub(crate) struct Tail {
    path: PathBuf,
    offset: u64,
    torn: Vec<u8>,
}

impl Tail {
    /// From the first line of the ledger at `path`, which need not be there yet.
    pub(crate) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), offset: 0, torn: Vec::new() }
    }

    /// The lines that have come since the last call. What does not parse is skipped.
    pub(crate) fn read<T: DeserializeOwned>(&mut self) -> anyhow::Result<Vec<T>> {
        let mut file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error).with_context(|| format!("reading the ledger {}", self.path.display())),
        };
        file.seek(SeekFrom::Start(self.offset))?;
        let read = file.read_to_end(&mut self.torn)?;
        self.offset += read as u64;
        let whole = self.torn.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let rest = self.torn.split_off(whole);
        let lines = std::mem::replace(&mut self.torn, rest);
        Ok(lines.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect())
    }
}

/// All lines of a ledger.
pub(crate) fn read_all<T: DeserializeOwned>(path: &Path) -> anyhow::Result<Vec<T>> {
    Tail::new(path).read()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(order: &str) -> ChargeLine {
        ChargeLine { order: order.to_owned(), cents: 1, worker: "w".to_owned(), message: "m".to_owned() }
    }

    fn orders(lines: &[ChargeLine]) -> Vec<&str> {
        lines.iter().map(|line| line.order.as_str()).collect()
    }

    #[test]
    fn a_tail_sees_each_line_once() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("ledger.jsonl");
        let mut tail = Tail::new(&path);
        assert!(tail.read::<ChargeLine>().expect("absent is empty").is_empty());
        let mut ledger = Ledger::open(&path).expect("opened");
        ledger.append(&[line("a"), line("b")]).expect("written");
        assert_eq!(orders(&tail.read().expect("read")), ["a", "b"]);
        ledger.append(&[line("c")]).expect("written");
        assert_eq!(orders(&tail.read().expect("read")), ["c"]);
        assert!(tail.read::<ChargeLine>().expect("read").is_empty());
    }

    #[test]
    fn a_torn_line_is_sealed_and_skipped() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("ledger.jsonl");
        Ledger::open(&path).and_then(|mut ledger| ledger.append(&[line("a")])).expect("written");
        let mut torn = OpenOptions::new().append(true).open(&path).expect("opened");
        torn.write_all(b"{\"order\":\"to").expect("written");
        let mut tail = Tail::new(&path);
        assert_eq!(orders(&tail.read().expect("read")), ["a"]);
        Ledger::open(&path).and_then(|mut ledger| ledger.append(&[line("b")])).expect("written");
        assert_eq!(orders(&tail.read().expect("read")), ["b"]);
        assert_eq!(orders(&read_all(&path).expect("read")), ["a", "b"]);
    }

    #[test]
    fn a_worker_line_holds_all_that_the_audit_needs() {
        let settled = WorkerLine::Settled {
            invocation: Invocation {
                order: "CD-1".to_owned(),
                message: "1.1.m4.1".to_owned(),
                receive_count: 2,
                charge: Charge::AlreadyCharged,
                invoked_ns: 5,
            },
            outcome: AckOutcome::Acked,
            child: Some("2.1.m5.1".to_owned()),
            replayed: true,
            at_ns: 9,
        };
        let text = serde_json::to_string(&settled).expect("json");
        assert_eq!(
            text,
            r#"{"line":"settled","order":"CD-1","message":"1.1.m4.1","receive_count":2,"charge":"already_charged","invoked_ns":5,"outcome":"acked","child":"2.1.m5.1","replayed":true,"at_ns":9}"#
        );
        assert_eq!(serde_json::from_str::<WorkerLine>(&text).expect("read"), settled);
    }
}
