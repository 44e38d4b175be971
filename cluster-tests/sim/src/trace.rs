//! What happened when, in simulated time. Two runs of one seed must tell the same, byte for byte.

use std::fmt;
use std::fs::File;
use std::hash::Hasher as _;
use std::io::{self, BufWriter, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use siphasher::sip::SipHasher13;

/// The story of a run. Clones write to the same.
#[derive(Clone)]
pub struct Trace(Arc<Shared>);

struct Shared {
    /// Simulated time where nobody runs: between two steps.
    between_us: AtomicU64,
    inner: Mutex<Inner>,
}

struct Inner {
    file: Option<BufWriter<File>>,
    lines: u64,
    line: String,
    digest: SipHasher13,
    /// Bytes written to connections, in their order.
    wire: SipHasher13,
    wire_bytes: u64,
}

/// What two runs have to agree on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Digest {
    /// Lines told.
    pub lines: u64,
    /// A hash of all of them.
    pub hash: u64,
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x} of {} lines", self.hash, self.lines)
    }
}

impl Trace {
    /// A trace that is written to `file`, if one is given.
    pub fn new(file: Option<&Path>) -> io::Result<Self> {
        let file = file.map(File::create).transpose()?.map(BufWriter::new);
        let inner = Inner {
            file,
            lines: 0,
            line: String::new(),
            digest: SipHasher13::new(),
            wire: SipHasher13::new(),
            wire_bytes: 0,
        };
        Ok(Self(Arc::new(Shared { between_us: AtomicU64::new(0), inner: Mutex::new(inner) })))
    }

    /// Simulated time since the start of the run.
    pub fn now(&self) -> Duration {
        turmoil::sim_elapsed().unwrap_or(Duration::from_micros(self.0.between_us.load(Ordering::Relaxed)))
    }

    /// Takes note of the time between two steps.
    pub fn step(&self, elapsed: Duration) {
        self.0.between_us.store(u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Tells that something happened to `who`.
    pub fn tell(&self, who: &str, what: fmt::Arguments<'_>) {
        let now = self.now();
        let mut inner = self.0.inner.lock();
        let mut line = std::mem::take(&mut inner.line);
        line.clear();
        // Writing to a string does not fail.
        let _ = fmt::write(&mut line, format_args!("{}.{:06} {who} {what}\n", now.as_secs(), now.subsec_micros()));
        inner.digest.write(line.as_bytes());
        inner.lines += 1;
        if let Some(file) = &mut inner.file
            && let Err(error) = file.write_all(line.as_bytes())
        {
            eprintln!("expected to write the trace, but {error}");
            inner.file = None;
        }
        inner.line = line;
    }

    /// Takes note of bytes that are written to a connection.
    pub fn sent(&self, bytes: &[u8]) {
        let mut inner = self.0.inner.lock();
        inner.wire.write(bytes);
        inner.wire_bytes += bytes.len() as u64;
    }

    /// Tells what all connections have carried so far.
    pub fn tell_wire(&self) {
        let (bytes, hash) = {
            let inner = self.0.inner.lock();
            (inner.wire_bytes, inner.wire.finish())
        };
        self.tell("net", format_args!("{bytes} bytes, hash {hash:016x}"));
    }

    /// Ends the trace.
    pub fn end(&self) -> io::Result<Digest> {
        self.tell_wire();
        let mut inner = self.0.inner.lock();
        if let Some(file) = &mut inner.file {
            file.flush()?;
        }
        Ok(Digest { lines: inner.lines, hash: inner.digest.finish() })
    }
}
