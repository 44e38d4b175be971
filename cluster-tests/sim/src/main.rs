//! `sim`: one seed in this process, or many in processes of their own.

use std::process::ExitCode;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use ticketrail_sim::args::{Args, USAGE};
use ticketrail_sim::fleet::{self, STUCK, VIOLATED};
use ticketrail_sim::options::Options;
use ticketrail_sim::planted;
use ticketrail_sim::report;
use ticketrail_sim::run::run;
use ticketrail_sim::trace::Trace;

/// How long a run may take, in real time: longer means that one step never ends.
const LONGEST: Duration = Duration::from_secs(300);

fn main() -> ExitCode {
    if let Some(over) = planted::begin() {
        return over;
    }
    let args = match Args::parse(std::env::args().skip(1)) {
        Ok(args) => args,
        Err(problem) => {
            eprintln!("{problem}");
            return ExitCode::from(2);
        }
    };
    if args.help {
        print!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    let result = match args.single() {
        Some(seed) => one(seed, &args),
        None => fleet::run(&args),
    };
    result.unwrap_or_else(|problem| {
        eprintln!("sim: {problem}");
        ExitCode::FAILURE
    })
}

/// Runs one seed.
fn one(seed: u64, args: &Args) -> Result<ExitCode, String> {
    if let Some(filter) = &args.log {
        let filter = tracing_subscriber::EnvFilter::try_new(filter).map_err(|error| format!("--log: {error}"))?;
        tracing_subscriber::fmt().with_env_filter(filter).without_time().with_writer(std::io::stderr).init();
    }
    let options = Options { plain: args.plain, ..Options::of(seed) };
    if !args.quiet {
        print!("{options}");
    }
    let trace = Trace::new(args.trace.as_deref()).map_err(|error| format!("expected to write a trace, but {error}"))?;
    // A step that never ends is a finding, too.
    let (over, watched) = sync_channel::<()>(1);
    std::thread::spawn(move || {
        if watched.recv_timeout(LONGEST) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            eprintln!("expected seed {seed} to be over within {LONGEST:?}, but one of its steps does not end");
            std::process::exit(i32::from(STUCK));
        }
    });
    let scratch = std::env::temp_dir().join(format!("ticketrail-sim-run-{}", std::process::id()));
    let dir = args.keep.as_ref().unwrap_or(&scratch);
    std::fs::create_dir_all(dir).map_err(|error| format!("expected to make {}, but {error}", dir.display()))?;
    let verdict = run(&options, &trace, dir);
    if args.keep.is_none() {
        // What is left is in the folder for such things.
        let _ = std::fs::remove_dir_all(&scratch);
    }
    let verdict = verdict?;
    drop(over);
    if args.quiet {
        print!("{}", report::to_lines(&verdict));
    } else {
        print!("{}", report::in_words(seed, &verdict));
    }
    Ok(if verdict.breaches.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(VIOLATED) })
}
