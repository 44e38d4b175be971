//! What names a queue, a message, a lease, a request and a place in the log, as it stands in a history.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A text that does not name what it should.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected {expected}, but got {got:?}")]
pub struct NameError {
    expected: &'static str,
    got: String,
}

/// Serializes a type as its text, and reads it back.
macro_rules! as_text {
    ($name:ident) => {
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Text;
                impl serde::de::Visitor<'_> for Text {
                    type Value = $name;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str("a text")
                    }

                    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<$name, E> {
                        text.parse().map_err(E::custom)
                    }
                }
                deserializer.deserialize_str(Text)
            }
        }
    };
}

/// A queue by name: `orders` in the namespace `default`, else `namespace|orders`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct QueueName(String);

impl QueueName {
    /// The queue `name` of `namespace`; an empty namespace is `default`.
    pub fn new(namespace: &str, name: &str) -> Self {
        if namespace.is_empty() || namespace == "default" {
            Self(name.to_owned())
        } else {
            Self(format!("{namespace}|{name}"))
        }
    }

    /// The namespace.
    pub fn namespace(&self) -> &str {
        self.0.split_once('|').map_or("default", |(namespace, _)| namespace)
    }

    /// The name within the namespace.
    pub fn name(&self) -> &str {
        self.0.split_once('|').map_or(&self.0, |(_, name)| name)
    }
}

impl fmt::Display for QueueName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A message's id, which names the place where it was born: `group.queue.lane.sequence`, such as `1.17.m4.1043`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId {
    /// The Raft group.
    pub group: u32,
    /// The queue's id.
    pub queue: u64,
    /// Whether it was delayed at its birth (`h`), or ready (`m`).
    pub held: bool,
    /// Its priority then, 0 to 9.
    pub priority: u8,
    /// Its sequence in that queue, from 1.
    pub sequence: u64,
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lane = if self.held { 'h' } else { 'm' };
        write!(f, "{}.{}.{lane}{}.{}", self.group, self.queue, self.priority, self.sequence)
    }
}

impl FromStr for MessageId {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let parse = || {
            let mut parts = text.split('.');
            let (group, queue, lane, sequence) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
            let (held, priority) = match lane.split_at_checked(1)? {
                ("m", priority) => (false, priority),
                ("h", priority) => (true, priority),
                _ => return None,
            };
            let id = MessageId {
                group: group.parse().ok()?,
                queue: queue.parse().ok()?,
                held,
                priority: priority.parse().ok()?,
                sequence: sequence.parse().ok()?,
            };
            parts.next().is_none().then_some(id)
        };
        parse().ok_or_else(|| NameError { expected: "a message id such as 1.17.m4.1043", got: text.to_owned() })
    }
}

as_text!(MessageId);

/// Stands for a lease token: a 128-bit hash of its bytes, in 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u128);

impl Token {
    /// Stands for the token with these bytes, as a delivery carried them: FNV-1a over 128 bits.
    pub fn of(bytes: &[u8]) -> Self {
        const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
        const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
        Self(bytes.iter().fold(OFFSET, |hash, byte| (hash ^ u128::from(*byte)).wrapping_mul(PRIME)))
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({self})")
    }
}

impl FromStr for Token {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let bad = || NameError { expected: "the 32 hexadecimal digits of a token's hash", got: text.to_owned() };
        if text.len() != 32 {
            return Err(bad());
        }
        u128::from_str_radix(text, 16).map(Token).map_err(|_| bad())
    }
}

as_text!(Token);

/// A hash in 16 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Hash(pub u64);

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl FromStr for Hash {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let bad = || NameError { expected: "the 16 hexadecimal digits of a hash", got: text.to_owned() };
        if text.len() != 16 {
            return Err(bad());
        }
        u64::from_str_radix(text, 16).map(Hash).map_err(|_| bad())
    }
}

as_text!(Hash);

/// The hash of a body: FNV-1a over 64 bits.
pub fn fingerprint(body: &[u8]) -> Hash {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    Hash(body.iter().fold(0xcbf2_9ce4_8422_2325, step))
}

/// A test's message bodies: the first 8 bytes are the message's value `v`, big-endian, and the rest follows from it.
pub mod body {
    /// A body of `len` bytes, at least 8, for the message `v`.
    pub fn make(v: u64, len: usize) -> Vec<u8> {
        let mut bytes = v.to_be_bytes().to_vec();
        let mut state = v ^ 0x9e37_79b9_7f4a_7c15;
        while bytes.len() < len {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            bytes.push(state.to_be_bytes()[0]);
        }
        bytes
    }

    /// The value that a body begins with; 0 where it is shorter than 8 bytes, and so none of ours.
    pub fn value(body: &[u8]) -> u64 {
        body.first_chunk::<8>().map_or(0, |first| u64::from_be_bytes(*first))
    }
}

/// A request's id: `[session, seq]`, or without a session 16 bytes in 32 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rid {
    /// The session; without one the first 8 of 16 bytes.
    pub session: u64,
    /// The request's number in it, from 1; without one the last 8 of 16 bytes.
    pub seq: u64,
    /// Whether it has no session.
    pub free: bool,
}

impl Rid {
    /// Request `seq` of a session.
    pub fn of(session: u64, seq: u64) -> Self {
        Self { session, seq, free: false }
    }

    /// A request without a session, by its 16 bytes.
    pub fn token(high: u64, low: u64) -> Self {
        Self { session: high, seq: low, free: true }
    }
}

impl Serialize for Rid {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.free { serializer.collect_str(self) } else { (self.session, self.seq).serialize(serializer) }
    }
}

impl<'de> Deserialize<'de> for Rid {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> serde::de::Visitor<'de> for Either {
            type Value = Rid;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("[session, seq] or 32 hexadecimal digits")
            }

            fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut seq: A) -> Result<Rid, A::Error> {
                let lacks = |at: usize| serde::de::Error::invalid_length(at, &"[session, seq]");
                let session = seq.next_element()?.ok_or_else(|| lacks(0))?;
                let number = seq.next_element()?.ok_or_else(|| lacks(1))?;
                Ok(Rid::of(session, number))
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Rid, E> {
                let Token(bytes) = text.parse().map_err(E::custom)?;
                Ok(Rid::token((bytes >> 64) as u64, bytes as u64))
            }
        }
        deserializer.deserialize_any(Either)
    }
}

impl fmt::Display for Rid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.free {
            write!(f, "{:016x}{:016x}", self.session, self.seq)
        } else {
            write!(f, "{}/{}", self.session, self.seq)
        }
    }
}

/// Where in the log something took effect: `[index, ordinal]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default)]
#[serde(from = "(u64, u32)", into = "(u64, u32)")]
pub struct Position {
    /// The log index, from 1.
    pub index: u64,
    /// Which request of that entry, from 0.
    pub ordinal: u32,
}

impl From<(u64, u32)> for Position {
    fn from((index, ordinal): (u64, u32)) -> Self {
        Self { index, ordinal }
    }
}

impl From<Position> for (u64, u32) {
    fn from(position: Position) -> Self {
        (position.index, position.ordinal)
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.index, self.ordinal)
    }
}
