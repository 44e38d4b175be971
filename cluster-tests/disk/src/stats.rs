//! What was done on a disk, and which faults took effect.

use std::fmt;
use std::str::FromStr;

use anyhow::Context as _;

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counts since the disk was mounted, but for those that say "now".
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct Stats {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl fmt::Display for Stats {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let counts = [$(format!("{}={}", stringify!($name), self.$name)),*];
                f.write_str(&counts.join(" "))
            }
        }

        impl Stats {
            fn set(&mut self, name: &str, value: u64) {
                match name {
                    $(stringify!($name) => self.$name = value,)*
                    // A newer disk counts more.
                    _ => {}
                }
            }
        }
    };
}

counts! {
    /// Writes.
    writes,
    /// Bytes written.
    written_bytes,
    /// Fsyncs of files that made them durable.
    fsyncs,
    /// Fsyncs of directories that made their names durable.
    dir_fsyncs,
    /// Bytes written that are not durable now; what is written twice counts twice.
    dirty_bytes,
    /// Changes of names that are not durable now.
    dirty_names,
    /// Power losses.
    crashes,
    /// Calls that found the power gone.
    cut_calls,
    /// Files that came out of a power loss with fewer or other bytes than they had.
    files_cut,
    /// Bytes written that power losses found not durable.
    bytes_at_risk,
    /// Files, directories and links that were gone after a power loss.
    names_lost,
    /// Files, directories and links that a power loss brought back.
    names_back,
    /// Fsyncs that were answered OK and did nothing.
    lies,
    /// Operations that failed with EIO.
    eios,
    /// Fsyncs that failed once and dropped their pages.
    gates,
    /// Operations that failed because the disk was full.
    enospcs,
    /// Operations that were delayed.
    delays,
    /// Bits flipped.
    bitflips,
    /// Calls with handles of before a power loss: processes that the power loss should have ended.
    stale_calls,
}

impl FromStr for Stats {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let mut stats = Self::default();
        for part in text.split_whitespace() {
            let counted = part.split_once('=').and_then(|(name, value)| Some((name, value.parse().ok()?)));
            let (name, value) = counted.with_context(|| format!("expected name=count, but got {part:?}"))?;
            stats.set(name, value);
        }
        Ok(stats)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_as_written() {
        let stats = Stats { writes: 3, bitflips: 1, stale_calls: 9, ..Stats::default() };
        assert_eq!(stats.to_string().parse::<Stats>().unwrap(), stats);
        assert!("writes".parse::<Stats>().is_err());
    }
}
