//! An address that may be none.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use serde::de::{self, Deserialize, Deserializer};
use serde::{Serialize, Serializer};

/// How nothing to listen on is written; an empty text means the same.
const NONE: &str = "none";

/// An address to listen on, written `IP:PORT`, or `none`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MaybeAddress(pub Option<SocketAddr>);

impl fmt::Display for MaybeAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(address) => write!(f, "{address}"),
            None => f.write_str(NONE),
        }
    }
}

impl FromStr for MaybeAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.trim() {
            "" | NONE => Ok(Self(None)),
            address => match address.parse() {
                Ok(address) => Ok(Self(Some(address))),
                Err(_) => Err(format!("expected IP:PORT such as 0.0.0.0:8080, or none, but got {text:?}")),
            },
        }
    }
}

impl Serialize for MaybeAddress {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for MaybeAddress {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_may_be_none() {
        for (text, expected) in [
            ("", None),
            ("none", None),
            ("127.0.0.1:0", Some(SocketAddr::from(([127, 0, 0, 1], 0)))),
            (" 0.0.0.0:8080 ", Some(SocketAddr::from(([0, 0, 0, 0], 8_080)))),
        ] {
            let parsed: MaybeAddress = text.parse().expect(text);
            assert_eq!(parsed, MaybeAddress(expected), "{text}");
            assert_eq!(parsed.to_string().parse(), Ok(parsed));
        }
        for wrong in ["8080", "localhost:8080", "off"] {
            assert!(wrong.parse::<MaybeAddress>().unwrap_err().starts_with("expected IP:PORT"), "{wrong}");
        }
    }
}
