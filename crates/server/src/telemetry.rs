//! What the server says to those who run it: log lines on stderr, and a last word before a panic ends it.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::{SubscriberInitExt as _, TryInitError};

use crate::config::{Config, LogFormat};

/// What libraries say below a warning is not for operators.
const QUIET: &str = "openraft=warn,h2=warn,hyper=warn,hyper_util=warn,tonic=warn,tower=warn";

/// The filter of a log level, or of directives.
pub(crate) fn filter(level: &str) -> Result<EnvFilter, String> {
    let plain = ["error", "warn", "info", "debug", "trace"].contains(&level.to_lowercase().as_str());
    let directives = if plain { format!("{level},{QUIET}") } else { level.to_owned() };
    let wrong = |e| format!("expected a level such as info, or directives such as info,ticketrail_node=debug, but {e}");
    EnvFilter::builder().parse(directives).map_err(wrong)
}

/// Sends log lines to stderr as `config` says. To be called once in a process, before [`crate::run`].
pub(crate) fn init(config: &Config) -> anyhow::Result<()> {
    let filter = filter(&config.log_level).map_err(anyhow::Error::msg)?;
    let terminal = std::io::stderr().is_terminal();
    let json = match config.log_format {
        LogFormat::Auto => !terminal,
        LogFormat::Pretty => false,
        LogFormat::Json => true,
    };
    let base = tracing_subscriber::registry().with(filter);
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let done: Result<(), TryInitError> = if json {
        base.with(lines.json().flatten_event(true).with_current_span(false)).try_init()
    } else {
        base.with(lines.with_ansi(terminal)).try_init()
    };
    Ok(done?)
}

/// Makes a panic in any thread end the process, after its message and a log line: a replica that has lost a task must not
/// go on half alive.
pub(crate) fn abort_on_panic() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        print(info);
        tracing::error!(panic = %info, "a panic ends this process; what was acknowledged is safe");
        std::process::abort();
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_and_directives_are_filters_and_nonsense_is_refused() {
        assert!(filter("info").is_ok_and(|f| f.to_string().contains("openraft=warn")));
        assert!(filter("warn,ticketrail_node=debug").is_ok_and(|f| !f.to_string().contains("openraft")));
        for wrong in ["info,=", "ticketrail=loud"] {
            assert!(filter(wrong).unwrap_err().starts_with("expected a level"), "{wrong}");
        }
    }
}
