//! The process that runs one drill: the first one of its namespace.

use std::io::Read as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, anyhow};

use crate::args::Args;
use crate::drills::Drill;
use crate::scene::{Options, Scene};
use crate::verdict::{EXIT_USAGE, Verdict};
use crate::volume;

/// What an ended process says that was told to end.
const TOLD_TO_END: i32 = 130;

/// Runs the first of the drills, which is the only one, in `home`.
pub fn run(args: &Args, home: &Path) -> ExitCode {
    // Whoever started this process may be killed: then nobody waits, and all ends.
    let frozen = home.to_owned();
    std::thread::spawn(move || {
        let mut end = [0; 64];
        while std::io::stdin().lock().read(&mut end).is_ok_and(|read| read > 0) {}
        // Whoever waits for a stopped disk can't be killed.
        volume::thaw_all(&frozen);
        std::process::exit(TOLD_TO_END);
    });
    let (Some(drill), Ok(run)) = (args.drills.first(), std::env::var("TICKETRAIL_TEST_CHAOS_RUN")) else {
        eprintln!("chaos: expected to be started by `cargo xtask chaos`; leave --inside out");
        return ExitCode::from(EXIT_USAGE);
    };
    let options = Options {
        length: args.length,
        short: args.short,
        strict: args.strict,
        large: args.large,
        seed: args.seed.unwrap_or_default(),
        home: home.to_owned(),
        run,
    };
    println!("\n{}", drill.introduction());
    ExitCode::from(perform(drill, options).code())
}

/// Runs a drill and prints its line.
fn perform(drill: &Drill, options: Options) -> Verdict {
    let mut scene = match Scene::open(drill, options) {
        Ok(scene) => scene,
        Err(error) => {
            println!("{:<18} FAILED before it began: {error:#}", drill.name);
            return Verdict::Failed;
        }
    };
    let ran = catch_unwind(AssertUnwindSafe(|| (drill.run)(&mut scene)));
    let ran = ran.unwrap_or_else(|_| Err(anyhow!("expected no panic, but there was one; it is told above")));
    let result = ran.and_then(|()| scene.check_it_was_finished());
    let verdict = Verdict::of(&result);
    println!("{}", scene.line(drill, verdict));
    if let Err(error) = result {
        for cause in error.chain() {
            println!("  {}", cause.to_string().replace('\n', "\n  "));
        }
        if let Err(error) = scene.rescue().context("save what was written") {
            println!("  {error:#}");
        }
    }
    verdict
}
