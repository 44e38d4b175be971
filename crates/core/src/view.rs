//! What `apply` reads: an ordered map from byte strings to byte strings.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::writes::{Write, WriteSet};

/// An ordered, read-only map. Memory and RocksDB are both views.
///
/// Nothing under a view may change what a scan sees by itself: no compaction filter, no time to live, no skip limit.
pub trait View {
    /// The value under `key`, or `None`.
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, ViewError>;

    /// Up to `limit` pairs with `from <= key < to`, in ascending order of their keys.
    fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<(Bytes, Bytes)>, ViewError>;
}

/// The store under a view could not be read. The node that sees one stops.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected to read the applied state, but the store failed: {0}")]
pub struct ViewError(pub String);

/// A view in memory: the state of tests, of the simulation and of the in-memory store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MemView {
    map: BTreeMap<Bytes, Bytes>,
}

impl MemView {
    /// An empty state.
    pub fn new() -> Self {
        Self::default()
    }

    /// Commits `writes`, in their order.
    pub fn commit(&mut self, writes: &WriteSet) {
        for write in writes.iter() {
            match write {
                Write::Put { key, value } => {
                    self.map.insert(key.clone(), value.clone());
                }
                Write::Delete { key } => {
                    self.map.remove(key);
                }
                Write::DeleteRange { from, to } => {
                    let doomed: Vec<Bytes> = self.range(from, to).map(|(key, _)| key.clone()).collect();
                    for key in doomed {
                        self.map.remove(&key);
                    }
                }
            }
        }
    }

    /// All pairs with `from <= key < to`, ascending.
    pub fn range<'a>(&'a self, from: &[u8], to: &[u8]) -> impl Iterator<Item = (&'a Bytes, &'a Bytes)> + use<'a> {
        let from = Bytes::copy_from_slice(from);
        let to = Bytes::copy_from_slice(to).max(from.clone());
        self.map.range(from..to)
    }

    /// All pairs, ascending.
    pub fn iter(&self) -> impl Iterator<Item = (&Bytes, &Bytes)> {
        self.map.iter()
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// Whether there is no key at all.
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }
}

impl View for MemView {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, ViewError> {
        Ok(self.map.get(key).cloned())
    }

    fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<(Bytes, Bytes)>, ViewError> {
        Ok(self.range(from, to).take(limit).map(|(k, v)| (k.clone(), v.clone())).collect())
    }
}
