//! Names: which of them a crash leaves.

use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use anyhow::ensure;
use ticketrail_disk::Crash;

use crate::rig::{Rig, crashes, sync};

#[test]
fn a_name_needs_an_fsync_of_its_directory() -> anyhow::Result<()> {
    let Some(rig) = Rig::new()? else { return Ok(()) };
    let write = |name: &str| -> anyhow::Result<()> {
        let mut file = File::create(rig.path(name))?;
        file.write_all(b"bytes")?;
        Ok(file.sync_all()?)
    };
    write("plain")?;
    File::create(rig.path("empty"))?.write_all(b"not fsynced")?;
    rig.crash(Crash::Plain)?;
    assert_eq!(rig.content("plain").unwrap(), b"bytes");
    assert_eq!(rig.content("empty").unwrap(), b"", "its name is there, and no byte");
    write("nodir")?;
    rig.crash(Crash::NoDir)?;
    assert_eq!(rig.list(".")?, ["empty", "plain"]);
    write("synced")?;
    rig.sync_root()?;
    rig.crash(Crash::NoDir)?;
    assert_eq!(rig.list(".")?, ["empty", "plain", "synced"]);
    let stats = rig.stats();
    ensure!((stats.crashes, stats.names_lost) == (3, 1), "{stats}");
    Ok(())
}

#[test]
fn a_rename_without_an_fsync_of_the_directory_is_lost() -> anyhow::Result<()> {
    let Some(rig) = Rig::new()? else { return Ok(()) };
    rig.durable("current", b"old")?;
    let aside = || rig.durable("aside", b"new");
    aside()?;
    fs::rename(rig.path("aside"), rig.path("current"))?;
    assert_eq!(rig.content("current").unwrap(), b"new");
    rig.crash(Crash::NoDir)?;
    assert_eq!(rig.content("current").unwrap(), b"old");
    assert_eq!(rig.content("aside").unwrap(), b"new");
    fs::rename(rig.path("aside"), rig.path("current"))?;
    rig.sync_root()?;
    rig.crash(Crash::NoDir)?;
    assert_eq!(rig.content("current").unwrap(), b"new");
    assert_eq!(rig.list(".")?, ["current"]);
    Ok(())
}

/// What the server does with its small files.
fn replace(path: &Path, content: &[u8], sync_file: bool) -> anyhow::Result<()> {
    let aside = path.with_extension("tmp");
    let mut file = File::create(&aside)?;
    file.write_all(content)?;
    if sync_file {
        file.sync_all()?;
    }
    fs::rename(&aside, path)?;
    sync(path.parent().unwrap())
}

#[test]
fn a_file_replaced_with_care_is_old_or_new_and_one_replaced_without_is_not() -> anyhow::Result<()> {
    let Some(rig) = Rig::new()? else { return Ok(()) };
    for crash in crashes(8) {
        replace(&rig.path("x"), b"one", true)?;
        replace(&rig.path("x"), b"two", true)?;
        rig.crash(crash)?;
        assert_eq!(rig.content("x").unwrap(), b"two", "{crash:?}");
    }
    replace(&rig.path("x"), b"three", false)?;
    rig.crash(Crash::NoDir)?;
    assert_eq!(rig.content("x").unwrap(), b"", "the name is the new file's, and its bytes are not there");
    Ok(())
}

#[test]
fn what_is_in_a_directory_is_lost_with_it() -> anyhow::Result<()> {
    let Some(rig) = Rig::new()? else { return Ok(()) };
    for parent_synced in [false, true] {
        fs::create_dir_all(rig.path("a/b"))?;
        rig.durable("a/b/file", b"x")?;
        sync(&rig.path("a"))?;
        if parent_synced {
            rig.sync_root()?;
        }
        rig.crash(Crash::NoDir)?;
        assert_eq!(rig.content("a/b/file").is_some(), parent_synced);
        assert_eq!(rig.path("a").exists(), parent_synced);
    }
    fs::rename(rig.path("a/b"), rig.path("moved"))?;
    rig.crash(Crash::NoDir)?;
    assert!(rig.content("a/b/file").is_some() && !rig.path("moved").exists());
    fs::rename(rig.path("a/b"), rig.path("moved"))?;
    // Either end is enough for the file to be somewhere.
    sync(&rig.path("a"))?;
    rig.crash(Crash::NoDir)?;
    assert!(rig.content("moved/file").is_some());
    assert_eq!(rig.list("a")?, Vec::<String>::new());
    fs::remove_dir(rig.path("a"))?;
    Ok(())
}

#[test]
fn hard_links_are_names_of_one_file() -> anyhow::Result<()> {
    let Some(rig) = Rig::new()? else { return Ok(()) };
    let file = rig.durable("one", b"bytes")?;
    fs::create_dir(rig.path("checkpoint"))?;
    rig.sync_root()?;
    fs::hard_link(rig.path("one"), rig.path("checkpoint/two"))?;
    assert_eq!(file.metadata()?.nlink(), 2);
    assert_eq!(fs::metadata(rig.path("one"))?.ino(), fs::metadata(rig.path("checkpoint/two"))?.ino());
    drop(file);
    rig.crash(Crash::NoDir)?;
    assert_eq!(rig.list("checkpoint")?, Vec::<String>::new());
    fs::hard_link(rig.path("one"), rig.path("checkpoint/two"))?;
    sync(&rig.path("checkpoint"))?;
    fs::remove_file(rig.path("one"))?;
    rig.sync_root()?;
    rig.crash(Crash::NoDir)?;
    assert_eq!(rig.content("checkpoint/two").unwrap(), b"bytes");
    assert!(!rig.path("one").exists());
    assert_eq!(fs::metadata(rig.path("checkpoint/two"))?.nlink(), 1);
    ensure!(fs::hard_link(rig.path("checkpoint"), rig.path("dir")).is_err(), "expected no link to a directory");
    Ok(())
}

#[test]
fn a_file_removed_while_open_is_used_on_and_comes_back_unless_its_directory_was_fsynced() -> anyhow::Result<()> {
    let Some(rig) = Rig::new()? else { return Ok(()) };
    for synced in [false, true] {
        let mut file = rig.durable("gone", b"old")?;
        fs::remove_file(rig.path("gone"))?;
        file.seek(SeekFrom::Start(0))?;
        file.write_all(b"new bytes")?;
        file.seek(SeekFrom::Start(0))?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        assert_eq!((text.as_str(), file.metadata()?.nlink()), ("new bytes", 0));
        if synced {
            rig.sync_root()?;
        }
        drop(file);
        rig.crash(Crash::NoDir)?;
        assert_eq!(rig.content("gone"), (!synced).then(|| b"old".to_vec()));
        let _ = fs::remove_file(rig.path("gone"));
        rig.sync_root()?;
    }
    ensure!(rig.stats().names_back == 1, "{}", rig.stats());
    Ok(())
}

#[test]
fn names_survive_as_a_journal_or_each_directory_has_them() -> anyhow::Result<()> {
    let Some(rig) = Rig::new()? else { return Ok(()) };
    let (mut parts, mut apart) = (0, 0);
    for seed in 0..40 {
        for torn in [true, false] {
            for dir in ["a", "b"] {
                fs::create_dir(rig.path(dir))?;
            }
            rig.sync_root()?;
            for n in 0..6 {
                File::create(rig.path(&format!("a/{n}")))?;
                File::create(rig.path(&format!("b/{n}")))?;
            }
            rig.crash(if torn { Crash::Torn { seed } } else { Crash::Reordered { seed } })?;
            let (a, b) = (rig.list("a")?, rig.list("b")?);
            for names in [&a, &b] {
                ensure!(
                    names.iter().enumerate().all(|(n, name)| *name == n.to_string()),
                    "expected first, got {names:?}"
                );
            }
            parts += u32::from((1..6).contains(&a.len()));
            let one_journal = a.len() == b.len() || a.len() == b.len() + 1;
            ensure!(!torn || one_journal, "expected a prefix of one journal, but {a:?} and {b:?}");
            apart += u32::from(!one_journal);
            for dir in ["a", "b"] {
                fs::remove_dir_all(rig.path(dir))?;
            }
            rig.sync_root()?;
        }
    }
    ensure!(parts > 10 && apart > 10, "expected partial directories, but {parts} and {apart}");
    Ok(())
}

#[test]
fn a_journal_has_what_was_there_at_the_last_fsync_of_anything() -> anyhow::Result<()> {
    let Some(rig) = Rig::new()? else { return Ok(()) };
    for seed in 0..20 {
        let other = File::create(rig.path("other"))?;
        File::create(rig.path("before"))?;
        other.sync_all()?;
        File::create(rig.path("after"))?;
        rig.crash(Crash::Torn { seed })?;
        ensure!(rig.path("before").exists(), "expected it to be in the journal, seed {seed}");
        ensure!(other.sync_all().is_err(), "expected a handle of before the crash to fail");
        fs::remove_file(rig.path("before"))?;
        let _ = fs::remove_file(rig.path("after"));
        rig.sync_root()?;
    }
    ensure!(rig.stats().stale_calls == 20, "{}", rig.stats());
    Ok(())
}
