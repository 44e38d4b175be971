//! Maps that can be taken back to how they were: for commits that are all or nothing.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, Hash};
use std::ops::Deref;

use crate::fast::FastMap;

/// A map as this module needs it.
pub(crate) trait Table<K, V> {
    fn put(&mut self, key: K, value: V) -> Option<V>;
    fn take(&mut self, key: &K) -> Option<V>;
    fn find_mut(&mut self, key: &K) -> Option<&mut V>;
}

impl<K: Eq + Hash, V, S: BuildHasher> Table<K, V> for HashMap<K, V, S> {
    fn put(&mut self, key: K, value: V) -> Option<V> {
        self.insert(key, value)
    }

    fn take(&mut self, key: &K) -> Option<V> {
        self.remove(key)
    }

    fn find_mut(&mut self, key: &K) -> Option<&mut V> {
        self.get_mut(key)
    }
}

impl<K: Ord, V> Table<K, V> for BTreeMap<K, V> {
    fn put(&mut self, key: K, value: V) -> Option<V> {
        self.insert(key, value)
    }

    fn take(&mut self, key: &K) -> Option<V> {
        self.remove(key)
    }

    fn find_mut(&mut self, key: &K) -> Option<&mut V> {
        self.get_mut(key)
    }
}

/// A map that notes, while it is told to, what its entries were before.
#[derive(Debug, Clone)]
pub(crate) struct Undo<K, V, M> {
    map: M,
    /// What was there before each change, the first change first.
    before: Option<Vec<(K, Option<V>)>>,
}

/// One that is looked up.
pub(crate) type FastUndo<K, V> = Undo<K, V, FastMap<K, V>>;
/// One that is looked up by what the fast hash does not spread.
pub(crate) type HashUndo<K, V> = Undo<K, V, HashMap<K, V>>;
/// One that is walked in order.
pub(crate) type SortedUndo<K, V> = Undo<K, V, BTreeMap<K, V>>;

impl<K, V, M: Default> Default for Undo<K, V, M> {
    fn default() -> Self {
        Self { map: M::default(), before: None }
    }
}

impl<K, V, M> Deref for Undo<K, V, M> {
    type Target = M;

    fn deref(&self) -> &M {
        &self.map
    }
}

impl<K: Clone, V: Clone, M: Table<K, V>> Undo<K, V, M> {
    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<V> {
        match &mut self.before {
            None => self.map.put(key, value),
            Some(before) => {
                let old = self.map.put(key.clone(), value);
                before.push((key, old.clone()));
                old
            }
        }
    }

    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        let old = self.map.take(key);
        if let Some(before) = &mut self.before {
            before.push((key.clone(), old.clone()));
        }
        old
    }

    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let value = self.map.find_mut(key)?;
        if let Some(before) = &mut self.before {
            before.push((key.clone(), Some(value.clone())));
        }
        Some(value)
    }

    /// The map itself, for changes that nobody takes back.
    pub(crate) fn for_good(&mut self) -> &mut M {
        debug_assert!(self.before.is_none());
        &mut self.map
    }

    /// Notes from now on.
    pub(crate) fn begin(&mut self) {
        self.before = Some(Vec::new());
    }

    /// Keeps what was changed, and notes no more.
    pub(crate) fn keep(&mut self) {
        self.before = None;
    }

    /// Takes all changes back, and notes no more.
    pub(crate) fn back(&mut self) {
        for (key, old) in self.before.take().into_iter().flatten().rev() {
            match old {
                Some(value) => self.map.put(key, value),
                None => self.map.take(&key),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_taken_back_or_kept() {
        let mut map: Undo<u32, &str, BTreeMap<u32, &str>> = Undo::default();
        map.insert(1, "one");
        map.insert(2, "two");
        let was = map.map.clone();
        map.begin();
        map.remove(&1);
        map.insert(1, "again");
        *map.get_mut(&2).unwrap() = "other";
        map.insert(3, "three");
        map.remove(&3);
        map.insert(3, "more");
        map.back();
        assert_eq!(map.map, was);
        map.begin();
        map.insert(3, "three");
        map.keep();
        map.back();
        assert_eq!(map.len(), 3);
    }
}
