//! What clients of a test run asked and were told, and whether that was right. A map of the house:
//!
//! - [`mod@format`]: the lines of a run's files;
//! - [`recorder`]: writes them while a run goes on; [`run`]: a run's directory, and how it is read;
//! - [`story`], [`index`], [`case`]: a run in memory; [`leases`], [`fates`]: what its audit says of leases and messages;
//! - [`model`]: the reference model; [`checks`]: what must hold, one file a property; [`mod@judge`]: puts all together;
//! - [`generate`]: makes legal histories, to test the checker itself.

pub mod case;
pub mod checks;
mod fast;
pub mod fates;
pub mod format;
pub mod generate;
pub mod index;
pub mod judge;
pub mod leases;
pub mod model;
pub mod recorder;
pub mod run;
pub mod story;

pub use judge::judge;
pub use recorder::Recorder;
pub use run::RunDir;
