//! Names that are legal because they exist.

use std::fmt;

use crate::limits;

/// Why a text is no name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Too short or too long.
    #[error("expected a name of 1 to {max} bytes, but it has {len}")]
    Length {
        /// How long it is, in bytes.
        len: usize,
        /// How long it may be, in bytes.
        max: usize,
    },
    /// A character that no name has.
    #[error("expected only A-Z a-z 0-9 . _ - / : in a name, but it has {0:?}")]
    Character(char),
    /// A dot at an end.
    #[error("expected no dot at either end of a name, but {0:?} has one")]
    Dot(String),
}

fn check(text: &str) -> Result<(), NameError> {
    let (len, max) = (text.len(), limits::NAME_BYTES);
    if len == 0 || len > max {
        return Err(NameError::Length { len, max });
    }
    if let Some(odd) = text.chars().find(|c| !c.is_ascii_alphanumeric() && !"._-/:".contains(*c)) {
        return Err(NameError::Character(odd));
    }
    if text.starts_with('.') || text.ends_with('.') {
        return Err(NameError::Dot(text.to_owned()));
    }
    Ok(())
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(String);

        impl $name {
            /// Checks a text: 1-200 bytes of `A-Z a-z 0-9 . _ - / :`, no dot at either end.
            pub fn parse(text: impl Into<String>) -> Result<Self, NameError> {
                let text = text.into();
                check(&text)?;
                Ok(Self(text))
            }

            /// The name.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

name! {
    /// The name of a queue within its namespace.
    QueueName
}
name! {
    /// The unit of atomicity and of permissions; `default` unless another is named.
    Namespace
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked_at_every_edge() {
        for good in ["a", "orders", "A-Z_a/z:0.9", &"x".repeat(200)] {
            assert!(QueueName::parse(good).is_ok(), "{good}");
        }
        assert_eq!(QueueName::parse(""), Err(NameError::Length { len: 0, max: 200 }));
        assert_eq!(QueueName::parse("x".repeat(201)), Err(NameError::Length { len: 201, max: 200 }));
        assert_eq!(QueueName::parse("a b"), Err(NameError::Character(' ')));
        assert_eq!(QueueName::parse("bestellung-ä"), Err(NameError::Character('ä')));
        for dotted in [".a", "a.", "."] {
            assert_eq!(QueueName::parse(dotted), Err(NameError::Dot(dotted.to_owned())));
        }
    }
}
