//! A disk that forgets what was not fsynced, as a file system in user space (FUSE), to test what survives a power loss.
//!
//! What is durable:
//! - the bytes of a file and its size, by an fsync or fdatasync of that file (also through O_SYNC and O_DSYNC);
//! - a name, by an fsync of its directory; a rename between directories by one of the new directory, and one of the old
//!   directory makes both ends durable, so that the file itself is never lost;
//! - permissions, owners and times at once: no test depends on their loss.
//!
//! A power loss ([`Crash`]) is a command. Kill the processes on the disk first; handles that were open then fail with
//! EIO. A process that waits for an fsync dies only when that has ended: to lose the power in the middle of it, cut it
//! first ([`Command::Cut`]), then kill, then crash. Four kinds of it tell apart what disks and file systems do with what was not fsynced: see [`Crash`].
//! `sync(2)` and `syncfs(2)` never reach a file system in user space and make nothing durable here.
//!
//! A disk does not hold back for ever: of a file with more than 65,536 writes or 64 MiB of overwritten bytes since its
//! last fsync the older half becomes durable, as a kernel writes back by itself.
//!
//! A map: [`mod@mount`] puts it together; `fs` turns the kernel's requests into operations of `disk`, which keeps
//! inodes; `names` are its directories and `undo` the bytes that are not durable; `faults` what else goes wrong;
//! `objects` and `rest` the backing directory; [`mod@command`], [`mod@control`], [`mod@stats`] what one asks and is told.

pub mod command;
pub mod control;
mod disk;
mod faults;
mod fs;
pub mod mount;
mod names;
mod objects;
mod rest;
mod rng;
mod shared;
pub mod stats;
mod undo;

pub use command::{Command, Crash, Op};
pub use control::Control;
pub use mount::LossyDisk;
pub use stats::Stats;

/// The number of an inode; none is used twice.
type Ino = u64;
