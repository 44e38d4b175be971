//! Who a data directory belongs to.

use std::fmt;
use std::path::Path;

use crate::error::OpenError;
use crate::sealed::{self, Kind};

const KIND: Kind = Kind {
    name: "ticketrail-identity",
    format: 1,
    way_out: "copy the file back from a backup; without one treat the disk as lost: remove the member from the cluster, \
              empty the data directory and let the node join again",
};

/// The id of a cluster, drawn at its founding.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterId(pub [u8; 16]);

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClusterId({self})")
    }
}

impl ClusterId {
    pub(crate) fn parse(text: &str) -> Option<ClusterId> {
        if text.len() != 32 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        let mut id = [0; 16];
        for (at, byte) in id.iter_mut().enumerate() {
            *byte = u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok()?;
        }
        Some(ClusterId(id))
    }
}

/// Who a data directory belongs to. Written and fsynced before anything else, and never changed but for its last two
/// fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// The cluster.
    pub cluster: ClusterId,
    /// The node's Raft id, never used again for another disk.
    pub node: u64,
    /// Grows by one with each start; peers refuse one older than they know.
    pub incarnation: u64,
    /// Whether the node has ever seen itself in a committed membership.
    pub was_member: bool,
}

impl Identity {
    /// Writes the identity to the file `path`, durably.
    pub fn write(&self, path: &Path) -> Result<(), OpenError> {
        let lines = [
            format!("cluster = {}", self.cluster),
            format!("node = {}", self.node),
            format!("incarnation = {}", self.incarnation),
            format!("was_member = {}", self.was_member),
        ];
        sealed::write(&KIND, path, &lines).map_err(|error| OpenError::io("write", path, &error))
    }

    /// The identity in the file `path`; `None` if there is no such file.
    pub fn read(path: &Path) -> Result<Option<Identity>, OpenError> {
        let Some(lines) = sealed::read(&KIND, path)? else { return Ok(None) };
        let cluster = sealed::field(&KIND, path, &lines, 0, "cluster")?;
        let node = sealed::field(&KIND, path, &lines, 1, "node")?;
        let incarnation = sealed::field(&KIND, path, &lines, 2, "incarnation")?;
        let was_member = sealed::field(&KIND, path, &lines, 3, "was_member")?;
        let identity = ClusterId::parse(cluster).and_then(|cluster| {
            let (node, incarnation) = (node.parse().ok()?, incarnation.parse().ok()?);
            Some(Identity { cluster, node, incarnation, was_member: was_member.parse().ok()? })
        });
        match identity {
            Some(identity) => Ok(Some(identity)),
            None => Err(OpenError::corrupt(path, "one of its values makes no sense", KIND.way_out)),
        }
    }

    /// Whether `other` is the same node, at another time perhaps.
    pub fn is_same_node(&self, other: &Identity) -> bool {
        (self.cluster, self.node) == (other.cluster, other.node)
    }

    /// Refuses the identity in `path` unless it is of `cluster`.
    pub fn require_cluster(&self, path: &Path, cluster: ClusterId) -> Result<(), OpenError> {
        if self.cluster == cluster {
            return Ok(());
        }
        Err(OpenError::Foreign {
            path: path.to_path_buf(),
            expected: format!("cluster {cluster}"),
            found: format!("cluster {}", self.cluster),
            way_out: "mount the disk of this node, or point the node at its own cluster",
        })
    }
}

impl Identity {
    /// Whose a log is: all but the incarnation, which may change.
    #[cfg(feature = "rocksdb")]
    pub(crate) fn owner(&self) -> String {
        format!("node {} of cluster {}", self.node, self.cluster)
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {} (incarnation {}) of cluster {}", self.node, self.incarnation, self.cluster)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const IDENTITY: Identity = Identity { cluster: ClusterId([0xab; 16]), node: 7, incarnation: 2, was_member: true };

    #[test]
    fn written_and_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("IDENTITY");
        assert_eq!(Identity::read(&path), Ok(None));
        IDENTITY.write(&path).unwrap();
        assert_eq!(Identity::read(&path), Ok(Some(IDENTITY)));
        assert!(!dir.path().join("IDENTITY.tmp").exists());
    }

    #[test]
    fn corrupt_truncated_foreign_and_newer_are_each_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("IDENTITY");
        IDENTITY.write(&path).unwrap();
        let whole = fs::read_to_string(&path).unwrap();

        fs::write(&path, whole.replace("node = 7", "node = 8")).unwrap();
        let corrupt = Identity::read(&path).unwrap_err();
        assert!(matches!(corrupt, OpenError::Corrupt { .. }));
        assert!(corrupt.to_string().contains("IDENTITY"), "{corrupt}");
        assert!(corrupt.to_string().contains("checksum") && corrupt.to_string().contains("backup"), "{corrupt}");

        fs::write(&path, &whole[..40]).unwrap();
        let truncated = Identity::read(&path).unwrap_err();
        assert!(truncated.to_string().contains("truncated"), "{truncated}");

        let lines = ["cluster = 00".to_string()];
        sealed::write(&Kind { format: 9, ..KIND }, &path, &lines).unwrap();
        let newer = Identity::read(&path).unwrap_err();
        assert_eq!(newer, OpenError::Newer { path: path.clone(), found: 9, known: 1 });
        assert!(newer.to_string().contains("run the version"), "{newer}");

        let foreign = IDENTITY.require_cluster(&path, ClusterId([1; 16])).unwrap_err();
        assert!(matches!(foreign, OpenError::Foreign { .. }));
        assert!(foreign.to_string().contains("abababab") && foreign.to_string().contains("0101"), "{foreign}");
        assert_eq!(IDENTITY.require_cluster(&path, IDENTITY.cluster), Ok(()));
    }
}
