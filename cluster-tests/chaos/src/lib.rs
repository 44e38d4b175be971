//! Drills: a cluster of `rail serve` processes, each in a network namespace of its own with a disk of its own, under
//! load, with one thing going wrong; then the judgement. A map of the house:
//!
//! - [`args`]: the command line; [`tools`]: the programs that drills need, and the packages that bring them;
//! - [`outside`]: the process that a person starts: it gives each drill a process in namespaces of its own, waits, tidies
//!   up; [`leftovers`]: what a run owns on this machine, and what a killed one left;
//! - [`inside`]: the process that runs one drill: pid 1 of its namespace, so that nothing outlives it;
//! - [`switch`]: the network between the nodes; [`cut`]: rules that stop traffic, with counters; [`proxy`]: slow
//!   links; [`volume`]: a
//!   node's disk; [`cgroup`]: what a node may use;
//! - [`world`]: the cluster on that network, on those disks;
//! - [`scene`]: what a drill works with: world, load, dice, and the record of what it did; [`nemesis`]: that record;
//! - [`traffic`]: the load;
//! - [`drills`]: one file a drill; [`judgement`]: disks and history held against
//!   each other; [`verdict`]: what became of one;
//! - [`worker`]: a worker as a process of its own, to be stopped and killed;
//! - [`damage`]: changes bytes of a node's files; [`dice`]: chance from a seed;
//! - [`program`]: runs one and reads what it says; [`poll`]: waits.
//!
//! A drill has five phases: warm (load runs, nothing is wrong), fault, heal, drain (every message finished), check. It
//! passes if everything holds that must, fails if not, and is **invalid** if its fault did not take effect: then nothing
//! was tested.

pub mod args;
pub mod cgroup;
pub mod cut;
pub mod damage;
pub mod dice;
pub mod drills;
pub mod inside;
pub mod judgement;
pub mod leftovers;
pub mod nemesis;
pub mod outside;
pub mod poll;
pub mod program;
pub mod proxy;
pub mod scene;
pub mod switch;
pub mod tools;
pub mod traffic;
pub mod verdict;
pub mod volume;
pub mod worker;
pub mod world;

use std::process::ExitCode;

use args::{Args, USAGE};

/// Runs the program with these words of its command line, its own name left out.
pub fn main(words: Vec<String>) -> ExitCode {
    if words.first().is_some_and(|word| word == worker::WORD) {
        return worker::main(&words[1..]);
    }
    let args = match Args::parse(words.into_iter()) {
        Ok(args) => args,
        Err(problem) => {
            eprint!("chaos: {problem}\n\n{USAGE}");
            return ExitCode::from(verdict::EXIT_USAGE);
        }
    };
    if args.help {
        print!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    if args.list {
        print!("{}", drills::list());
        return ExitCode::SUCCESS;
    }
    match &args.inside {
        Some(dir) => inside::run(&args, dir),
        None => outside::run(&args),
    }
}
