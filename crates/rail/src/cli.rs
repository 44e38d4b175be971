//! The command tree.

use clap::{Args, Command, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use clap_complete::Shell;

use crate::commands::{apply, bench, check, cluster, dlq, msg, namespace, queue, top};
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
    /// Namespaces: what their new queues get
    Namespace(namespace::NamespaceArgs),
    /// Make queues and namespaces as a file says; nothing is removed unless --prune
    Apply(apply::ApplyArgs),
    /// Show how queues and namespaces differ from a file
    Diff(apply::DiffArgs),
    /// Print queues and namespaces as a file for `rail apply`: TOML, or JSON with -o json
    Export(apply::ExportArgs),
    /// Watch the queues: what waits, what comes and goes
    Top(top::TopArgs),
    /// Say whether something is well, for monitoring systems: 0 ok, 1 warning, 2 critical, 3 unknown
    Check(check::CheckArgs),
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
    let matches = command().try_get_matches().unwrap_or_else(|error| {
        // To a monitoring system the code for a wrong call would be critical.
        let checking = std::env::args().nth(1).is_some_and(|verb| verb == "check");
        if checking && error.use_stderr() {
            let _ = error.print();
            std::process::exit(Exit::NotKnown.code().into());
        }
        error.exit()
    });
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
        Verb::Namespace(args) => wait(namespace::run(args, format)),
        Verb::Apply(args) => wait(apply::apply(args, format)),
        Verb::Diff(args) => wait(apply::diff(args, format)),
        Verb::Export(args) => wait(apply::export(args, format)),
        Verb::Top(args) => wait(top::run(args, format)),
        Verb::Check(args) => wait(check::run(args, format)),
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
            "rail msg send orders x --group g --priority 9 --dedup d --ttl 1h --max-attempts 3",
            "rail msg send orders --lines --all-or-nothing",
            "rail msg receive urgent orders reports --max 5",
            "rail msg receive orders --auto-ack",
            "rail msg ack AAAA --result done",
            "rail msg cancel 1.1.m4.1 1.1.m4.2",
            "rail msg cancel --queue orders --dedup d",
            "rail msg reschedule 1.1.m4.1 --delay 5s",
            "rail msg reschedule --queue orders --dedup d --now",
            "rail msg peek orders --group g --type t --tag a=b --priority 3 --min-failures 1",
            "rail msg peek orders --enqueued-until 2026-12-24T18:00:00Z",
            "rail msg get --queue orders --dedup d",
            "rail queue create orders --max-wait 30s --expected-rate 2.5 --shed 80:5 --on-group-failure block",
            "rail queue update orders --ttl 1h --on-expired dead-letter --on-exhausted drop --dedup-window 1d",
            "rail queue update orders --retain-done 1d --owner kitchen --runbook-url https://x --age-slo 30s",
            "rail namespace set shop --max-depth 10 --auto-create false",
            "rail namespace set shop --reset",
            "rail namespace show shop",
            "rail namespace ls -o json",
            "rail namespace delete shop --yes",
            "rail apply -f queues.toml --dry-run",
            "rail apply -f a.toml -f b.yaml --prune --yes",
            "rail diff -f -",
            "rail export --all -o json",
            "rail top --interval 1s --sort ready --once",
            "rail check queue orders --age-warn 30s --age-crit 2m --depth-crit 1000 --dead-warn 1 --rate-crit 0.5",
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
            "rail msg get",
            "rail msg get 1.1.m4.1 --queue orders --dedup d",
            "rail msg cancel",
            "rail msg reschedule 1.1.m4.1",
            "rail msg receive",
            "rail msg receive orders --auto-ack --lease 5s",
            "rail apply",
            "rail check queue",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
