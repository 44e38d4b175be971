//! Faults other than a lost power.

use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::FileExt as _;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use anyhow::ensure;
use ticketrail_disk::Crash;

use crate::rig::{Rig, sync};

/// Longer than anything here takes.
const DEADLINE: Duration = Duration::from_secs(30);

#[track_caller]
fn assert_eio<T>(what: &str, answer: std::io::Result<T>) {
    match answer {
        Ok(_) => panic!("expected {what} to fail"),
        Err(error) => assert_eq!(error.raw_os_error(), Some(nix::errno::Errno::EIO as i32), "{what}: {error}"),
    }
}

#[test]
fn each_operation_fails_where_it_is_told_to() -> anyhow::Result<()> {
    let Some(rig) = Rig::new()? else { return Ok(()) };
    let file = rig.durable("bad-file", b"bytes")?;
    let good = rig.durable("good-file", b"bytes")?;
    fs::create_dir(rig.path("bad-dir"))?;
    let bad = rig.path("bad-file");
    for op in ["read", "write", "fsync", "open", "create", "resize", "rename", "link", "unlink", "list"] {
        // What the kernel has read it does not read again.
        rig.ask("bitflip bad-file 0")?;
        rig.ask(&format!("eio {op} ^bad 1"))?;
        match op {
            "read" => assert_eio(op, file.read_at(&mut [0; 5], 0)),
            "write" => assert_eio(op, file.write_at(b"x", 0)),
            "fsync" => {
                assert_eio(op, file.sync_all());
                assert_eio("fsync of a directory", File::open(rig.path("bad-dir"))?.sync_all());
            }
            "open" => assert_eio(op, File::open(&bad)),
            "create" => {
                assert_eio(op, File::create(rig.path("bad-new")));
                assert_eio("mkdir", fs::create_dir(rig.path("bad-new")));
            }
            "resize" => assert_eio(op, file.set_len(3)),
            "rename" => assert_eio(op, fs::rename(&bad, rig.path("x"))),
            "link" => assert_eio(op, fs::hard_link(rig.path("good-file"), rig.path("bad-link"))),
            "unlink" => {
                assert_eio(op, fs::remove_file(&bad));
                assert_eio("rmdir", fs::remove_dir(rig.path("bad-dir")));
            }
            "list" => assert_eio(op, fs::read_dir(rig.path("bad-dir"))),
            _ => unreachable!(),
        }
        good.write_all_at(b"still fine", 0)?;
        good.sync_all()?;
        rig.ask("clear")?;
    }
    ensure!(rig.stats().eios >= 13, "{}", rig.stats());
    assert_eq!(rig.content("bad-file").unwrap().len(), 5);
    assert_eq!(rig.content("good-file").unwrap(), b"still fine");
    Ok(())
}

#[test]
fn errors_come_with_their_probability_and_an_fsync_that_failed_can_be_repeated() -> anyhow::Result<()> {
    let Some(rig) = Rig::new()? else { return Ok(()) };
    let file = rig.durable("a", b"")?;
    rig.ask("eio fsync a$ 0.5")?;
    let failed = (0..200).filter(|_| file.sync_all().is_err()).count() as u64;
    ensure!((50..150).contains(&failed) && failed == rig.stats().eios, "expected about half, but {failed}");
    rig.ask("clear")?;
    rig.ask("eio fsync a$ 1")?;
    file.write_all_at(b"bytes", 0)?;
    assert_eio("fsync", file.sync_all());
    rig.ask("clear")?;
    file.sync_all()?;
    drop(file);
    rig.crash(Crash::Plain)?;
    assert_eq!(rig.content("a").unwrap(), b"bytes");
    Ok(())
}

#[test]
fn an_fsync_that_failed_once_says_ok_the_second_time_though_the_bytes_are_gone() -> anyhow::Result<()> {
    let Some(rig) = Rig::new()? else { return Ok(()) };
    let file = rig.durable("wal", &[b'a'; 10_000])?;
    rig.ask("fsyncgate wal")?;
    file.write_all_at(&[b'b'; 10_000], 5_000)?;
    assert_eio("fsync", file.sync_data());
    file.sync_data()?;
    assert_eq!(rig.content("wal").unwrap()[5_000..], [b'b'; 10_000], "processes still read what they wrote");
    ensure!((rig.stats().gates, rig.stats().dirty_bytes) == (1, 0), "{}", rig.stats());
    // What comes later does reach the disk, and leaves a hole.
    file.write_all_at(&[b'c'; 10], 16_384)?;
    file.sync_data()?;
    drop(file);
    rig.crash(Crash::Plain)?;
    let left = rig.content("wal").unwrap();
    assert_eq!(left.len(), 16_394);
    assert_eq!(left[..10_000], [b'a'; 10_000]);
    assert_eq!(left[10_000..16_384], [0; 6_384]);
    assert_eq!(left[16_384..], [b'c'; 10]);
    Ok(())
}

#[test]
fn a_page_written_again_takes_what_was_dropped_to_the_disk() -> anyhow::Result<()> {
    let Some(rig) = Rig::new()? else { return Ok(()) };
    for fsynced in [false, true] {
        let name = format!("f{fsynced}");
        let file = rig.durable(&name, b"")?;
        rig.ask(&format!("fsyncgate {name}"))?;
        file.write_all_at(&[b'x'; 8_192], 0)?;
        assert_eio("fsync", file.sync_all());
        file.write_all_at(b"y", 4_096)?;
        if fsynced {
            file.sync_all()?;
        }
        drop(file);
        rig.crash(Crash::Plain)?;
        let left = rig.content(&name).unwrap();
        if fsynced {
            assert_eq!(left[..4_096], [0; 4_096]);
            assert_eq!(left[4_096..4_098], *b"yx");
            assert_eq!(left.len(), 8_192);
        } else {
            assert_eq!(left, b"");
        }
    }
    Ok(())
}

#[test]
fn a_full_disk_refuses_and_recovers() -> anyhow::Result<()> {
    let Some(rig) = Rig::new()? else { return Ok(()) };
    let mut file = rig.durable("a", &[1; 100_000])?;
    rig.ask("enospc 65536")?;
    let mut written = 0;
    let refused = loop {
        match file.write(&[2; 4_096]) {
            Ok(n) => written += n,
            Err(error) => break error,
        }
        ensure!(written < 200_000, "expected the disk to be full");
    };
    assert_eq!(refused.kind(), ErrorKind::StorageFull);
    ensure!((60_000..=70_000).contains(&written), "expected about 65,536 bytes, but {written}");
    let free = || nix::sys::statvfs::statvfs(rig.dir()).map(|stat| stat.blocks_available() * stat.fragment_size());
    ensure!(free()? < 4_096, "expected a full disk, but {} bytes are free", free()?);
    assert_eq!(File::create(rig.path("b")).unwrap_err().kind(), ErrorKind::StorageFull);
    let allocated = nix::fcntl::posix_fallocate(&file, 0, 1 << 20);
    assert_eq!(allocated, Err(nix::errno::Errno::ENOSPC));
    file.write_all_at(&[3; 4_096], 0)?;
    file.set_len(10)?;
    ensure!(free()? > 100_000, "expected room, but {} bytes are free", free()?);
    fs::write(rig.path("b"), [4; 50_000])?;
    fs::remove_file(rig.path("b"))?;
    fs::write(rig.path("c"), [4; 100_000])?;
    rig.ask("clear")?;
    fs::write(rig.path("d"), [4; 300_000])?;
    ensure!(rig.stats().enospcs >= 3, "{}", rig.stats());
    Ok(())
}

#[test]
fn a_delay_holds_until_its_time_or_until_it_is_cleared() -> anyhow::Result<()> {
    let Some(rig) = Rig::new()? else { return Ok(()) };
    let file = rig.durable("a", b"")?;
    rig.ask("delay fsync 30..60")?;
    let begun = Instant::now();
    file.sync_all()?;
    ensure!(begun.elapsed() >= Duration::from_millis(30), "expected a delay, but it took {:?}", begun.elapsed());
    rig.ask("delay fsync 3600000")?;
    let before = rig.stats().delays;
    let (done, answered) = sync_channel(1);
    std::thread::scope(|scope| -> anyhow::Result<()> {
        scope.spawn(|| done.send(file.sync_all().is_ok()));
        // The others go on meanwhile.
        while rig.stats().delays == before {
            fs::write(rig.path("b"), b"x")?;
        }
        let early = answered.try_recv();
        rig.ask("clear")?;
        ensure!(early.is_err(), "expected the fsync to wait");
        ensure!(answered.recv_timeout(DEADLINE)?, "expected it to succeed after its delay");
        Ok(())
    })
}

#[test]
fn a_flipped_bit_is_seen_at_once_and_stays() -> anyhow::Result<()> {
    let Some(rig) = Rig::new()? else { return Ok(()) };
    let file = rig.durable("000007.sst", b"0123456789")?;
    rig.durable("other", b"0123456789")?;
    assert_eq!(rig.content("000007.sst").unwrap(), b"0123456789");
    let told = rig.ask("bitflip sst$ -1")?;
    assert_eq!(told, "000007.sst");
    let mut last = [0];
    file.read_exact_at(&mut last, 9)?;
    assert_eq!(last[0], b'9' ^ 0x10);
    rig.ask("bitflip ^000 2")?;
    rig.ask("bitflip ^000 100")?;
    drop(file);
    rig.crash(Crash::Plain)?;
    assert_eq!(rig.content("000007.sst").unwrap(), b"01\"345678)");
    assert_eq!(rig.content("other").unwrap(), b"0123456789");
    ensure!(rig.stats().bitflips == 2, "{}", rig.stats());
    Ok(())
}

#[test]
fn a_lie_is_about_names_too() -> anyhow::Result<()> {
    let Some(rig) = Rig::new()? else { return Ok(()) };
    rig.ask("lie on")?;
    rig.durable("a", b"bytes")?;
    ensure!(rig.stats().lies == 2, "{}", rig.stats());
    rig.crash(Crash::NoDir)?;
    ensure!(!rig.path("a").exists(), "expected the name to be lost");
    rig.ask("lie off")?;
    rig.durable("a", b"bytes")?;
    rig.crash(Crash::NoDir)?;
    assert_eq!(rig.content("a").unwrap(), b"bytes");
    sync(rig.dir())?;
    Ok(())
}

#[test]
fn a_power_cut_in_the_middle_of_an_fsync_leaves_nothing_of_it() -> anyhow::Result<()> {
    let Some(rig) = Rig::new()? else { return Ok(()) };
    let file = rig.durable("a", b"old")?;
    file.write_all_at(b"new", 0)?;
    rig.ask("delay fsync 3600000")?;
    std::thread::scope(|scope| -> anyhow::Result<()> {
        let (done, answered) = sync_channel(1);
        let synced = &file;
        scope.spawn(move || done.send(synced.sync_all().is_ok()));
        while rig.stats().delays == 0 {
            std::thread::yield_now();
        }
        rig.cut()?;
        ensure!(!answered.recv_timeout(DEADLINE)?, "expected the fsync to fail");
        Ok(())
    })?;
    assert_eio("write", file.write_at(b"x", 0));
    assert_eio("create", File::create(rig.path("b")));
    ensure!(rig.stats().cut_calls == 3, "{}", rig.stats());
    rig.ask("clear")?;
    drop(file);
    rig.crash(Crash::Plain)?;
    assert_eq!(rig.content("a").unwrap(), b"old");
    fs::write(rig.path("b"), b"power is back")?;
    Ok(())
}
