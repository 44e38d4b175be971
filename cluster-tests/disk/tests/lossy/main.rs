//! The disk, mounted: what it forgets, what it keeps, and how else it fails. Needs root and /dev/fuse.

mod binary;
mod data;
mod faults;
mod model;
mod names;
mod posix;
mod rig;
mod wal;
