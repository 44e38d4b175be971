//! Bytes: which of them a crash leaves.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::FileExt as _;

use anyhow::ensure;
use ticketrail_disk::Crash;

use crate::rig::Rig;

const PAGE: usize = 4096;

#[test]
fn the_size_goes_with_the_bytes_by_fdatasync_too() -> anyhow::Result<()> {
    let Some(rig) = Rig::new()? else { return Ok(()) };
    let file = rig.durable("a", b"one")?;
    file.write_all_at(b"two", 3)?;
    file.sync_data()?;
    file.write_all_at(b"three", 6)?;
    file.set_len(9)?;
    assert_eq!(rig.content("a").unwrap(), b"onetwothr");
    drop(file);
    rig.crash(Crash::Plain)?;
    assert_eq!(rig.content("a").unwrap(), b"onetwo");
    Ok(())
}

#[test]
fn overwritten_truncated_and_extended_bytes_come_back() -> anyhow::Result<()> {
    let Some(rig) = Rig::new()? else { return Ok(()) };
    let old: Vec<u8> = (0..20_000u32).map(|i| i as u8).collect();
    let file = rig.durable("a", &old)?;
    file.write_all_at(&[7; 9_000], 3_000)?;
    file.set_len(5_000)?;
    file.set_len(50_000)?;
    file.write_all_at(b"far", 100_000)?;
    assert_eq!(rig.content("a").unwrap().len(), 100_003);
    File::create(rig.path("a"))?.write_all(b"anew")?;
    assert_eq!(rig.content("a").unwrap(), b"anew");
    rig.crash(Crash::Plain)?;
    assert!(rig.content("a").unwrap() == old);
    Ok(())
}

#[test]
fn a_torn_write_ends_at_a_sector_and_nothing_comes_after_it() -> anyhow::Result<()> {
    let Some(rig) = Rig::new()? else { return Ok(()) };
    let (mut ends, writes) = (BTreeSet::new(), [0, 700, 3_000, 20_000]);
    for seed in 0..60 {
        let name = format!("f{seed}");
        let file = rig.durable(&name, b"")?;
        for (nth, window) in writes.windows(2).enumerate() {
            file.write_all_at(&vec![nth as u8 + 1; window[1] - window[0]], window[0] as u64)?;
        }
        drop(file);
        rig.crash(Crash::Torn { seed })?;
        let left = rig.content(&name).unwrap();
        let expected: Vec<u8> =
            writes.windows(2).zip(1..).flat_map(|(window, nth)| vec![nth; window[1] - window[0]]).collect();
        ensure!(expected.starts_with(&left), "expected a prefix of what was written, but got {} bytes", left.len());
        ensure!(writes.contains(&left.len()) || left.len() % 512 == 0, "expected a sector's end, but {}", left.len());
        ends.insert(left.len());
    }
    let torn: Vec<_> = ends.iter().filter(|end| !writes.contains(end)).collect();
    println!("files end after: {ends:?}");
    ensure!(torn.len() > 3 && torn.iter().any(|end| **end % PAGE != 0), "expected torn writes, but {ends:?}");
    ensure!(ends.contains(&0) && ends.contains(&20_000), "expected none and all of the writes too, but {ends:?}");
    Ok(())
}

#[test]
fn a_torn_overwrite_keeps_the_old_bytes_behind_it() -> anyhow::Result<()> {
    let Some(rig) = Rig::new()? else { return Ok(()) };
    let mut borders = BTreeSet::new();
    for seed in 0..40 {
        let name = format!("f{seed}");
        let file = rig.durable(&name, &[1; 10_000])?;
        file.write_all_at(&[2; 10_000], 0)?;
        drop(file);
        rig.crash(Crash::Torn { seed })?;
        let left = rig.content(&name).unwrap();
        let border = left.iter().position(|byte| *byte == 1).unwrap_or(left.len());
        ensure!(left.len() == 10_000 && left[border..].iter().all(|byte| *byte == 1), "expected new, then old bytes");
        borders.insert(border);
    }
    ensure!(borders.iter().any(|border| (1..10_000).contains(border)), "expected a torn write, but {borders:?}");
    Ok(())
}

#[test]
fn a_reordering_crash_keeps_any_pages() -> anyhow::Result<()> {
    let Some(rig) = Rig::new()? else { return Ok(()) };
    let (mut later_alone, mut seen) = (0, BTreeSet::new());
    for seed in 0..30 {
        let name = format!("f{seed}");
        // Two pages are old, two are new.
        let file = rig.durable(&name, &[1; 2 * PAGE])?;
        for page in 0..4u8 {
            file.write_all_at(&[page + 10; PAGE], u64::from(page) * PAGE as u64)?;
        }
        drop(file);
        rig.crash(Crash::Reordered { seed })?;
        let mut left = rig.content(&name).unwrap();
        ensure!(left.len() % PAGE == 0 && left.len() >= 2 * PAGE, "expected whole pages, but {} bytes", left.len());
        left.resize(4 * PAGE, 0);
        let kept: Vec<bool> = left
            .chunks(PAGE)
            .zip([(1, 10), (1, 11), (0, 12), (0, 13)])
            .map(|(page, (old, new))| {
                ensure!(page.iter().all(|byte| *byte == page[0]), "expected whole pages");
                ensure!(page[0] == old || page[0] == new, "expected {old} or {new}, but {}", page[0]);
                Ok(page[0] == new)
            })
            .collect::<anyhow::Result<_>>()?;
        later_alone += u32::from(!kept[0] && kept[3]);
        seen.insert(kept);
    }
    ensure!(
        later_alone > 2 && seen.len() > 7,
        "expected later pages without earlier ones, but {later_alone}: {seen:?}"
    );
    Ok(())
}

#[test]
fn after_a_crash_all_that_is_left_is_durable() -> anyhow::Result<()> {
    let Some(rig) = Rig::new()? else { return Ok(()) };
    for seed in 0..10 {
        let mut file = File::create(rig.path(&format!("f{seed}")))?;
        file.write_all(&[3; 30_000])?;
        file.seek(SeekFrom::Start(10))?;
        file.write_all(&[4; 30_000])?;
        if seed == 4 {
            rig.sync_root()?;
        }
    }
    rig.crash(Crash::Reordered { seed: 5 })?;
    let read = || -> anyhow::Result<Vec<_>> {
        Ok(rig.list(".")?.into_iter().map(|name| (rig.content(&name), name)).collect())
    };
    let left = read()?;
    ensure!(left.len() >= 5, "expected the names that were durable, but {left:?}");
    for crash in crate::rig::crashes(2) {
        rig.crash(crash)?;
        ensure!(read()? == left, "expected nothing to change by {crash:?}");
    }
    ensure!(rig.stats().dirty_bytes == 0 && rig.stats().dirty_names == 0, "{}", rig.stats());
    Ok(())
}
