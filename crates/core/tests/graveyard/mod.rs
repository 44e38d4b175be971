//! A view that remembers what was deleted, as an LSM tree does until it compacts: a scan walks its dead keys.

use std::cell::RefCell;
use std::collections::BTreeMap;

use bytes::Bytes;
use ticketrail_core::{MemView, Outcome, View, ViewError, Write};

#[derive(Debug, Default)]
pub(crate) struct Graveyard {
    alive: MemView,
    /// How often each dead key was walked.
    dead: RefCell<BTreeMap<Bytes, u32>>,
}

impl View for Graveyard {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, ViewError> {
        self.alive.get(key)
    }

    fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<(Bytes, Bytes)>, ViewError> {
        let found = self.alive.scan(from, to, limit)?;
        let full = found.len() == limit;
        let end = found.last().filter(|_| full).map_or_else(|| Bytes::copy_from_slice(to), |(key, _)| key.clone());
        for (key, walks) in self.dead.borrow_mut().iter_mut() {
            if key[..] >= *from && *key < end {
                *walks += 1;
            }
        }
        Ok(found)
    }
}

impl Graveyard {
    pub(crate) fn commit(&mut self, outcome: &Outcome) {
        let dead = self.dead.get_mut();
        for write in outcome.writes.iter() {
            match write {
                Write::Put { key, .. } => {
                    dead.remove(key);
                }
                Write::Delete { key } => {
                    if self.alive.get(key).is_ok_and(|value| value.is_some()) {
                        dead.insert(key.clone(), 0);
                    }
                }
                Write::DeleteRange { from, to } => {
                    for (key, _) in self.alive.range(from, to) {
                        dead.insert(key.clone(), 0);
                    }
                }
            }
        }
        self.alive.commit(&outcome.writes);
    }

    /// A dead key that was walked more than `times`, and how often.
    pub(crate) fn walked_more_than(&self, times: u32) -> Option<(Bytes, u32)> {
        self.dead.borrow().iter().find(|(_, walks)| **walks > times).map(|(key, walks)| (key.clone(), *walks))
    }
}
