//! What `apply` writes, as data: storage commits it in one batch, tests print it.

use bytes::Bytes;

/// One change of the applied state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write {
    /// Sets `key` to `value`.
    Put {
        /// The key.
        key: Bytes,
        /// Its new value.
        value: Bytes,
    },
    /// Removes `key`; removing an absent key is no error.
    Delete {
        /// The key.
        key: Bytes,
    },
    /// Removes every key with `from <= key < to`.
    DeleteRange {
        /// The first key removed.
        from: Bytes,
        /// The first key kept.
        to: Bytes,
    },
}

/// All changes of one entry, committed together or not at all. They take effect in their order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WriteSet(Vec<Write>);

impl WriteSet {
    /// A set of no changes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds one change behind the others.
    pub fn push(&mut self, write: Write) {
        self.0.push(write);
    }

    /// The changes in their order.
    pub fn iter(&self) -> std::slice::Iter<'_, Write> {
        self.0.iter()
    }

    /// How many changes there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The bytes of all keys and values.
    pub fn bytes(&self) -> usize {
        self.0
            .iter()
            .map(|write| match write {
                Write::Put { key, value } => key.len().saturating_add(value.len()),
                Write::Delete { key } => key.len(),
                Write::DeleteRange { from, to } => from.len().saturating_add(to.len()),
            })
            .fold(0, usize::saturating_add)
    }
}

impl FromIterator<Write> for WriteSet {
    fn from_iter<I: IntoIterator<Item = Write>>(writes: I) -> Self {
        Self(writes.into_iter().collect())
    }
}
