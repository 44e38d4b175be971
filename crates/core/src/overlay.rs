//! Reads-your-writes over a view, with a savepoint for each request.

use std::collections::BTreeMap;
use std::ops::Bound;

use bytes::Bytes;

use crate::keys::Key;
use crate::reply::Fault;
use crate::view::View;
use crate::writes::{Write, WriteSet};

/// Changes that are not committed yet, over what is.
pub(crate) struct Overlay<'v> {
    view: &'v dyn View,
    changes: BTreeMap<Key, Option<Bytes>>,
    /// Ranges deleted in this entry. A change of a key inside stands above them.
    ranges: Vec<(Key, Key)>,
    /// What each key changed since the savepoint was before: `None` means unchanged by this entry.
    undo: Vec<(Key, Option<Option<Bytes>>)>,
    undo_ranges: usize,
    bytes: usize,
    undo_bytes: usize,
}

impl<'v> Overlay<'v> {
    /// No changes over `view`.
    pub(crate) fn new(view: &'v dyn View) -> Self {
        Self {
            view,
            changes: BTreeMap::new(),
            ranges: Vec::new(),
            undo: Vec::new(),
            undo_ranges: 0,
            bytes: 0,
            undo_bytes: 0,
        }
    }

    /// The value under `key`, changes included.
    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Bytes>, Fault> {
        if let Some(change) = self.changes.get(key) {
            return Ok(change.clone());
        }
        if self.in_deleted_range(key) {
            return Ok(None);
        }
        Ok(self.view.get(key)?)
    }

    /// Up to `limit` pairs with `from <= key < to`, changes included, ascending.
    pub(crate) fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<(Bytes, Bytes)>, Fault> {
        if from >= to || limit == 0 {
            return Ok(Vec::new());
        }
        let mut changes = self
            .changes
            .range::<[u8], _>((Bound::Included(from), Bound::Excluded(to)))
            .map(|(key, value)| (key.as_slice(), value))
            .peekable();
        if changes.peek().is_none() && self.ranges.is_empty() {
            return Ok(self.view.scan(from, to, limit)?);
        }
        // Keys deleted in this entry hide as many keys of the view, so the view is read in rounds.
        let mut found: Vec<(Bytes, Bytes)> = Vec::new();
        let mut start = from.to_vec();
        loop {
            let round = self.view.scan(&start, to, limit)?;
            let last_round = round.len() < limit;
            let next = round.last().map(|(key, _)| crate::keys::after(key));
            for (key, value) in round {
                while let Some((changed, change)) = changes.next_if(|(changed, _)| *changed < &key[..]) {
                    if let Some(change) = change {
                        found.push((Bytes::copy_from_slice(changed), change.clone()));
                    }
                }
                match changes.next_if(|(changed, _)| *changed == &key[..]) {
                    Some((_, Some(change))) => found.push((key, change.clone())),
                    Some((_, None)) => {}
                    None if self.in_deleted_range(&key) => {}
                    None => found.push((key, value)),
                }
            }
            if last_round {
                for (changed, change) in changes {
                    if let Some(change) = change {
                        found.push((Bytes::copy_from_slice(changed), change.clone()));
                    }
                }
                break;
            }
            if found.len() >= limit {
                break;
            }
            let Some(next) = next else { break };
            start = next;
        }
        found.truncate(limit);
        Ok(found)
    }

    /// Sets `key` to `value`.
    pub(crate) fn put(&mut self, key: Key, value: impl Into<Bytes>) {
        self.change(key, Some(value.into()));
    }

    /// Removes `key`.
    pub(crate) fn delete(&mut self, key: Key) {
        self.change(key, None);
    }

    /// Removes all keys with `from <= key < to`.
    pub(crate) fn delete_range(&mut self, from: Key, to: Key) {
        if from < to {
            let range = (Bound::Included(from.as_slice()), Bound::Excluded(to.as_slice()));
            let changed: Vec<Key> = self.changes.range::<[u8], _>(range).map(|(key, _)| key.clone()).collect();
            for key in changed {
                self.delete(key);
            }
            self.bytes = self.bytes.saturating_add(from.len()).saturating_add(to.len());
            self.ranges.push((from, to));
        }
    }

    fn change(&mut self, key: Key, value: Option<Bytes>) {
        let size = key.len().saturating_add(value.as_ref().map_or(0, Bytes::len));
        self.bytes = self.bytes.saturating_add(size);
        let before = self.changes.insert(key.clone(), value);
        self.undo.push((key, before));
    }

    fn in_deleted_range(&self, key: &[u8]) -> bool {
        self.ranges.iter().any(|(from, to)| from.as_slice() <= key && key < to.as_slice())
    }

    /// From here on, `rollback` undoes.
    pub(crate) fn savepoint(&mut self) {
        self.undo.clear();
        self.undo_ranges = self.ranges.len();
        self.undo_bytes = self.bytes;
    }

    /// Undoes all changes since the savepoint.
    pub(crate) fn rollback(&mut self) {
        while let Some((key, before)) = self.undo.pop() {
            match before {
                Some(change) => {
                    self.changes.insert(key, change);
                }
                None => {
                    self.changes.remove(&key);
                }
            }
        }
        self.ranges.truncate(self.undo_ranges);
        self.bytes = self.undo_bytes;
    }

    /// How many keys are changed.
    pub(crate) fn keys(&self) -> usize {
        self.changes.len()
    }

    /// An upper bound of the bytes that the changes write.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The changes: ranges first, then keys in their order.
    pub(crate) fn into_writes(self) -> WriteSet {
        let ranges = self.ranges.into_iter().map(|(from, to)| Write::DeleteRange { from: from.into(), to: to.into() });
        let keys = self.changes.into_iter().map(|(key, change)| match change {
            Some(value) => Write::Put { key: key.into(), value },
            None => Write::Delete { key: key.into() },
        });
        ranges.chain(keys).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::view::MemView;

    #[derive(Debug, Clone)]
    enum Step {
        Put(u8, u8),
        Delete(u8),
        DeleteRange(u8, u8),
        Savepoint,
        Rollback,
        Scan(u8, u8, usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0u8..48, any::<u8>()).prop_map(|(k, v)| Step::Put(k, v)),
            4 => (0u8..48).prop_map(Step::Delete),
            1 => (0u8..48, 0u8..48).prop_map(|(a, b)| Step::DeleteRange(a, b)),
            1 => Just(Step::Savepoint),
            1 => Just(Step::Rollback),
            4 => (0u8..50, 0u8..50, 0usize..40).prop_map(|(a, b, n)| Step::Scan(a, b, n)),
        ]
    }

    proptest! {
        /// An overlay reads like a map to which the changes were made at once; its writes make the same map.
        #[test]
        fn reads_its_writes(
            base in proptest::collection::btree_map(0u8..48, any::<u8>(), 0..40),
            steps in proptest::collection::vec(step(), 0..60),
        ) {
            let mut view = MemView::new();
            view.commit(&base.iter().map(|(k, v)| Write::Put { key: vec![*k].into(), value: vec![*v].into() }).collect());
            let mut expected = base;
            let mut saved = expected.clone();
            let mut overlay = Overlay::new(&view);
            for step in steps {
                match step {
                    Step::Put(k, v) => {
                        overlay.put(vec![k], vec![v]);
                        expected.insert(k, v);
                    }
                    Step::Delete(k) => {
                        overlay.delete(vec![k]);
                        expected.remove(&k);
                    }
                    Step::DeleteRange(a, b) => {
                        overlay.delete_range(vec![a], vec![b]);
                        expected.retain(|k, _| !(a..b).contains(k));
                    }
                    Step::Savepoint => {
                        overlay.savepoint();
                        saved = expected.clone();
                    }
                    Step::Rollback => {
                        overlay.rollback();
                        expected = saved.clone();
                    }
                    Step::Scan(a, b, n) => {
                        let found: Vec<(u8, u8)> =
                            overlay.scan(&[a], &[b], n).unwrap().iter().map(|(k, v)| (k[0], v[0])).collect();
                        let wanted: Vec<(u8, u8)> =
                            expected.iter().filter(|(k, _)| a <= **k && **k < b).take(n).map(|(k, v)| (*k, *v)).collect();
                        prop_assert_eq!(found, wanted);
                    }
                }
                for k in 0u8..50 {
                    prop_assert_eq!(overlay.get(&[k]).unwrap().map(|v| v[0]), expected.get(&k).copied());
                }
            }
            let writes = overlay.into_writes();
            view.commit(&writes);
            let after: Vec<(u8, u8)> = view.iter().map(|(k, v)| (k[0], v[0])).collect();
            prop_assert_eq!(after, expected.into_iter().collect::<Vec<_>>());
        }
    }
}
