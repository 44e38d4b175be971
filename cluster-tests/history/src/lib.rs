//! What clients of a test run asked and were told, and whether that was right. A map of the house:
//!
//! - [`mod@format`]: the lines of a run's files;
//! - [`recorder`]: writes them while a run goes on; [`run`]: a run's directory, and how it is read.

pub mod format;
pub mod recorder;
pub mod run;

pub use recorder::Recorder;
pub use run::RunDir;
