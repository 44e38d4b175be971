//! What of one file is not durable: a record for each change since its last fsync, with what undoes it.
//!
//! The file itself holds the bytes as processes see them. Undoing the records from the last to the first gives the
//! bytes on the platter; undoing some of them gives what a disk may hold that wrote some of them before the power went.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use crate::rng::Rng;

/// A page of the kernel's cache, in bytes.
pub(crate) const PAGE: u64 = 4096;
/// The smallest write that a disk does whole, in bytes.
const SECTOR: u64 = 512;
/// With more records, or with more bytes in them, the older half of them becomes durable, as a kernel writes back
/// what has been dirty for long.
const MAX_RECORDS: usize = 65_536;
const MAX_HELD: usize = 64 << 20;

/// A change: undone by giving the file its old size and writing `old` at `offset`.
#[derive(Debug)]
struct Record {
    offset: u64,
    len: u64,
    old_size: u64,
    old: Vec<u8>,
    what: Change,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    Write,
    /// A truncation or an extension: not torn.
    Resize,
    /// A page whose earlier content a failed fsync had dropped is dirty again.
    Again,
}

/// The changes of one file.
#[derive(Debug, Default)]
pub(crate) struct Undo {
    records: VecDeque<Record>,
    /// The sum of the records' `old`.
    held: usize,
    /// The sum of the records' `len`.
    dirty: u64,
    /// Pages that a failed fsync has dropped: clean in the cache, with this content on the disk.
    lost: BTreeMap<u64, Vec<u8>>,
    /// The size on the disk, if a failed fsync has dropped another one.
    lost_size: Option<u64>,
}

impl Undo {
    /// Bytes written, and not durable yet.
    pub(crate) fn dirty(&self) -> u64 {
        self.dirty
    }

    /// To be called before `len` bytes are written (or zeroed) at `offset`.
    pub(crate) fn before_write(&mut self, file: &File, offset: u64, len: u64) -> io::Result<()> {
        let size = file.metadata()?.len();
        self.dirty_again(size, offset, len);
        let end = offset.saturating_add(len).min(size);
        let old = if offset < end { read(file, offset, end - offset)? } else { Vec::new() };
        self.push(Record { offset, len, old_size: size, old, what: Change::Write });
        Ok(())
    }

    /// To be called before the file gets the size `to`.
    pub(crate) fn before_resize(&mut self, file: &File, to: u64) -> io::Result<()> {
        let size = file.metadata()?.len();
        if to == size {
            return Ok(());
        }
        let old = if to < size { read(file, to, size - to)? } else { Vec::new() };
        let (offset, len) = (to.min(size), to.abs_diff(size));
        self.push(Record { offset, len, old_size: size, old, what: Change::Resize });
        Ok(())
    }

    fn push(&mut self, record: Record) {
        self.held += record.old.len();
        self.dirty += record.len;
        self.records.push_back(record);
        while self.records.len() > MAX_RECORDS || self.held > MAX_HELD {
            for _ in 0..self.records.len().div_ceil(2) {
                self.retire_first();
            }
        }
    }

    /// The oldest change has become durable.
    fn retire_first(&mut self) {
        let Some(record) = self.records.pop_front() else { return };
        self.held -= record.old.len();
        self.dirty -= record.len;
        if record.what == Change::Resize && record.offset < record.old_size {
            self.lost.retain(|page, _| page * PAGE < record.offset);
        }
        self.lost_size = None;
    }

    /// All is durable.
    pub(crate) fn settle(&mut self) {
        while !self.records.is_empty() {
            self.retire_first();
        }
    }

    /// Pages that are written again take all that is in them to the disk with them: also what an fsync had dropped.
    fn dirty_again(&mut self, size: u64, offset: u64, len: u64) {
        if self.lost.is_empty() || len == 0 {
            return;
        }
        let pages = offset / PAGE..=(offset + len - 1) / PAGE;
        let again: Vec<u64> = self.lost.range(pages).map(|(page, _)| *page).collect();
        for page in again {
            let mut old = self.lost.remove(&page).unwrap_or_default();
            let in_file = size.saturating_sub(page * PAGE).min(PAGE);
            old.resize(usize::try_from(in_file).unwrap_or(0), 0);
            let record = Record { offset: page * PAGE, len: in_file, old_size: size, old, what: Change::Again };
            self.push(record);
        }
    }

    /// Undoes all but the first `keep` changes.
    fn roll_back(&mut self, file: &File, keep: usize) -> io::Result<()> {
        while self.records.len() > keep {
            let Some(record) = self.records.pop_back() else { break };
            self.held -= record.old.len();
            self.dirty -= record.len;
            file.set_len(record.old_size)?;
            file.write_all_at(&record.old, record.offset)?;
        }
        Ok(())
    }

    /// What is on the disk now is what the file holds; what failed fsyncs have dropped is gone.
    fn end(&mut self, file: &File) -> io::Result<()> {
        // What of the changes was kept, came to the disk with the size.
        if !self.records.is_empty() {
            self.settle();
        }
        let size = match self.lost_size.take() {
            Some(size) => size,
            None => file.metadata()?.len(),
        };
        for (page, mut old) in std::mem::take(&mut self.lost) {
            old.resize(PAGE as usize, 0);
            file.write_all_at(&old, page * PAGE)?;
        }
        file.set_len(size)
    }

    /// The pages that the changes touch, as far as the file has them.
    fn pages(&self, size: u64) -> BTreeSet<u64> {
        let mut pages = BTreeSet::new();
        for record in &self.records {
            let end = record.offset.saturating_add(record.len).min(size);
            if record.offset < end {
                pages.extend(record.offset / PAGE..=(end - 1) / PAGE);
            }
        }
        pages
    }

    /// An fsync fails, and the kernel takes the pages for clean: processes still read what they wrote, the disk does
    /// not have it, and nothing will bring it there but another write to the same page.
    pub(crate) fn drop_pages(&mut self, file: &File) -> io::Result<()> {
        let size = file.metadata()?.len();
        let mut pages = self.pages(size);
        let live = read_pages(file, &pages, size)?;
        self.roll_back(file, 0)?;
        let durable = file.metadata()?.len();
        if durable > size {
            pages.extend(size / PAGE..=(durable - 1) / PAGE);
        }
        for page in &pages {
            let old = read_page(file, *page, durable)?;
            self.lost.entry(*page).or_insert(old);
        }
        self.lost_size.get_or_insert(durable);
        file.set_len(size)?;
        for (page, bytes) in live {
            file.write_all_at(&bytes, page * PAGE)?;
        }
        Ok(())
    }

    /// The power is gone: no change is on the disk.
    pub(crate) fn crash(&mut self, file: &File) -> io::Result<()> {
        self.roll_back(file, 0)?;
        self.end(file)
    }

    /// The power is gone: the first changes are on the disk, one of them perhaps in part, up to the end of a sector
    /// or a page.
    pub(crate) fn crash_torn(&mut self, file: &File, rng: &mut Rng) -> io::Result<()> {
        let keep = rng.below(self.records.len() as u64 + 1) as usize;
        let unit = if rng.coin() { SECTOR } else { PAGE };
        let torn = match self.records.get(keep) {
            Some(Record { offset, len, what: Change::Write, .. }) => Some((*offset, prefix(*offset, *len, unit, rng))),
            Some(_) | None => None,
        };
        let mut part = Vec::new();
        if let Some((offset, len)) = torn {
            self.roll_back(file, keep + 1)?;
            part = read(file, offset, len)?;
        }
        self.roll_back(file, keep)?;
        if let Some((offset, _)) = torn.filter(|_| !part.is_empty()) {
            file.write_all_at(&part, offset)?;
            self.lost_size = None;
        }
        self.end(file)
    }

    /// The power is gone: some of the dirty pages are on the disk, whichever. So may be a truncation.
    pub(crate) fn crash_reordered(&mut self, file: &File, rng: &mut Rng) -> io::Result<()> {
        let live_size = file.metadata()?.len();
        let pages = self.pages(live_size).into_iter().filter(|_| rng.coin()).collect();
        let kept = read_pages(file, &pages, live_size)?;
        self.roll_back(file, 0)?;
        if live_size < file.metadata()?.len() && rng.coin() {
            file.set_len(live_size)?;
            self.lost.retain(|page, _| page * PAGE < live_size);
        }
        if !kept.is_empty() {
            self.lost_size = None;
        }
        for (page, bytes) in kept {
            self.lost.remove(&page);
            file.write_all_at(&bytes, page * PAGE)?;
        }
        self.end(file)
    }
}

/// How much of a write of `len` bytes at `offset` is kept: nothing, or up to a border of `unit` bytes in it.
fn prefix(offset: u64, len: u64, unit: u64, rng: &mut Rng) -> u64 {
    let first = (offset / unit + 1) * unit;
    let end = offset + len;
    let borders = if end > first { (end - first - 1) / unit + 1 } else { 0 };
    match rng.below(borders + 1) {
        0 => 0,
        n => first + (n - 1) * unit - offset,
    }
}

/// What the file has of `len` bytes at `offset`.
pub(crate) fn read(file: &File, offset: u64, len: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(len).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?];
    let mut done = 0;
    while done < bytes.len() {
        match file.read_at(&mut bytes[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(done);
    Ok(bytes)
}

fn read_page(file: &File, page: u64, size: u64) -> io::Result<Vec<u8>> {
    read(file, page * PAGE, size.saturating_sub(page * PAGE).min(PAGE))
}

fn read_pages(file: &File, pages: &BTreeSet<u64>, size: u64) -> io::Result<Vec<(u64, Vec<u8>)>> {
    pages.iter().map(|page| Ok((*page, read_page(file, *page, size)?))).collect()
}
