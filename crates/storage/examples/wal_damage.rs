//! What a damaged WAL does to the start of a log whose watermark is as old as it can be.
//!
//! `cargo run -p ticketrail-storage --example wal_damage`

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc;

use bytes::Bytes;
use ticketrail_core::GroupId;
use ticketrail_storage::log::{LeaderId, LogId, LogRecord, Payload, RaftLog, Vote};
use ticketrail_storage::rocks::{LogOptions, RocksLog};

const GROUP: GroupId = GroupId(1);
const ENTRIES: u64 = 100;

type Damage = fn(&mut Vec<u8>);

fn main() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    write(dir.path())?;
    let damages: [(&str, Damage); 10] = [
        ("none", |_| {}),
        ("a flipped bit in the middle", |wal| flip(wal, |len| len / 2)),
        ("a flipped bit in the last record", |wal| flip(wal, |len| len - 500)),
        ("a flipped bit in the last byte", |wal| flip(wal, |len| len - 1)),
        ("4 KiB of zeros in the middle", |wal| zero(wal, |len| len / 2)),
        ("zeros instead of the last 500 bytes", |wal| zero(wal, |len| len - 500)),
        ("the last 500 bytes cut off", |wal| wal.truncate(wal.len() - 500)),
        ("the second half cut off", |wal| wal.truncate(wal.len() / 2)),
        ("64 KiB of zeros behind the end", |wal| wal.resize(wal.len() + (64 << 10), 0)),
        ("64 KiB of garbage behind the end", |wal| wal.extend((0..64_u32 << 10).map(|n| (n * 7 + 3) as u8))),
    ];
    for (what, damage) in damages {
        let copied = tempfile::tempdir()?;
        copy(dir.path(), copied.path())?;
        let wal = wal(&copied.path().join("raft"))?;
        let mut bytes = fs::read(&wal)?;
        damage(&mut bytes);
        fs::write(&wal, bytes)?;
        match open(copied.path()) {
            Ok(log) => {
                let last = log.state(GROUP).last.map(|last| last.index);
                println!("{what}: starts, last entry {last:?} of {}", ENTRIES - 1);
            }
            Err(error) => {
                println!("{what}: refused, {}", error.to_string().replace(&copied.path().display().to_string(), "…"));
            }
        }
    }
    Ok(())
}

/// A log of synced entries, each a WAL record of its own, with the watermark as it was before them.
fn write(dir: &Path) -> Result<(), Box<dyn Error>> {
    let log = open(dir)?;
    let (sender, answers) = mpsc::sync_channel(1);
    let leader = LeaderId { term: 1, node: 1 };
    let answer = sender.clone();
    log.save_vote(GROUP, Vote { leader, committed: true }, Box::new(move |r| answer.try_send(r).unwrap_or_default()));
    answers.recv()??;
    let watermark = fs::read(dir.join("WATERMARK"))?;
    for index in 0..ENTRIES {
        let payload = Payload::Normal(Bytes::from(vec![index as u8; 1000]));
        let answer = sender.clone();
        let record = LogRecord { id: LogId { leader, index }, payload };
        log.append(GROUP, vec![record], Box::new(move |r| answer.try_send(r).unwrap_or_default()));
        answers.recv()??;
    }
    drop(log);
    fs::write(dir.join("WATERMARK"), watermark)?;
    Ok(())
}

fn open(dir: &Path) -> Result<RocksLog, ticketrail_storage::OpenError> {
    RocksLog::open(LogOptions::new(dir.join("raft"), dir.join("WATERMARK")))
}

fn flip(bytes: &mut [u8], at: fn(usize) -> usize) {
    bytes[at(bytes.len())] ^= 1;
}

fn zero(bytes: &mut [u8], from: fn(usize) -> usize) {
    let from = from(bytes.len());
    let to = bytes.len().min(from + 4096);
    bytes[from..to].fill(0);
}

fn wal(dir: &Path) -> Result<PathBuf, Box<dyn Error>> {
    let mut files: Vec<PathBuf> =
        fs::read_dir(dir)?.map(|entry| Ok(entry?.path())).collect::<Result<_, std::io::Error>>()?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == "log"));
    files.sort_by_key(|file| fs::metadata(file).map_or(0, |found| found.len()));
    files.pop().ok_or_else(|| "no WAL".into())
}

fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &to.join(entry.file_name()))?;
        } else {
            fs::copy(entry.path(), to.join(entry.file_name()))?;
        }
    }
    Ok(())
}
