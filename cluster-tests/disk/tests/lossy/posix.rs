//! What programs, RocksDB among them, want of a file system.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::process::Command;

use anyhow::{Context as _, ensure};
use nix::fcntl::{FallocateFlags, OFlag, fallocate, posix_fallocate};
use nix::unistd::{Whence, lseek};
use ticketrail_disk::{Crash, LossyDisk};

use crate::rig::{Rig, can_mount, list};

#[test]
fn appends_holes_and_sizes() -> anyhow::Result<()> {
    let Some(rig) = Rig::new()? else { return Ok(()) };
    let open = || OpenOptions::new().append(true).create(true).open(rig.path("log"));
    let (mut one, mut other) = (open()?, open()?);
    for n in 0..50 {
        writeln!(one, "one {n}")?;
        writeln!(other, "other {n}")?;
    }
    let text = fs::read_to_string(rig.path("log"))?;
    let expected: String = (0..50).map(|n| format!("one {n}\nother {n}\n")).collect();
    assert_eq!(text, expected);
    let mut file = File::create_new(rig.path("holes"))?;
    file.set_len(1 << 20)?;
    file.write_all_at(b"end", (1 << 20) - 3)?;
    assert_eq!(lseek(&file, 0, Whence::SeekData)?, (1 << 20) - 4096);
    assert_eq!(lseek(&file, 0, Whence::SeekHole)?, 0);
    file.seek(SeekFrom::End(-3))?;
    ensure!(fs::metadata(rig.path("holes"))?.blocks() < 64, "expected a hole");
    assert_eq!(File::create_new(rig.path("holes")).unwrap_err().kind(), ErrorKind::AlreadyExists);
    Ok(())
}

#[test]
fn blocks_are_allocated_as_rocksdb_and_the_ballast_do() -> anyhow::Result<()> {
    let Some(rig) = Rig::new()? else { return Ok(()) };
    let file = rig.durable("sst", b"head")?;
    fallocate(&file, FallocateFlags::FALLOC_FL_KEEP_SIZE, 0, 1 << 20)?;
    let meta = file.metadata()?;
    ensure!(meta.len() == 4 && meta.blocks() * 512 >= 1 << 20, "{} bytes, {} blocks", meta.len(), meta.blocks());
    file.set_len(4)?;
    posix_fallocate(&file, 0, 9_000)?;
    assert_eq!(file.metadata()?.len(), 9_000);
    let punch = FallocateFlags::FALLOC_FL_KEEP_SIZE | FallocateFlags::FALLOC_FL_PUNCH_HOLE;
    fallocate(&file, punch, 0, 4_096)?;
    assert_eq!(rig.content("sst").unwrap(), [0; 9_000]);
    drop(file);
    rig.crash(Crash::Plain)?;
    assert_eq!(rig.content("sst").unwrap(), b"head");
    Ok(())
}

/// A buffer as O_DIRECT wants it: where it is in memory, and how long it is.
fn aligned(bytes: &mut [u8]) -> &mut [u8] {
    let skip = bytes.as_ptr().align_offset(4096);
    &mut bytes[skip..skip + 8192]
}

#[test]
fn direct_and_synchronous_writes() -> anyhow::Result<()> {
    let Some(rig) = Rig::new()? else { return Ok(()) };
    let direct = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .custom_flags(OFlag::O_DIRECT.bits())
        .open(rig.path("direct"))?;
    let (mut out, mut back) = (vec![0; 3 * 8192], vec![0; 3 * 8192]);
    let (out, back) = (aligned(&mut out), aligned(&mut back));
    out.fill(9);
    direct.write_all_at(out, 4096)?;
    direct.read_exact_at(back, 4096)?;
    ensure!(out == back, "expected what was written");
    for flag in [OFlag::O_SYNC, OFlag::O_DSYNC] {
        let mut file = OpenOptions::new().append(true).create(true).custom_flags(flag.bits()).open(rig.path("sync"))?;
        file.write_all(b"line\n")?;
    }
    drop(direct);
    rig.crash(Crash::Plain)?;
    assert_eq!(rig.content("direct").unwrap(), b"");
    assert_eq!(rig.content("sync").unwrap(), b"line\nline\n");
    Ok(())
}

#[test]
fn mapped_files_are_read_and_written() -> anyhow::Result<()> {
    let Some(rig) = Rig::new()? else { return Ok(()) };
    rig.durable("mapped", &[b'a'; 5_000])?;
    let script = "import mmap, sys\n\
                  f = open(sys.argv[1], 'r+b')\n\
                  m = mmap.mmap(f.fileno(), 0)\n\
                  assert m[4999:5000] == b'a'\n\
                  m[10:13] = b'xyz'\n\
                  if sys.argv[2] == 'flush': m.flush()\n\
                  m.close()\n";
    for (flush, left) in [("no", b"aaa"), ("flush", b"xyz")] {
        let status = Command::new("python3").args(["-c", script]).arg(rig.path("mapped")).arg(flush).status()?;
        ensure!(status.success(), "expected python3 to map a file, but {status}");
        assert_eq!(rig.content("mapped").unwrap()[10..13], *b"xyz");
        rig.crash(Crash::Plain)?;
        assert_eq!(rig.content("mapped").unwrap()[10..13], *left, "{flush}");
    }
    Ok(())
}

#[test]
fn locks_exclude_and_names_obey_the_rules() -> anyhow::Result<()> {
    let Some(rig) = Rig::new()? else { return Ok(()) };
    let (one, other) = (File::create(rig.path("LOCK"))?, File::open(rig.path("LOCK"))?);
    one.try_lock()?;
    ensure!(other.try_lock().is_err(), "expected the lock to be held");
    drop(one);
    other.try_lock()?;

    fs::create_dir_all(rig.path("d/e"))?;
    fs::write(rig.path("d/f"), b"x")?;
    assert_eq!(fs::remove_dir(rig.path("d")).unwrap_err().kind(), ErrorKind::DirectoryNotEmpty);
    assert_eq!(fs::rename(rig.path("LOCK"), rig.path("d")).unwrap_err().kind(), ErrorKind::IsADirectory);
    assert_eq!(fs::rename(rig.path("d"), rig.path("LOCK")).unwrap_err().kind(), ErrorKind::NotADirectory);
    assert_eq!(fs::rename(rig.path("d"), rig.path("d/e/g")).unwrap_err().kind(), ErrorKind::InvalidInput);
    fs::create_dir(rig.path("full"))?;
    fs::write(rig.path("full/x"), b"x")?;
    assert_eq!(fs::rename(rig.path("d"), rig.path("full")).unwrap_err().kind(), ErrorKind::DirectoryNotEmpty);
    assert_eq!(File::open(rig.path("none")).unwrap_err().kind(), ErrorKind::NotFound);
    std::os::unix::fs::symlink("d/f", rig.path("link"))?;
    assert_eq!(fs::read(rig.path("link"))?, b"x");
    assert_eq!(fs::read_link(rig.path("link"))?.to_str(), Some("d/f"));
    fs::set_permissions(rig.path("d/f"), fs::Permissions::from_mode(0o640))?;
    assert_eq!(fs::metadata(rig.path("d/f"))?.permissions().mode() & 0o777, 0o640);
    File::open(rig.path("d/f"))?.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(86_400))?;
    assert_eq!(fs::metadata(rig.path("d/f"))?.mtime(), 86_400);
    fs::remove_dir_all(rig.path("d"))?;
    assert_eq!(rig.list(".")?, ["LOCK", "full", "link"]);
    Ok(())
}

#[test]
fn a_directory_with_many_names_is_listed_whole() -> anyhow::Result<()> {
    let Some(rig) = Rig::new()? else { return Ok(()) };
    let names: Vec<String> = (0..2_000).map(|n| format!("a-rather-long-name-{n:06}")).collect();
    for name in &names {
        File::create(rig.path(name))?;
    }
    assert_eq!(rig.list(".")?, names);
    fs::remove_dir_all(rig.dir()).expect_err("the mount itself stays");
    assert_eq!(rig.list(".")?, Vec::<String>::new());
    Ok(())
}

#[test]
fn what_an_unmounted_disk_leaves_can_be_mounted_again() -> anyhow::Result<()> {
    if !can_mount() {
        return Ok(());
    }
    let home = tempfile::tempdir()?;
    let (backing, dir) = (home.path().join("backing"), home.path().join("disk"));
    fs::create_dir(&dir)?;
    let disk = LossyDisk::mount(&backing, &dir)?;
    fs::create_dir_all(dir.join("a/b"))?;
    fs::write(dir.join("a/b/file"), b"not fsynced, but unmounted")?;
    fs::hard_link(dir.join("a/b/file"), dir.join("a/link"))?;
    ensure!(LossyDisk::mount(&backing, &dir).is_err(), "expected a backing directory to have one disk");
    disk.unmount()?;
    assert_eq!(list(&dir)?, Vec::<String>::new());
    assert_eq!(fs::read(backing.join("tree/a/link"))?, b"not fsynced, but unmounted");

    let disk = LossyDisk::mount(&backing, &dir)?;
    disk.crash(Crash::NoDir)?;
    let mut text = String::new();
    File::open(dir.join("a/b/file"))?.read_to_string(&mut text)?;
    assert_eq!(text, "not fsynced, but unmounted");
    assert_eq!(fs::metadata(dir.join("a/link"))?.nlink(), 2);

    // A process is in it.
    let file = File::open(dir.join("a/b/file"))?;
    let refused = disk.unmount().expect_err("a file is open");
    ensure!(format!("{refused:#}").contains("expected no process in"), "{refused:#}");
    assert_eq!(list(&dir)?, Vec::<String>::new());
    drop(file);
    let mounts = fs::read_to_string("/proc/self/mounts")?;
    ensure!(!mounts.contains(dir.to_str().context("a path")?), "expected no mount to be left");
    Ok(())
}
