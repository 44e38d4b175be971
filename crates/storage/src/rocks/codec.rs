//! How records stand on the disk: one byte for the format, then protobuf. The numbers are for ever.

use bytes::Bytes;
use prost::Message;

use crate::log::{LeaderId, LogId, LogRecord, Payload, Vote};
use crate::state::Applied;

const FORMAT: u8 = 1;

const BLANK: u32 = 1;
const NORMAL: u32 = 2;
const MEMBERSHIP: u32 = 3;

#[derive(Clone, PartialEq, Message)]
struct StoredRecord {
    #[prost(uint64, tag = "1")]
    term: u64,
    #[prost(uint64, tag = "2")]
    node: u64,
    #[prost(uint32, tag = "3")]
    kind: u32,
    #[prost(bytes = "bytes", tag = "4")]
    payload: Bytes,
    /// The payload bytes of all entries ever, up to and with this one: what a log holds is a difference of two.
    #[prost(uint64, tag = "5")]
    total: u64,
}

#[derive(Clone, PartialEq, Message)]
struct StoredLogId {
    #[prost(uint64, tag = "1")]
    term: u64,
    #[prost(uint64, tag = "2")]
    node: u64,
    #[prost(uint64, tag = "3")]
    index: u64,
}

#[derive(Clone, PartialEq, Message)]
struct StoredVote {
    #[prost(uint64, tag = "1")]
    term: u64,
    #[prost(uint64, tag = "2")]
    node: u64,
    #[prost(bool, tag = "3")]
    committed: bool,
}

#[derive(Clone, PartialEq, Message)]
struct StoredPurged {
    #[prost(message, optional, tag = "1")]
    last: Option<StoredLogId>,
    /// The payload bytes of all entries ever, up to and with the last one purged.
    #[prost(uint64, tag = "2")]
    total: u64,
}

#[derive(Clone, PartialEq, Message)]
struct StoredApplied {
    #[prost(message, optional, tag = "1")]
    last: Option<StoredLogId>,
    #[prost(bytes = "bytes", tag = "2")]
    membership: Bytes,
}

impl From<LogId> for StoredLogId {
    fn from(id: LogId) -> Self {
        StoredLogId { term: id.leader.term, node: id.leader.node, index: id.index }
    }
}

impl From<StoredLogId> for LogId {
    fn from(id: StoredLogId) -> Self {
        LogId { leader: LeaderId { term: id.term, node: id.node }, index: id.index }
    }
}

fn encode(message: &impl Message) -> Vec<u8> {
    let mut buffer = Vec::with_capacity(1 + message.encoded_len());
    buffer.push(FORMAT);
    // A Vec grows as needed.
    message.encode_raw(&mut buffer);
    buffer
}

fn decode<M: Message + Default>(what: &str, bytes: impl Into<Bytes>) -> Result<M, String> {
    let mut bytes: Bytes = bytes.into();
    match bytes.first() {
        Some(&FORMAT) => {}
        Some(format) => return Err(format!("{what} has format {format}, and this program knows {FORMAT}")),
        None => return Err(format!("{what} is empty")),
    }
    let body = bytes.split_off(1);
    M::decode(body).map_err(|error| format!("{what} makes no sense: {error}"))
}

pub(super) fn encode_record(record: &LogRecord, total: u64) -> Vec<u8> {
    let (kind, payload) = match &record.payload {
        Payload::Blank => (BLANK, Bytes::new()),
        Payload::Normal(bytes) => (NORMAL, bytes.clone()),
        Payload::Membership(bytes) => (MEMBERSHIP, bytes.clone()),
    };
    encode(&StoredRecord { term: record.id.leader.term, node: record.id.leader.node, kind, payload, total })
}

/// The record under `index`, and the total up to and with it.
pub(super) fn decode_record(index: u64, bytes: impl Into<Bytes>) -> Result<(LogRecord, u64), String> {
    let stored: StoredRecord = decode(&format!("entry {index}"), bytes)?;
    let payload = match stored.kind {
        BLANK => Payload::Blank,
        NORMAL => Payload::Normal(stored.payload),
        MEMBERSHIP => Payload::Membership(stored.payload),
        kind => return Err(format!("entry {index} is of the unknown kind {kind}")),
    };
    let leader = LeaderId { term: stored.term, node: stored.node };
    Ok((LogRecord { id: LogId { leader, index }, payload }, stored.total))
}

pub(super) fn encode_vote(vote: Vote) -> Vec<u8> {
    encode(&StoredVote { term: vote.leader.term, node: vote.leader.node, committed: vote.committed })
}

pub(super) fn decode_vote(bytes: &[u8]) -> Result<Vote, String> {
    let stored: StoredVote = decode("the vote", bytes.to_vec())?;
    Ok(Vote { leader: LeaderId { term: stored.term, node: stored.node }, committed: stored.committed })
}

pub(super) fn encode_log_id(id: LogId) -> Vec<u8> {
    encode(&StoredLogId::from(id))
}

pub(super) fn decode_log_id(bytes: &[u8]) -> Result<LogId, String> {
    decode::<StoredLogId>("the committed position", bytes.to_vec()).map(LogId::from)
}

pub(super) fn encode_purged(last: LogId, total: u64) -> Vec<u8> {
    encode(&StoredPurged { last: Some(last.into()), total })
}

pub(super) fn decode_purged(bytes: &[u8]) -> Result<(LogId, u64), String> {
    let stored: StoredPurged = decode("the purged position", bytes.to_vec())?;
    match stored.last {
        Some(last) => Ok((last.into(), stored.total)),
        None => Err("the purged position is absent".into()),
    }
}

pub(super) fn encode_applied(applied: &Applied) -> Vec<u8> {
    encode(&StoredApplied { last: applied.last.map(StoredLogId::from), membership: applied.membership.clone() })
}

pub(super) fn decode_applied(bytes: &[u8]) -> Result<Applied, String> {
    let stored: StoredApplied = decode("the applied position", bytes.to_vec())?;
    Ok(Applied { last: stored.last.map(LogId::from), membership: stored.membership })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(term: u64, index: u64) -> LogId {
        LogId { leader: LeaderId { term, node: 3 }, index }
    }

    #[test]
    fn records_keep_their_bytes_for_ever() {
        let record = LogRecord { id: id(300, 9), payload: Payload::Normal(Bytes::from_static(b"hi")) };
        let bytes = encode_record(&record, 1000);
        assert_eq!(bytes, [1, 8, 0xac, 2, 16, 3, 24, 2, 34, 2, b'h', b'i', 40, 0xe8, 7]);
        assert_eq!(decode_record(9, bytes), Ok((record, 1000)));
        for payload in [Payload::Blank, Payload::Membership(Bytes::from_static(b"m"))] {
            let record = LogRecord { id: id(1, 0), payload };
            assert_eq!(decode_record(0, encode_record(&record, 0)), Ok((record, 0)));
        }
    }

    #[test]
    fn positions_and_votes() {
        let vote = Vote { leader: LeaderId { term: 4, node: 2 }, committed: true };
        assert_eq!(decode_vote(&encode_vote(vote)), Ok(vote));
        assert_eq!(decode_log_id(&encode_log_id(id(1, 2))), Ok(id(1, 2)));
        assert_eq!(decode_purged(&encode_purged(id(1, 2), 77)), Ok((id(1, 2), 77)));
        let applied = Applied { last: Some(id(2, 2)), membership: Bytes::from_static(b"abc") };
        assert_eq!(decode_applied(&encode_applied(&applied)), Ok(applied));
        assert_eq!(decode_applied(&encode_applied(&Applied::default())), Ok(Applied::default()));
    }

    #[test]
    fn other_formats_are_refused() {
        let mut bytes = encode_log_id(id(1, 2));
        bytes[0] = 2;
        assert!(decode_log_id(&bytes).unwrap_err().contains("format 2"));
        assert!(decode_vote(&[]).unwrap_err().contains("empty"));
        assert!(decode_record(5, vec![1, 24, 9]).unwrap_err().contains("kind 9"));
    }
}
