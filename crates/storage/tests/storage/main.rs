//! Both stores against models, crashes, damage and each other.

#![allow(missing_docs)]

mod log_model;
mod model;
mod state_model;

#[cfg(feature = "rocksdb")]
mod checkpoint;
#[cfg(feature = "rocksdb")]
mod damage;
#[cfg(feature = "rocksdb")]
mod directory;
#[cfg(feature = "rocksdb")]
mod kill;
#[cfg(feature = "rocksdb")]
mod log_rocks;
