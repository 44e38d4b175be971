//! The project's own commands, run as `cargo xtask <command>`. A map of the house:
//!
//! - [`help`]: the commands and what they say about themselves;
//! - [`setup`]: what a build needs from the machine, and how it gets there;
//! - [`workspace`]: where things are, and how cargo is called; [`report`]: steps, their time, the last line;
//! - [`demo`], [`suite`] (`test`), [`check`], [`ci`], [`mod@bench`], [`check_history`], [`sim`], [`planted`],
//!   [`chaos`]: one command each;
//!   [`peers`] (`bench peers`);
//! - [`deploy_tools`]: the programs that check the files in `deploy/`;
//! - [`arrows`]: which crate may use what; [`tidy`]: house rules for the text of the tree;
//! - [`tree`], [`rust_text`]: the files, and the code in a Rust file apart from its comments and strings;
//! - [`libtest`]: what the output of `cargo test` says.

mod arrows;
mod bench;
mod chaos;
mod check;
mod check_history;
mod ci;
mod demo;
mod deploy_tools;
mod help;
mod libtest;
mod peers;
mod planted;
mod report;
mod rust_text;
mod setup;
mod sim;
mod suite;
mod tidy;
mod tree;
mod workspace;

use std::process::ExitCode;

use help::Command;
use workspace::Workspace;

/// A command was used wrongly, or the machine lacks something that must be installed first.
const EXIT_USAGE: u8 = 2;

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let Some(name) = args.next() else {
        eprint!("{}", help::overview());
        return ExitCode::from(EXIT_USAGE);
    };
    let args: Vec<String> = args.collect();
    if matches!(name.as_str(), "help" | "-h" | "--help") {
        return print_help(args.first().map(String::as_str));
    }
    let Some(command) = Command::named(&name) else {
        eprintln!("expected a command of `cargo xtask`, but got `{name}`; the commands are:\n");
        eprint!("{}", help::overview());
        return ExitCode::from(EXIT_USAGE);
    };
    if !command.passes_arguments() {
        if args.iter().any(|arg| arg == "-h" || arg == "--help") {
            return print_help(Some(&name));
        }
        if let Some(extra) = args.first() {
            eprintln!(
                "expected no argument after `cargo xtask {name}`, but got `{extra}`; see `cargo xtask help {name}`"
            );
            return ExitCode::from(EXIT_USAGE);
        }
    }
    match run(command, &args) {
        Ok(code) => code,
        Err(problem) => {
            eprintln!("xtask {name}: {problem}");
            ExitCode::FAILURE
        }
    }
}

fn print_help(of: Option<&str>) -> ExitCode {
    match of.map(|name| (name, Command::named(name))) {
        None => print!("{}", help::overview()),
        Some((_, Some(command))) => print!("{}", command.page()),
        Some((name, None)) => {
            eprintln!("expected a command of `cargo xtask`, but got `{name}`; see `cargo xtask help`");
            return ExitCode::from(EXIT_USAGE);
        }
    }
    ExitCode::SUCCESS
}

fn run(command: Command, args: &[String]) -> Result<ExitCode, String> {
    let workspace = Workspace::open()?;
    if command.builds_rocksdb()
        && let Err(missing) = setup::ensure(&workspace)
    {
        eprintln!("xtask {}: {missing}", command.name());
        return Ok(ExitCode::from(EXIT_USAGE));
    }
    match command {
        Command::Demo => demo::run(&workspace, args),
        Command::Test => suite::run(&workspace),
        Command::Check => check::run(&workspace),
        Command::Ci => ci::run(&workspace),
        Command::Arrows => arrows::run(&workspace),
        Command::Tidy => tidy::run(&workspace),
        Command::Bench => bench::run(&workspace, args),
        Command::CheckHistory => check_history::run(&workspace, args),
        Command::Sim => sim::run(&workspace, args),
        Command::Planted => planted::run(&workspace, args),
        Command::Chaos => chaos::run(&workspace, args),
    }
}
