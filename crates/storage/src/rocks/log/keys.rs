//! The keys of the log's RocksDB. The numbers are for ever.

use ticketrail_core::GroupId;

/// The entries: `group | index`, big endian, so that they stand in order.
pub(super) const LOG: &str = "log";
/// The positions: `group | tag`.
pub(super) const META: &str = "meta";

/// The format of the whole database, under a key of its own in `META`.
pub(super) const FORMAT_KEY: &[u8] = b"format";
/// The identity of the node that the log belongs to, in `META`.
pub(super) const OWNER_KEY: &[u8] = b"owner";

/// The tags of `META`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tag {
    Vote = 1,
    Purged = 2,
    Committed = 3,
}

pub(super) fn entry(group: GroupId, index: u64) -> [u8; 12] {
    let mut key = [0; 12];
    key[..4].copy_from_slice(&group.0.to_be_bytes());
    key[4..].copy_from_slice(&index.to_be_bytes());
    key
}

pub(super) fn parse_entry(key: &[u8]) -> Result<(GroupId, u64), String> {
    let (Some(group), Some(index), 12) = (key.first_chunk::<4>(), key.last_chunk::<8>(), key.len()) else {
        return Err(format!("an entry has the key {key:?}"));
    };
    Ok((GroupId(u32::from_be_bytes(*group)), u64::from_be_bytes(*index)))
}

pub(super) fn meta(group: GroupId, tag: Tag) -> [u8; 5] {
    let mut key = [0; 5];
    key[..4].copy_from_slice(&group.0.to_be_bytes());
    key[4] = tag as u8;
    key
}

pub(super) fn parse_meta(key: &[u8]) -> Result<(GroupId, Tag), String> {
    let (Some(group), Some(tag), 5) = (key.first_chunk::<4>(), key.last(), key.len()) else {
        return Err(format!("a position has the key {key:?}"));
    };
    let tag = [Tag::Vote, Tag::Purged, Tag::Committed]
        .into_iter()
        .find(|known| *known as u8 == *tag)
        .ok_or_else(|| format!("a position has the unknown tag {tag}"))?;
    Ok((GroupId(u32::from_be_bytes(*group)), tag))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_stand_in_order_and_parse_back() {
        assert!(entry(GroupId(1), u64::MAX) < entry(GroupId(2), 0));
        assert!(entry(GroupId(1), 255) < entry(GroupId(1), 256));
        assert_eq!(parse_entry(&entry(GroupId(7), 9)), Ok((GroupId(7), 9)));
        assert_eq!(parse_meta(&meta(GroupId(7), Tag::Purged)), Ok((GroupId(7), Tag::Purged)));
        assert!(parse_meta(&[0, 0, 0, 1, 9]).is_err());
        assert!(parse_entry(b"short").is_err());
    }
}
