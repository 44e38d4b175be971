//! Writes a run's history and its faults while the run goes on.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;

use crate::format::{Call, Event, NemesisLine, Op, Phase, Refusal, Rid, Told, What};
use crate::run;

/// Writes `history.jsonl` and `nemesis.jsonl`. Cheap to clone; all clones write to the same files and read the same
/// clock.
///
/// Nothing that is recorded fails: the first error of the files is kept for [`Recorder::finish`].
#[derive(Clone)]
pub struct Recorder {
    shared: Arc<Shared>,
}

struct Shared {
    clock: Box<dyn Fn() -> Duration + Send + Sync>,
    files: Mutex<Files>,
}

struct Files {
    history: JsonLines,
    nemesis: JsonLines,
    /// The number of the next event.
    next: u64,
    /// The number of the next operation.
    next_op: u64,
    /// The latest time written: the file's times never go back, also where two threads read the clock in turn.
    last: u64,
}

/// How much was recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recorded {
    /// Events.
    pub events: u64,
    /// Operations.
    pub ops: u64,
}

impl Recorder {
    /// Makes the files in `dir`, which must be there. `clock` tells the time since the run's begin; it must be real time
    /// (in a simulation the simulation's), and never go back.
    pub fn create(dir: &Path, clock: impl Fn() -> Duration + Send + Sync + 'static) -> io::Result<Self> {
        let files = Files {
            history: JsonLines::create(&dir.join(run::HISTORY))?,
            nemesis: JsonLines::create(&dir.join(run::NEMESIS))?,
            next: 0,
            next_op: 0,
            last: 0,
        };
        Ok(Self { shared: Arc::new(Shared { clock: Box::new(clock), files: Mutex::new(files) }) })
    }

    /// The clock's time.
    pub fn now(&self) -> Duration {
        (self.shared.clock)()
    }

    /// A client asks now. To be called before anything is sent.
    pub fn invoke(&self, client: u32, rid: Option<Rid>, call: Call) -> Op {
        let mut files = self.lock();
        let op = Op(files.next_op);
        files.next_op += 1;
        self.write(&mut files, client, op, What::Invoke { rid, call });
        op
    }

    /// The answer has come.
    pub fn ok(&self, client: u32, op: Op, told: Told) {
        self.write(&mut self.lock(), client, op, What::Ok(told));
    }

    /// It did certainly not happen.
    pub fn fail(&self, client: u32, op: Op, refusal: Refusal) {
        self.write(&mut self.lock(), client, op, What::Fail(refusal));
    }

    /// Whether it happened is unknown. The client ends with this: its later operations are those of a new client.
    pub fn info(&self, client: u32, op: Op, refusal: Refusal) {
        self.write(&mut self.lock(), client, op, What::Info(refusal));
    }

    /// A fault begins, has taken effect, or ends.
    pub fn nemesis(&self, fault: &str, target: &str, phase: Phase, detail: impl Into<String>) {
        let mut files = self.lock();
        let t = nanos(self.now());
        let (fault, target) = (fault.to_owned(), target.to_owned());
        files.nemesis.write(&NemesisLine { t, fault, target, phase, detail: detail.into() });
    }

    /// Writes what is buffered. The first error since the beginning, if there was one; what is recorded later is lost.
    pub fn finish(&self) -> io::Result<Recorded> {
        let mut files = self.lock();
        files.history.finish()?;
        files.nemesis.finish()?;
        Ok(Recorded { events: files.next, ops: files.next_op })
    }

    fn write(&self, files: &mut Files, client: u32, op: Op, what: What) {
        // Read under the lock, so that the lines stand in the order of their times.
        let t = nanos(self.now()).max(files.last);
        files.last = t;
        let event = Event { i: files.next, t, p: client, op, what };
        files.next += 1;
        files.history.write(&event);
    }

    fn lock(&self) -> MutexGuard<'_, Files> {
        // A panic in between leaves at worst a line half written, which the reader refuses.
        self.shared.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Writes one JSON document a line, buffered. Keeps the first error for `finish`.
pub struct JsonLines {
    path: PathBuf,
    out: BufWriter<File>,
    error: Option<io::Error>,
}

impl JsonLines {
    /// Makes the file, or empties it.
    pub fn create(path: &Path) -> io::Result<Self> {
        let at = |e: io::Error| io::Error::new(e.kind(), format!("expected to make {}, but {e}", path.display()));
        let out = BufWriter::with_capacity(1 << 20, File::create(path).map_err(at)?);
        Ok(Self { path: path.to_owned(), out, error: None })
    }

    /// Writes a line.
    pub fn write(&mut self, line: &impl Serialize) {
        if self.error.is_some() {
            return;
        }
        let written = serde_json::to_writer(&mut self.out, line).map_err(io::Error::from);
        if let Err(e) = written.and_then(|()| self.out.write_all(b"\n")) {
            self.error = Some(e);
        }
    }

    /// Writes what is buffered; the first error, if there was one.
    pub fn finish(&mut self) -> io::Result<()> {
        let result = self.error.take().map_or(Ok(()), Err).and_then(|()| self.out.flush());
        result.map_err(|e| io::Error::new(e.kind(), format!("expected to write {}, but {e}", self.path.display())))
    }
}
