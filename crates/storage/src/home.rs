//! What a node keeps beside its stores: whose the disk is, a cluster that it is about to found, and who it has met.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::error::OpenError;
use crate::identity::{ClusterId, Identity};
use crate::sealed::{self, Kind};

const PEERS: Kind = Kind {
    name: "ticketrail-peers",
    format: 1,
    way_out: "remove the file: it only helps to find out disks that were rolled back, and is made anew",
};

const FOUNDING: Kind = Kind {
    name: "ticketrail-founding",
    format: 1,
    way_out: "nothing was founded yet: empty the data directory and start again",
};

/// What a node has seen of another one: its newest start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Seen {
    /// The incarnation.
    pub incarnation: u64,
    /// The number that it drew at that start.
    pub boot: u64,
}

/// What a node keeps beside its stores. Each change is durable when its call returns, and blocks until then.
pub trait Home: Send + 'static {
    /// Whose the disk is; `None` while it is empty.
    fn identity(&self) -> Option<Identity>;

    /// Notes whose the disk is: for an empty one, or the same node of the same cluster.
    fn set_identity(&mut self, identity: Identity) -> Result<(), OpenError>;

    /// The cluster that this node is about to found, if any.
    fn founding(&self) -> Result<Option<ClusterId>, OpenError>;

    /// Notes that it is about to found a cluster, or no longer.
    fn set_founding(&mut self, cluster: Option<ClusterId>) -> Result<(), OpenError>;

    /// The newest start of each other node that it has met.
    fn seen(&self) -> Result<BTreeMap<u64, Seen>, OpenError>;

    /// Notes them.
    fn set_seen(&mut self, seen: &BTreeMap<u64, Seen>) -> Result<(), OpenError>;
}

fn foreign(path: PathBuf, expected: &Identity, found: &Identity) -> OpenError {
    OpenError::Foreign {
        path,
        expected: expected.to_string(),
        found: found.to_string(),
        way_out: "choose an empty directory, or start the node as whom the directory belongs to",
    }
}

/// The files of a data directory. Clones are of the same directory.
#[derive(Debug, Clone)]
pub struct FileHome {
    dir: PathBuf,
    identity: Arc<Mutex<Option<Identity>>>,
}

impl FileHome {
    /// The home in the directory `dir`.
    ///
    /// Refuses an identity that cannot be trusted.
    pub fn open(dir: &Path) -> Result<FileHome, OpenError> {
        let identity = Identity::read(&dir.join("IDENTITY"))?;
        Ok(FileHome { dir: dir.to_path_buf(), identity: Arc::new(Mutex::new(identity)) })
    }

    fn peers(&self) -> PathBuf {
        self.dir.join("PEERS")
    }

    fn founding_path(&self) -> PathBuf {
        self.dir.join("FOUNDING")
    }
}

impl Home for FileHome {
    fn identity(&self) -> Option<Identity> {
        *self.identity.lock()
    }

    fn set_identity(&mut self, identity: Identity) -> Result<(), OpenError> {
        let path = self.dir.join("IDENTITY");
        let mut known = self.identity.lock();
        if let Some(old) = known.as_ref().filter(|old| !old.is_same_node(&identity)) {
            return Err(foreign(path, &identity, old));
        }
        if *known != Some(identity) {
            identity.write(&path)?;
            *known = Some(identity);
        }
        Ok(())
    }

    fn founding(&self) -> Result<Option<ClusterId>, OpenError> {
        let path = self.founding_path();
        let Some(lines) = sealed::read(&FOUNDING, &path)? else { return Ok(None) };
        let cluster = sealed::field(&FOUNDING, &path, &lines, 0, "cluster")?;
        match ClusterId::parse(cluster) {
            Some(cluster) => Ok(Some(cluster)),
            None => Err(OpenError::corrupt(&path, "its cluster makes no sense", FOUNDING.way_out)),
        }
    }

    fn set_founding(&mut self, cluster: Option<ClusterId>) -> Result<(), OpenError> {
        let path = self.founding_path();
        let done = match cluster {
            Some(cluster) => sealed::write(&FOUNDING, &path, &[format!("cluster = {cluster}")]),
            None => match std::fs::remove_file(&path) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
                Err(error) => Err(error),
                Ok(()) => crate::files::sync_dir(&self.dir),
            },
        };
        done.map_err(|error| OpenError::io("write", &path, &error))
    }

    fn seen(&self) -> Result<BTreeMap<u64, Seen>, OpenError> {
        let path = self.peers();
        let Some(lines) = sealed::read(&PEERS, &path)? else { return Ok(BTreeMap::new()) };
        let parse = |line: &String| {
            let mut words = line.split_whitespace();
            let mut number = || words.next()?.parse().ok();
            let (node, incarnation, boot) = (number()?, number()?, number()?);
            Some((node, Seen { incarnation, boot }))
        };
        let seen: Option<_> = lines.iter().map(parse).collect();
        seen.ok_or_else(|| OpenError::corrupt(&path, "one of its lines makes no sense", PEERS.way_out))
    }

    fn set_seen(&mut self, seen: &BTreeMap<u64, Seen>) -> Result<(), OpenError> {
        let path = self.peers();
        let line = |(node, seen): (&u64, &Seen)| format!("{node} {} {}", seen.incarnation, seen.boot);
        let lines: Vec<String> = seen.iter().map(line).collect();
        sealed::write(&PEERS, &path, &lines).map_err(|error| OpenError::io("write", &path, &error))
    }
}

/// A home in memory, of which clones are the same: what a simulated node finds again after a crash.
#[derive(Debug, Clone, Default)]
pub struct MemHome(Arc<Mutex<InMemory>>);

#[derive(Debug, Default)]
struct InMemory {
    identity: Option<Identity>,
    founding: Option<ClusterId>,
    seen: BTreeMap<u64, Seen>,
}

impl Home for MemHome {
    fn identity(&self) -> Option<Identity> {
        self.0.lock().identity
    }

    fn set_identity(&mut self, identity: Identity) -> Result<(), OpenError> {
        let mut inner = self.0.lock();
        if let Some(old) = inner.identity.as_ref().filter(|old| !old.is_same_node(&identity)) {
            return Err(foreign(PathBuf::from("memory"), &identity, old));
        }
        inner.identity = Some(identity);
        Ok(())
    }

    fn founding(&self) -> Result<Option<ClusterId>, OpenError> {
        Ok(self.0.lock().founding)
    }

    fn set_founding(&mut self, cluster: Option<ClusterId>) -> Result<(), OpenError> {
        self.0.lock().founding = cluster;
        Ok(())
    }

    fn seen(&self) -> Result<BTreeMap<u64, Seen>, OpenError> {
        Ok(self.0.lock().seen.clone())
    }

    fn set_seen(&mut self, seen: &BTreeMap<u64, Seen>) -> Result<(), OpenError> {
        self.0.lock().seen = seen.clone();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(node: u64, incarnation: u64) -> Identity {
        Identity { cluster: ClusterId([7; 16]), node, incarnation, was_member: false }
    }

    fn keeps(open: impl Fn() -> Box<dyn Home>) {
        let mut home = open();
        assert_eq!((home.identity(), home.founding(), home.seen()), (None, Ok(None), Ok(BTreeMap::new())));
        home.set_founding(Some(ClusterId([7; 16]))).unwrap();
        assert_eq!(open().founding(), Ok(Some(ClusterId([7; 16]))));
        home.set_identity(identity(2, 1)).unwrap();
        home.set_identity(identity(2, 2)).unwrap();
        home.set_founding(None).unwrap();
        home.set_founding(None).unwrap();
        let seen = BTreeMap::from([(1, Seen { incarnation: 3, boot: u64::MAX }), (104, Seen::default())]);
        home.set_seen(&seen).unwrap();
        let again = open();
        assert_eq!((again.identity(), again.founding(), again.seen()), (Some(identity(2, 2)), Ok(None), Ok(seen)));
        assert!(matches!(home.set_identity(identity(3, 2)), Err(OpenError::Foreign { .. })));
        assert_eq!(open().identity(), Some(identity(2, 2)));
    }

    #[test]
    fn what_is_kept_is_found_again() {
        let dir = tempfile::tempdir().unwrap();
        keeps(|| Box::new(FileHome::open(dir.path()).unwrap()));
        let memory = MemHome::default();
        keeps(|| Box::new(memory.clone()));
    }

    #[test]
    fn damaged_files_are_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["PEERS", "FOUNDING"] {
            std::fs::write(dir.path().join(name), "nonsense\n").unwrap();
            let home = FileHome::open(dir.path()).unwrap();
            let error = if name == "PEERS" { home.seen().unwrap_err() } else { home.founding().unwrap_err() };
            assert!(error.to_string().contains(name), "{error}");
        }
    }
}
