//! The named peers of a cluster, as people write them.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::de::{self, Deserialize, Deserializer, SeqAccess, Visitor};
use serde::{Serialize, Serializer};

/// The most named peers: ids above that are given to those who join later.
const MOST: usize = 99;
/// The longest name, in bytes.
const NAME_BYTES: usize = 128;

/// The named peers, written `rail-0=HOST:PORT,rail-1=HOST:PORT`; in a file, a list of `NAME=HOST:PORT` as well.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PeerList(pub Vec<(String, String)>);

impl PeerList {
    /// The address of the peer of this name.
    pub fn address_of(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, address)| address.as_str())
    }
}

/// Whether `text` is `HOST:PORT` with a port from 1 on.
pub(super) fn is_address(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let plain = |c: char| c.is_ascii_alphanumeric() || ".-_[]:".contains(c);
    !host.is_empty() && host.chars().all(plain) && port.parse::<u16>().is_ok_and(|port| port != 0)
}

/// Whether `text` can be a member's name.
pub(super) fn is_name(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
    (1..=NAME_BYTES).contains(&text.len()) && text.chars().all(plain)
}

impl fmt::Display for PeerList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, (name, address)) in self.0.iter().enumerate() {
            let comma = if place == 0 { "" } else { "," };
            write!(f, "{comma}{name}={address}")?;
        }
        Ok(())
    }
}

impl FromStr for PeerList {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        Self::of(parts)
    }
}

impl PeerList {
    fn of<'t>(parts: impl Iterator<Item = &'t str>) -> Result<Self, String> {
        let mut peers = Vec::new();
        let (mut names, mut addresses) = (BTreeSet::new(), BTreeSet::new());
        for part in parts {
            let peer = part.split_once('=').filter(|(name, address)| is_name(name) && is_address(address));
            let Some((name, address)) = peer else {
                return Err(format!("expected NAME=HOST:PORT such as rail-0=rail-0.peers:50001, but got {part:?}"));
            };
            if !names.insert(name.to_owned()) || !addresses.insert(address.to_owned()) {
                return Err(format!("expected each peer once, but {part:?} has a name or an address of another one"));
            }
            peers.push((name.to_owned(), address.to_owned()));
        }
        if peers.len() > MOST {
            return Err(format!("expected at most {MOST} peers, but got {}", peers.len()));
        }
        Ok(Self(peers))
    }
}

impl Serialize for PeerList {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PeerList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Texts;
        impl<'de> Visitor<'de> for Texts {
            type Value = PeerList;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("peers such as \"rail-0=HOST:PORT,rail-1=HOST:PORT\", or a list of them")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<PeerList, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<PeerList, A::Error> {
                let mut parts: Vec<String> = Vec::new();
                while let Some(part) = seq.next_element()? {
                    parts.push(part);
                }
                PeerList::of(parts.iter().map(String::as_str)).map_err(de::Error::custom)
            }
        }
        deserializer.deserialize_any(Texts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_read_back_as_written() {
        let text = "rail-0=rail-0.peers:50001,rail-1=10.0.0.2:50001,c=[::1]:1";
        let peers: PeerList = text.parse().expect("peers");
        assert_eq!(peers.to_string(), text);
        assert_eq!(peers.address_of("rail-1"), Some("10.0.0.2:50001"));
        assert_eq!(peers.address_of("rail-9"), None);
        assert_eq!(" a=b:1 , c=d:2, ".parse::<PeerList>().map(|peers| peers.0.len()), Ok(2));
        assert_eq!("".parse(), Ok(PeerList::default()));
        #[derive(serde::Deserialize)]
        struct File {
            peers: PeerList,
        }
        for file in ["peers = \"a=b:1,c=d:2\"", "peers = [\"a=b:1\", \"c=d:2\"]"] {
            let read: File = toml::from_str(file).expect(file);
            assert_eq!(read.peers.to_string(), "a=b:1,c=d:2");
        }
    }

    #[test]
    fn what_is_no_list_of_peers_is_refused() {
        for wrong in ["a", "a=b", "a=b:0", "a=b:x", "=b:1", "a=:1", "a=b:1,a=c:1", "a=b:1,c=b:1", "a b=c:1", "a=b/c:1"]
        {
            let error = wrong.parse::<PeerList>().expect_err(wrong);
            assert!(error.starts_with("expected"), "{wrong}: {error}");
        }
    }
}
