//! Takes checkpoints of a growing state while commits go on, copies each into a second store file by file, installs it,
//! and compares the two at the position of the checkpoint.
//!
//! `cargo run -p ticketrail-storage --example checkpoint_copy [directory on the disk to measure]`

use std::error::Error;
use std::fs::{self, File};
use std::io::{Read, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use ticketrail_core::{GroupId, Write, WriteSet};
use ticketrail_storage::log::{LeaderId, LogId};
use ticketrail_storage::rocks::{RocksState, StateOptions};
use ticketrail_storage::state::{Applied, StateError, StateStore};

const CHUNK: usize = 1 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let parent = std::env::args_os().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let (here, there) = (tempfile::tempdir_in(&parent)?, tempfile::tempdir_in(&parent)?);
    let state = RocksState::open(StateOptions::new(here.path().join("1"), GroupId(1)))?;
    let other = RocksState::open(StateOptions::new(there.path().join("1"), GroupId(1)))?;
    // 100,000 messages of 1 KiB and 2,000 bodies of 16 KiB to begin with.
    for index in 1..=2000 {
        state.commit(&writes(index), &applied(index))?;
    }
    let (stop, worst) = (AtomicBool::new(false), AtomicU64::new(0));
    let committed = thread::scope(|scope| -> Result<u64, Box<dyn Error>> {
        let writer = scope.spawn(|| {
            let mut index = 2001;
            while !stop.load(Ordering::SeqCst) {
                let start = Instant::now();
                state.commit(&writes(index), &applied(index))?;
                worst.fetch_max(start.elapsed().as_micros() as u64, Ordering::SeqCst);
                index += 1;
                // About 100 entries a second.
                thread::park_timeout(Duration::from_millis(10));
            }
            Ok::<u64, StateError>(index - 1)
        });
        let run = (0..3).try_for_each(|_| copy_once(&state, &other));
        stop.store(true, Ordering::SeqCst);
        let committed = writer.join().map_err(|_| "the writer panicked")??;
        run.map(|()| committed)
    })?;
    println!(
        "{committed} entries committed meanwhile and before; the slowest commit took {:.1} ms",
        worst.load(Ordering::SeqCst) as f64 / 1e3
    );
    Ok(())
}

fn copy_once(state: &RocksState, other: &RocksState) -> Result<(), Box<dyn Error>> {
    let ms = |start: Instant| start.elapsed().as_secs_f64() * 1e3;
    let start = Instant::now();
    let checkpoint = state.checkpoint()?;
    let taken = ms(start);
    let start = Instant::now();
    let incoming = other.incoming()?;
    let bytes = send(checkpoint.path(), &incoming)?;
    let sent = ms(start);
    let start = Instant::now();
    let staged = other.stage(incoming)?;
    let verified = ms(start);
    let start = Instant::now();
    other.install(&staged)?;
    let installed = ms(start);
    let at = other.applied();
    if at != state.checkpoint_applied(&checkpoint) {
        return Err(format!("expected {:?}, got {at:?}", state.checkpoint_applied(&checkpoint)).into());
    }
    let index = at.last.ok_or("nothing is applied")?.index;
    compare(other, index)?;
    println!(
        "at entry {index}: taken in {taken:.0} ms, {:.0} MB copied in {sent:.0} ms, staged in {verified:.0} ms, \
         installed in {installed:.1} ms; equal",
        bytes as f64 / 1e6
    );
    Ok(())
}

/// Copies every file in chunks, so that no more than one is ever in memory.
fn send(from: &Path, to: &Path) -> Result<u64, Box<dyn Error>> {
    let mut bytes = 0;
    let mut chunk = vec![0; CHUNK];
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (mut source, mut target) = (File::open(entry.path())?, File::create(to.join(entry.file_name()))?);
        loop {
            let len = source.read(&mut chunk)?;
            if len == 0 {
                break;
            }
            target.write_all(&chunk[..len])?;
            bytes += len as u64;
        }
    }
    Ok(bytes)
}

/// Compares `state` with what `index` entries write.
fn compare(state: &RocksState, index: u64) -> Result<(), Box<dyn Error>> {
    for at in 1..=index {
        for write in writes(at).iter() {
            if let Write::Put { key, value } = write {
                let found = state.read(|view| view.get(key))?;
                let gone = at + 1500 <= index && key.starts_with(b"m");
                if found.as_ref() != Some(value).filter(|_| !gone) {
                    return Err(format!("key {key:?} differs at entry {at}").into());
                }
            }
        }
    }
    Ok(())
}

/// An entry: 50 messages, one large body, and the messages of an old entry deleted.
fn writes(index: u64) -> WriteSet {
    let key = |space: &str, index: u64, number: u64| Bytes::from(format!("{space}{index:08}{number:03}"));
    let fill = |len: usize, number: u64| -> Bytes {
        (0..len as u64).map(|at| ((index + number) * 31 + at * at) as u8).collect::<Vec<u8>>().into()
    };
    let messages = (0..50).map(|number| Write::Put { key: key("m", index, number), value: fill(1024, number) });
    let body = Write::Put { key: key("b", index, 0), value: fill(16 << 10, 0) };
    let old = index.checked_sub(1500).filter(|old| *old > 0);
    let acked = old.into_iter().flat_map(|old| (0..50).map(move |number| Write::Delete { key: key("m", old, number) }));
    messages.chain([body]).chain(acked).collect()
}

fn applied(index: u64) -> Applied {
    let last = Some(LogId { leader: LeaderId { term: 1, node: 1 }, index });
    Applied { last, membership: Bytes::from_static(b"members") }
}
