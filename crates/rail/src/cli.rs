//! The command tree.

use clap::{Args, Command, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use clap_complete::Shell;

use crate::commands::{bench, cluster, dlq, msg, queue};
#[cfg(feature = "server")]
use crate::commands::{dev, serve};
#[cfg(feature = "server")]
use crate::demo::{self, DemoArgs, producer::ProducerArgs, worker::WorkerArgs};
use crate::exit::{self, Exit, Failure};
use crate::output::Format;

/// Ticketrail: a durable, replicated work queue
#[derive(Debug, Parser)]
#[command(name = "rail", version, after_help = exit::TABLE, max_term_width = 100)]
struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Args)]
struct Global {
    /// How data is printed
    #[arg(short, long, value_enum, default_value_t = Format::Table, global = true, value_name = "FORMAT")]
    output: Format,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run a server
    #[cfg(feature = "server")]
    Serve(Box<serve::ServeArgs>),
    /// Run one node for trying things out: loopback only, data in ./ticketrail-data
    #[cfg(feature = "server")]
    Dev(Box<dev::DevArgs>),
    /// Send real orders through a pipeline on three nodes while leaders and workers are killed; audit the outcome
    #[cfg(feature = "server")]
    Demo(DemoArgs),
    /// Queues: make, look, change, pause, empty
    Queue(queue::QueueArgs),
    /// Messages: send, receive, settle, look
    Msg(msg::MsgArgs),
    /// Dead letters: look
    Dlq(dlq::DlqArgs),
    /// The cluster: who belongs to it, who leads, who comes and goes
    Cluster(cluster::ClusterArgs),
    /// Measure: enqueue, receive and ack, or both
    Bench(bench::BenchArgs),
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: Shell,
    },
    #[cfg(feature = "server")]
    #[command(hide = true)]
    DemoProducer(ProducerArgs),
    #[cfg(feature = "server")]
    #[command(hide = true)]
    DemoWorker(WorkerArgs),
}

/// The tree, with the server's own words for its flags.
fn command() -> Command {
    let command = Cli::command();
    #[cfg(feature = "server")]
    let command = command
        .mut_subcommand("serve", |serve| serve::describe(serve, ticketrail_server::Mode::Serve))
        .mut_subcommand("dev", |dev| serve::describe(dev, ticketrail_server::Mode::Dev));
    command
}

/// Reads the command line and does what it says.
pub(crate) fn run() -> Result<Exit, Failure> {
    let matches = command().get_matches();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let format = cli.global.output;
    match cli.verb {
        #[cfg(feature = "server")]
        Verb::Serve(args) => serve::run(*args),
        #[cfg(feature = "server")]
        Verb::Dev(args) => dev::run(*args),
        #[cfg(feature = "server")]
        Verb::Demo(args) => wait(demo::run(args, format)),
        Verb::Queue(args) => wait(queue::run(args, format)),
        Verb::Msg(args) => wait(msg::run(args, format)),
        Verb::Dlq(args) => wait(dlq::run(args, format)),
        Verb::Cluster(args) => wait(cluster::run(args, format)),
        Verb::Bench(args) => wait(bench::run(args, format)),
        Verb::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut command(), "rail", &mut script);
            crate::output::print(&String::from_utf8_lossy(&script))?;
            Ok(Exit::Ok)
        }
        #[cfg(feature = "server")]
        Verb::DemoProducer(args) => wait(demo::producer::run(args)),
        #[cfg(feature = "server")]
        Verb::DemoWorker(args) => wait(demo::worker::run(args)),
    }
}

/// Runs a client's command.
fn wait(command: impl Future<Output = Result<Exit, Failure>>) -> Result<Exit, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let done = runtime.block_on(command);
    // A thread that still reads stdin is not waited for.
    runtime.shutdown_background();
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_holds_together() {
        command().debug_assert();
    }

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(line.split_whitespace())
    }

    #[test]
    fn the_promised_commands_are_there() {
        for line in [
            "rail queue create orders --max-depth 10 --lease 30s",
            "rail queue ls -o json",
            "rail -o jsonl queue show orders",
            "rail queue update orders --max-attempts 3",
            "rail queue delete orders --yes",
            "rail queue purge orders -y",
            "rail queue pause orders --reason INC-42 --for 5m",
            "rail queue resume orders",
            "rail queue close orders",
            "rail queue reopen orders",
            "rail msg send orders hello --tag a=b -H c=d --type t --delay 5s --address http://127.0.0.1:1",
            "rail msg receive orders --max 5 --wait 5s --lease 10s",
            "rail msg ack AAAA",
            "rail msg nack AAAA --permanent --code BAD --text worse",
            "rail msg nack AAAA --delay 5s",
            "rail msg release AAAA",
            "rail msg extend AAAA --lease 30s",
            "rail msg peek orders --state delayed",
            "rail msg get 1.1.m4.1 --namespace shop --timeout 3s",
            "rail dlq ls",
            "rail dlq show orders",
            "rail cluster status",
            "rail cluster members -o json",
            "rail cluster add rail-3.peers:50001",
            "rail cluster remove 3 --yes",
            "rail cluster promote 104",
            "rail cluster transfer-leader",
            "rail cluster transfer-leader 2",
            "rail bench both --rate 1000 -o json",
            "rail completions bash",
        ] {
            parse(line).map(drop).unwrap_or_else(|error| panic!("{line}: {error}"));
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for line in [
            "rail",
            "rail queue",
            "rail queue pause orders",
            "rail cluster remove",
            "rail msg ack",
            "rail msg ack not!base64",
            "rail msg nack AAAA --permanent --delay 5s",
            "rail msg send orders x --delay 5s --at 2026-12-24T18:00:00Z",
            "rail msg send orders x --tag novalue",
            "rail queue ls -o yaml",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
