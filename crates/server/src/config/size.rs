//! Bytes and times as people write them.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde::{Serialize, Serializer};

/// A number of bytes, written `64 MiB` or as a plain number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

const UNITS: [(&str, u64); 4] = [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

impl Size {
    /// `n` MiB.
    pub const fn mib(n: u64) -> Self {
        Self(n << 20)
    }

    /// `n` GiB.
    pub const fn gib(n: u64) -> Self {
        Self(n << 30)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = UNITS.into_iter().find(|(_, bytes)| self.0 != 0 && self.0.is_multiple_of(*bytes));
        let (name, bytes) = unit.unwrap_or(("B", 1));
        write!(f, "{} {name}", self.0 / bytes)
    }
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("expected bytes such as 1048576, 64 KiB, 1 MiB or 2 GiB, but got {text:?}");
        let trimmed = text.trim();
        let split = trimmed.find(|c: char| !c.is_ascii_digit()).unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(split);
        let number: u64 = number.parse().map_err(|_| wrong())?;
        let bytes = match unit.trim() {
            "" | "B" => 1,
            unit => UNITS.into_iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?.1,
        };
        number.checked_mul(bytes).map(Size).ok_or_else(wrong)
    }
}

/// A length of time, written `150ms`, `30s`, `10m`, `12h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Age(pub Duration);

impl Age {
    /// `n` milliseconds.
    pub const fn millis(n: u64) -> Self {
        Self(Duration::from_millis(n))
    }

    /// `n` seconds.
    pub const fn secs(n: u64) -> Self {
        Self(Duration::from_secs(n))
    }

    /// In whole milliseconds.
    pub fn as_ms(self) -> u64 {
        u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX)
    }
}

impl fmt::Display for Age {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", humantime::format_duration(self.0))
    }
}

impl FromStr for Age {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |e| format!("expected a time such as 150ms, 30s, 10m or 12h, but got {text:?}: {e}");
        humantime::parse_duration(text.trim()).map(Age).map_err(wrong)
    }
}

/// Reads a text by `FromStr`; where `NUMBERS`, also a plain number.
struct Text<T>(std::marker::PhantomData<T>);

impl<T: FromStr<Err = String>> Visitor<'_> for Text<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text such as \"64 MiB\" or \"30s\"")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<T, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<T, E> {
        self.visit_str(&number.to_string())
    }
}

macro_rules! as_text {
    ($type:ty) => {
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_any(Text(std::marker::PhantomData))
            }
        }
    };
}

as_text!(Size);
as_text!(Age);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_bytes_with_binary_units() {
        for (text, bytes) in
            [("0", 0), ("17", 17), ("17 B", 17), ("64KiB", 65_536), (" 1 MiB ", 1 << 20), ("2 TiB", 2 << 40)]
        {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
        for wrong in ["", "MiB", "1 MB", "1.5 GiB", "-1", "99999999999 TiB", "1 mib"] {
            let error = wrong.parse::<Size>().unwrap_err();
            assert!(error.starts_with("expected bytes such as"), "{error}");
        }
        for bytes in [0, 1, 1_000, 1 << 10, 3 << 20, 1 << 40, u64::MAX] {
            assert_eq!(Size(bytes).to_string().parse(), Ok(Size(bytes)));
        }
    }

    #[test]
    fn ages_have_units() {
        assert_eq!("150ms".parse(), Ok(Age::millis(150)));
        assert_eq!("1h 30m".parse(), Ok(Age::secs(5_400)));
        for wrong in ["", "10", "10 parsecs", "-1s"] {
            assert!(wrong.parse::<Age>().unwrap_err().starts_with("expected a time such as"), "{wrong}");
        }
        assert_eq!(Age::secs(600).to_string(), "10m");
    }
}
