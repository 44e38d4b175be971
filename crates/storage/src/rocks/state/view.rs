//! A consistent view of one generation.

use bytes::Bytes;
use rocksdb::{ReadOptions, Snapshot};
use ticketrail_core::{Family, View, ViewError};

use super::generation::Generation;
use super::segments::segments;

pub(super) struct RocksView<'a> {
    generation: &'a Generation,
    snapshot: Snapshot<'a>,
    gets: ReadOptions,
}

impl<'a> RocksView<'a> {
    pub(super) fn new(generation: &'a Generation) -> RocksView<'a> {
        let snapshot = generation.db().snapshot();
        let mut gets = ReadOptions::default();
        gets.set_snapshot(&snapshot);
        RocksView { generation, snapshot, gets }
    }

    fn scan_family(
        &self,
        family: Family,
        bounds: (&[u8], &[u8]),
        limit: usize,
        out: &mut Vec<(Bytes, Bytes)>,
    ) -> Result<(), ViewError> {
        let mut options = ReadOptions::default();
        options.set_snapshot(&self.snapshot);
        options.set_iterate_lower_bound(bounds.0);
        options.set_iterate_upper_bound(bounds.1);
        let family = self.generation.family(family).map_err(ViewError)?;
        let mut at = self.generation.db().raw_iterator_cf_opt(family, options);
        at.seek_to_first();
        while out.len() < limit {
            let Some((key, value)) = at.item() else { break };
            out.push((Bytes::copy_from_slice(key), Bytes::copy_from_slice(value)));
            at.next();
        }
        at.status().map_err(|error| ViewError(String::from(error)))
    }
}

impl View for RocksView<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, ViewError> {
        let family = self.generation.family(Family::of(key)).map_err(ViewError)?;
        let value = self.generation.db().get_pinned_cf_opt(family, key, &self.gets);
        Ok(value.map_err(|error| ViewError(String::from(error)))?.map(|value| Bytes::copy_from_slice(&value)))
    }

    fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<(Bytes, Bytes)>, ViewError> {
        let mut out = Vec::new();
        for segment in segments(from, to) {
            if out.len() < limit {
                self.scan_family(segment.family, (segment.from, segment.to), limit, &mut out)?;
            }
        }
        Ok(out)
    }
}
