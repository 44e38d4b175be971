//! A toy write-ahead log: if it forgets fsync, it must lose what it acknowledged; if it does not, it must not.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;

use anyhow::ensure;
use ticketrail_disk::Crash;

use crate::rig::{Rig, crashes, sync};

const RECORDS: u32 = 200;

struct Wal {
    file: File,
    forgets: bool,
}

impl Wal {
    fn create(path: &Path, forgets: bool) -> anyhow::Result<Self> {
        let file = File::options().append(true).create_new(true).open(path)?;
        file.sync_all()?;
        sync(path.parent().unwrap())?;
        Ok(Self { file, forgets })
    }

    /// Acknowledges a record by returning.
    fn append(&mut self, number: u32) -> anyhow::Result<()> {
        let body = format!("record {number} {}", "x".repeat(number as usize * 7 % 300));
        let sum: u32 = body.bytes().map(u32::from).sum();
        writeln!(self.file, "{sum} {body}")?;
        if !self.forgets {
            self.file.sync_data()?;
        }
        Ok(())
    }

    /// How many whole records there are, from the first on.
    fn recover(path: &Path) -> anyhow::Result<u32> {
        let bytes = fs::read(path)?;
        let text = String::from_utf8_lossy(&bytes);
        let whole = |number: u32, line: &str| {
            let (sum, body) = line.split_once(' ')?;
            let right = sum.parse() == Ok(body.bytes().map(u32::from).sum::<u32>());
            (right && body.starts_with(&format!("record {number} "))).then_some(())
        };
        let lines = text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
        Ok((0..).zip(lines).take_while(|(number, line)| whole(*number, line).is_some()).count() as u32)
    }
}

/// What is left of [`RECORDS`] acknowledged records.
fn survivors(forgets: bool, crash: Crash) -> anyhow::Result<Option<u32>> {
    let Some(rig) = Rig::new()? else { return Ok(None) };
    let mut wal = Wal::create(&rig.path("wal"), forgets)?;
    for number in 0..RECORDS {
        wal.append(number)?;
    }
    drop(wal);
    let before = rig.stats();
    rig.crash(crash)?;
    ensure!((before.dirty_bytes > 0) == forgets, "{before}");
    Ok(Some(Wal::recover(&rig.path("wal"))?))
}

#[test]
fn a_wal_that_forgets_fsync_loses_what_it_acknowledged() -> anyhow::Result<()> {
    let mut left = Vec::new();
    for crash in crashes(6) {
        let Some(survivors) = survivors(true, crash)? else { return Ok(()) };
        left.push(survivors);
    }
    println!("of {RECORDS} records not fsynced there were after the crashes: {left:?}");
    ensure!(left[..2] == [0, 0], "expected nothing to be left, but {left:?}");
    ensure!(left[2..].iter().any(|left| (1..RECORDS).contains(left)), "expected a part to be left, but {left:?}");
    Ok(())
}

#[test]
fn a_wal_that_fsyncs_loses_nothing() -> anyhow::Result<()> {
    for crash in crashes(6) {
        let Some(survivors) = survivors(false, crash)? else { return Ok(()) };
        ensure!(survivors == RECORDS, "expected {RECORDS} records after {crash:?}, but there are {survivors}");
    }
    Ok(())
}

#[test]
fn a_wal_that_fsyncs_on_a_disk_that_lies_loses_all() -> anyhow::Result<()> {
    let Some(rig) = Rig::new()? else { return Ok(()) };
    let mut wal = Wal::create(&rig.path("wal"), false)?;
    wal.append(0)?;
    rig.ask("lie on")?;
    for number in 1..RECORDS {
        wal.append(number)?;
    }
    drop(wal);
    rig.crash(Crash::Plain)?;
    let (left, lies) = (Wal::recover(&rig.path("wal"))?, rig.stats().lies);
    ensure!((left, lies) == (1, u64::from(RECORDS) - 1), "expected one record, but {left} are left after {lies} lies");
    Ok(())
}
