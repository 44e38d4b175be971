//! The backing directory at rest: a tree of plain files, so that what a disk held can be looked at and mounted again.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::Ino;
use crate::disk::{Disk, Kind};
use crate::names::ROOT;

/// Where objects are while the disk is mounted.
pub(crate) fn objects(backing: &Path) -> PathBuf {
    backing.join("objects")
}

fn tree(backing: &Path) -> PathBuf {
    backing.join("tree")
}

/// Takes the tree, if there is one, for the content of an empty disk, all of it durable.
pub(crate) fn import(backing: &Path, disk: &mut Disk) -> anyhow::Result<()> {
    let root = tree(backing);
    if !root.exists() {
        return Ok(());
    }
    let mut seen: BTreeMap<(u64, u64), Ino> = BTreeMap::new();
    let mut todo = vec![(root.clone(), ROOT)];
    while let Some((from, dir)) = todo.pop() {
        for entry in fs::read_dir(&from)? {
            let entry = entry?;
            let meta = entry.metadata()?;
            let (name, path) = (entry.file_name(), entry.path());
            if meta.is_dir() {
                todo.push((path, disk.adopt_dir(dir, &name, &meta)?));
                continue;
            }
            let key = (meta.dev(), meta.ino());
            if let Some(ino) = seen.get(&key) {
                disk.link(*ino, dir, &name)?;
                continue;
            }
            seen.insert(key, disk.adopt(dir, &name, &path, &meta)?);
        }
    }
    fs::remove_dir_all(&root)?;
    disk.settle()?;
    Ok(())
}

/// Leaves the files as a tree, and no objects.
pub(crate) fn export(backing: &Path, disk: &Disk) -> anyhow::Result<()> {
    let mut todo = vec![(tree(backing), ROOT)];
    while let Some((to, dir)) = todo.pop() {
        fs::create_dir(&to)?;
        fs::set_permissions(&to, disk.objects().meta(dir)?.permissions())?;
        for (name, ino) in disk.names().entries(dir).into_iter().flatten() {
            match disk.kind(*ino)? {
                Kind::Dir => todo.push((to.join(name), *ino)),
                Kind::File | Kind::Link => fs::hard_link(disk.objects().path(*ino), to.join(name))?,
            }
        }
    }
    fs::remove_dir_all(objects(backing))?;
    Ok(())
}
