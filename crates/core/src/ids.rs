//! What names a queue, a message and a lease.

use std::fmt;
use std::str::FromStr;

/// A Raft group. All queues live in group 1; group 0 is kept for cluster metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u32);

impl GroupId {
    /// The group of every queue today.
    pub const QUEUES: GroupId = GroupId(1);
}

/// One incarnation of a queue: a queue deleted and made again has a new id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueId(pub u64);

/// Where a message's record was written at its enqueue or move.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Space {
    /// Ready from the start: the record is its own place in the fresh lane of its priority.
    Fresh,
    /// Delayed from the start: no receive scans it.
    Held,
}

/// The place of a message's record. One point read finds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The queue.
    pub queue: QueueId,
    /// Fresh or held.
    pub space: Space,
    /// 0 to 9, 9 first; 4 for all until priorities come.
    pub priority: u8,
    /// The sequence within the queue, from 1.
    pub sequence: u64,
}

impl Place {
    /// Space and priority in one byte: priority 0-9, plus 16 for held.
    pub fn lane_byte(&self) -> u8 {
        match self.space {
            Space::Fresh => self.priority,
            Space::Held => self.priority | 0x10,
        }
    }

    /// The place with this lane byte, or `None` where the byte means nothing.
    pub fn from_parts(queue: QueueId, lane_byte: u8, sequence: u64) -> Option<Place> {
        let priority = lane_byte & 0x0f;
        let space = match lane_byte & 0xf0 {
            0 => Space::Fresh,
            0x10 => Space::Held,
            _ => return None,
        };
        (priority <= 9).then_some(Place { queue, space, priority, sequence })
    }
}

/// A message's id for ever: it names the place where the message was born, also after it has moved.
///
/// Written `group.queue.space+priority.sequence`: `1.17.m4.1043` (fresh), `1.17.h4.1044` (held).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId {
    /// The group.
    pub group: GroupId,
    /// The place at birth.
    pub origin: Place,
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Place { queue, space, priority, sequence } = self.origin;
        let space = match space {
            Space::Fresh => 'm',
            Space::Held => 'h',
        };
        write!(f, "{}.{}.{space}{priority}.{sequence}", self.group.0, queue.0)
    }
}

/// A text that is no message id or no lease token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected {expected}, but got {got}")]
pub struct IdError {
    /// What was expected.
    pub expected: &'static str,
    /// What came: a text in quotes, cut to 64 characters, or how many bytes.
    pub got: String,
}

impl FromStr for MessageId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let parse = || {
            let mut parts = text.split('.');
            let group = number(parts.next()?)?;
            let queue = number(parts.next()?)?;
            let lane = parts.next()?;
            let sequence = number(parts.next()?)?;
            if parts.next().is_some() {
                return None;
            }
            let (space, priority) = match lane.split_at_checked(1)? {
                ("m", priority) => (Space::Fresh, priority),
                ("h", priority) => (Space::Held, priority),
                _ => return None,
            };
            let priority = u8::try_from(number(priority)?).ok().filter(|p| *p <= 9)?;
            let group = GroupId(u32::try_from(group).ok()?);
            Some(MessageId { group, origin: Place { queue: QueueId(queue), space, priority, sequence } })
        };
        parse().ok_or_else(|| IdError {
            expected: "a message id such as 1.17.m4.1043",
            got: format!("{:?}", text.chars().take(64).collect::<String>()),
        })
    }
}

/// A canonical decimal number: digits only, no leading zero.
fn number(text: &str) -> Option<u64> {
    let canonical = text == "0" || (!text.starts_with('0') && text.bytes().all(|b| b.is_ascii_digit()));
    if canonical { text.parse().ok() } else { None }
}

/// Proof of one lease: which message, and a keyed hash that only the cluster can make.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseToken {
    /// The group.
    pub group: GroupId,
    /// The queue that the message was leased from.
    pub queue: QueueId,
    /// The message's sequence there.
    pub sequence: u64,
    /// SipHash-2-4-128 of (queue, sequence, receive count, log index of the grant) under the cluster's secret.
    pub hash: [u8; 16],
}

impl LeaseToken {
    /// The encoded length: version, group, queue, sequence, hash.
    pub const LEN: usize = 1 + 4 + 8 + 8 + 16;
    const VERSION: u8 = 1;

    /// The bytes handed to clients.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(Self::LEN);
        out.push(Self::VERSION);
        out.extend_from_slice(&self.group.0.to_be_bytes());
        out.extend_from_slice(&self.queue.0.to_be_bytes());
        out.extend_from_slice(&self.sequence.to_be_bytes());
        out.extend_from_slice(&self.hash);
        out
    }

    /// Reads what `to_bytes` wrote. Whether the token is worth anything, only `apply` can tell.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, IdError> {
        let parse = || {
            let (version, rest) = bytes.split_first()?;
            let (group, rest) = rest.split_first_chunk::<4>()?;
            let (queue, rest) = rest.split_first_chunk::<8>()?;
            let (sequence, rest) = rest.split_first_chunk::<8>()?;
            let hash: [u8; 16] = rest.try_into().ok()?;
            let group = GroupId(u32::from_be_bytes(*group));
            (*version == Self::VERSION && group == GroupId::QUEUES).then_some(LeaseToken {
                group,
                queue: QueueId(u64::from_be_bytes(*queue)),
                sequence: u64::from_be_bytes(*sequence),
                hash,
            })
        };
        parse().ok_or_else(|| IdError {
            expected: "a lease token as a delivery carried it (37 bytes)",
            got: format!("{} bytes", bytes.len()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_ids_read_back_as_written() {
        for text in ["1.17.m4.1043", "1.17.h9.1", "0.0.m0.0", "4294967295.18446744073709551615.h9.18446744073709551615"]
        {
            assert_eq!(text.parse::<MessageId>().map(|id| id.to_string()), Ok(text.to_owned()));
        }
    }

    #[test]
    fn other_texts_are_no_message_ids() {
        for text in [
            "",
            "1",
            "1.2.m4",
            "1.2.m4.5.6",
            "1.2.x4.5",
            "1.2.m10.5",
            "1.2.m4.05",
            "1.2.m4.+5",
            "1.2.m4.-5",
            "ä.2.m4.5",
            "1.2.ä.5",
        ] {
            assert!(text.parse::<MessageId>().is_err(), "{text}");
        }
    }

    #[test]
    fn tokens_read_back_as_written_and_nothing_else_is_one() {
        let token = LeaseToken { group: GroupId(1), queue: QueueId(7), sequence: 9, hash: [3; 16] };
        let bytes = token.to_bytes();
        assert_eq!(bytes.len(), LeaseToken::LEN);
        assert_eq!(LeaseToken::from_bytes(&bytes), Ok(token));
        for cut in 0..bytes.len() {
            assert!(LeaseToken::from_bytes(&bytes[..cut]).is_err());
        }
        let mut newer = bytes.clone();
        newer[0] = 2;
        assert!(LeaseToken::from_bytes(&newer).is_err());
        let mut elsewhere = bytes.clone();
        elsewhere[4] = 2;
        assert!(LeaseToken::from_bytes(&elsewhere).is_err());
    }
}
