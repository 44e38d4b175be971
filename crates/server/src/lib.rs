//! A Ticketrail server: configuration, telemetry, health, composition and shutdown. A map of the house:
//!
//! - [`config`]: what it can be told; [`init`]: log lines and the panic hook, once in a process;
//! - [`run`]: one server, from its data directory to its last flush; [`stop_signal`]: when to stop;
//! - `storage`: the data directory and its disk; `grpc`: the services; `health`: whether it serves;
//! - `http`: the port for probes and metrics; `phase`: what the server is doing; `probes`: whether it lives and is ready;
//!   `metrics`: what it tells of itself in figures.

pub mod config;
mod grpc;
mod health;
mod http;
mod listen;
mod metrics;
mod peers;
mod phase;
mod probes;
mod run;
mod signals;
mod storage;
mod telemetry;

pub use config::{Config, Mode, Overrides};
pub use run::run;
pub use signals::stop_signal;

/// Prepares this process for [`run`]: log lines go to stderr as `config` says, and a panic in any thread ends the
/// process. To be called once.
pub fn init(config: &Config) -> anyhow::Result<()> {
    telemetry::init(config)?;
    telemetry::abort_on_panic();
    Ok(())
}
