//! `rail serve`: a server; its flags go over environment, file and defaults.

use std::io::Read as _;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Command};
use ticketrail_server::config::{Age, JoinAs, Key, LogFormat, MaybeAddress, PeerList, Size};
use ticketrail_server::{Config, Mode, Overrides};

use crate::exit::{Exit, Failure};
use crate::output;

/// The flags, once: clap's, and the server's.
macro_rules! flags {
    ($($name:ident: $type:ty = $placeholder:literal,)*) => {
        /// What the command line may say; help texts come from the server's own list of keys.
        #[derive(Debug, Clone, Default, Args)]
        #[command(next_help_heading = "Configuration")]
        pub(crate) struct Flags {
            $(#[arg(long, value_name = $placeholder)] pub(crate) $name: Option<$type>,)*
        }

        impl From<Flags> for Overrides {
            fn from(flags: Flags) -> Self {
                Overrides { $($name: flags.$name.map(Into::into),)* }
            }
        }
    };
}

flags! {
    data_dir: PathBuf = "DIR",
    listen: SocketAddr = "IP:PORT",
    name: String = "NAME",
    peers: PeerList = "NAME=HOST:PORT,…",
    peer_listen: SocketAddr = "IP:PORT",
    advertise_peer: String = "HOST:PORT",
    advertise_client: String = "HOST:PORT",
    may_found: bool = "BOOL",
    join_as: JoinStyle = "HOW",
    snapshot_rate: Size = "SIZE",
    http_listen: MaybeAddress = "IP:PORT",
    http_ready_file: PathBuf = "FILE",
    ready_file: PathBuf = "FILE",
    auto_create: bool = "BOOL",
    max_body_bytes: Size = "SIZE",
    reflection: bool = "BOOL",
    log_level: String = "LEVEL",
    log_format: LogStyle = "FORMAT",
    disk_low_bytes: Size = "SIZE",
    disk_critical_bytes: Size = "SIZE",
    ballast_bytes: Size = "SIZE",
    log_retention_bytes: Size = "SIZE",
    log_retention_age: Age = "DURATION",
    flush_bytes: Size = "SIZE",
    flush_age: Age = "DURATION",
    proposal_queue_bytes: Size = "SIZE",
    parked_receives: usize = "N",
    heartbeat: Age = "DURATION",
    election_timeout_min: Age = "DURATION",
    election_timeout_max: Age = "DURATION",
    drain_timeout: Age = "DURATION",
}

/// What a node is that joins, for clap.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub(crate) enum JoinStyle {
    Voter,
    Learner,
}

impl From<JoinStyle> for JoinAs {
    fn from(style: JoinStyle) -> Self {
        match style {
            JoinStyle::Voter => JoinAs::Voter,
            JoinStyle::Learner => JoinAs::Learner,
        }
    }
}

/// The server's log formats, for clap.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub(crate) enum LogStyle {
    Auto,
    Pretty,
    Json,
}

impl From<LogStyle> for LogFormat {
    fn from(style: LogStyle) -> Self {
        match style {
            LogStyle::Auto => LogFormat::Auto,
            LogStyle::Pretty => LogFormat::Pretty,
            LogStyle::Json => LogFormat::Json,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// A TOML file of settings
    #[arg(long, env = "TICKETRAIL_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print the settings in force, with their documentation, and end
    #[arg(long)]
    print_config: bool,
    /// Stop in order when stdin is closed: for whoever starts servers as children
    #[arg(long, hide = true)]
    stop_with_stdin: bool,
    #[command(flatten)]
    flags: Flags,
}

/// Gives each flag its help text, default and environment variable from the server's list of keys.
pub(crate) fn describe(command: Command, mode: Mode) -> Command {
    let defaults = serde_json::to_value(Config::defaults(mode)).unwrap_or_default();
    Config::KEYS.iter().fold(command, |command, key: &Key| {
        let default = match defaults.get(key.name) {
            Some(serde_json::Value::String(text)) => text.clone(),
            Some(value) => value.to_string(),
            None => String::new(),
        };
        let doc: Vec<&str> = key.doc.lines().map(str::trim).collect();
        let help = format!("{} [env: {}] [default: {default}]", doc.join(" ").trim(), key.variable());
        command.mut_arg(key.name, |arg| arg.help(help))
    })
}

pub(crate) fn run(args: ServeArgs) -> Result<Exit, Failure> {
    let config = Config::load(Mode::Serve, args.config.as_deref(), args.flags.into()).map_err(|error| {
        Failure::usage(error.to_string(), "see `rail serve --help`, or `rail serve --print-config`")
    })?;
    if args.print_config {
        let text = config.print().map_err(anyhow::Error::new)?;
        output::print(&text)?;
        return Ok(Exit::Ok);
    }
    ticketrail_server::init(&config)?;
    let stdin = args.stop_with_stdin;
    serve(config, async move {
        tokio::select! {
            () = ticketrail_server::stop_signal() => {}
            () = stdin_closed(), if stdin => {}
        }
    })
}

/// Serves until `shutdown`, on all cores.
pub(crate) fn serve(config: Config, shutdown: impl Future<Output = ()>) -> Result<Exit, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(ticketrail_server::run(config, shutdown))?;
    // Dropped, the runtime waits for what still runs on its threads: none may be within RocksDB when this process
    // ends and takes RocksDB's own statics down.
    drop(runtime);
    Ok(Exit::Ok)
}

async fn stdin_closed() {
    let (closed, wait) = tokio::sync::oneshot::channel();
    // A thread that the runtime does not wait for: nothing ends a read of stdin.
    std::thread::spawn(move || {
        let mut end = [0; 64];
        while std::io::stdin().lock().read(&mut end).is_ok_and(|read| read > 0) {}
        // Nobody waits any more where another signal came first.
        let _ = closed.send(());
    });
    // A thread that has panicked means the same.
    let _ = wait.await;
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Serve {
        #[command(flatten)]
        args: ServeArgs,
    }

    #[test]
    fn each_key_has_a_flag_with_its_help() {
        use clap::CommandFactory as _;
        let command = describe(Serve::command(), Mode::Serve);
        for key in Config::KEYS {
            let flag = command.get_arguments().find(|arg| arg.get_id() == key.name).expect(key.name);
            assert_eq!(flag.get_long(), Some(key.name.replace('_', "-").as_str()));
            let help = flag.get_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains(&key.variable()) && help.contains("[default: "), "{help}");
        }
    }

    #[test]
    fn flags_become_overrides() {
        let args =
            ["rail", "--data-dir", "d", "--listen", "127.0.0.1:1", "--flush-bytes", "1 MiB", "--flush-age", "5s"];
        let serve = Serve::try_parse_from(args).expect("parsed");
        let overrides = Overrides::from(serve.args.flags);
        let config = Config::load_with(Mode::Serve, None, [], overrides).expect("a configuration");
        assert_eq!(config.data_dir, PathBuf::from("d"));
        assert_eq!(config.listen, SocketAddr::from(([127, 0, 0, 1], 1)));
        assert_eq!((config.flush_bytes, config.flush_age), (Size(1 << 20), Age::secs(5)));
        assert!(Serve::try_parse_from(["rail", "--flush-bytes", "1 parsec"]).is_err());
    }
}
