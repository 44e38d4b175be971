//! The process that a person starts. It touches no network and runs no node: for each drill it starts a process in
//! namespaces of its own (network, mounts, processes), waits for it, and removes what is left on the file system.
//!
//! The process of a drill is the first one of its namespace: when it ends, however it ends, the kernel kills all others
//! in there and takes down the networks and mounts that they had. It ends when its stdin is closed, so it does not outlive
//! this process either, however this one ends.

use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};

use crate::args::Args;
use crate::dice::Dice;
use crate::drills::Drill;
use crate::leftovers::{self, Run};
use crate::tools::{self, Tool};
use crate::verdict::{self, Verdict};
use crate::volume;

/// Beside its faults, a drill starts nodes, drains and checks: what takes longer hangs.
const BESIDE: Duration = Duration::from_secs(600);

/// Runs the drills, one after the other.
pub fn run(args: &Args) -> ExitCode {
    if !geteuid().is_root() {
        eprintln!(
            "chaos: expected to run as root, but this is user {}: network namespaces, mounts and control groups need it.\n  \
             Build first (`cargo xtask chaos --list`), then run the same command with sudo -E.",
            geteuid()
        );
        return ExitCode::from(verdict::EXIT_USAGE);
    }
    let tools = args.drills.iter().flat_map(|drill| drill.tools.iter().copied());
    if let Some(missing) = tools::missing(tools.chain(Tool::ALWAYS.iter().copied())) {
        eprintln!("chaos: {missing}");
        return ExitCode::from(verdict::EXIT_USAGE);
    }
    match all(args) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("chaos: {error:#}");
            ExitCode::from(verdict::EXIT_FAILED)
        }
    }
}

fn all(args: &Args) -> anyhow::Result<ExitCode> {
    for id in leftovers::sweep(&args.dir)? {
        eprintln!("removed what run {id} had left, which was killed");
    }
    let seed = args.seed.unwrap_or_else(Dice::fresh_seed);
    println!("seed {seed}");
    let run = Run::begin(&args.dir)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut verdicts = Vec::new();
    for drill in &args.drills {
        let home = run.dir().join(drill.name);
        std::fs::create_dir(&home)?;
        let (verdict, ended) = match runtime.block_on(one(args, drill, seed, &run, &home))? {
            Ended::Itself(status) => (Verdict::of_code(status.code()), None),
            Ended::TooLate => {
                println!("{:<18} FAILED: expected it to end by itself, but it hangs; killed", drill.name);
                (Verdict::Failed, None)
            }
            Ended::Interrupted(signal) => (Verdict::Failed, Some(signal)),
        };
        let kept = args.keep || (verdict != Verdict::Passed && ended.is_none());
        if kept {
            let kept = keep(&args.dir, drill, seed, &home)?;
            println!(
                "  kept in {}\n  again: cargo xtask chaos --drill {} --seed {seed}{}",
                kept.display(),
                drill.name,
                if args.short { " --short" } else { "" }
            );
        }
        leftovers::remove_dir(&home)?;
        if let Some(signal) = ended {
            eprintln!("chaos: {signal}: all that was started is gone");
            return Ok(ExitCode::from(128 + u8::try_from(signal as i32).unwrap_or_default()));
        }
        verdicts.push(verdict);
    }
    let (line, code) = verdict::summary(&verdicts);
    println!("{line}");
    Ok(code)
}

/// How the process of a drill ended.
enum Ended {
    Itself(ExitStatus),
    TooLate,
    Interrupted(Signal),
}

/// Runs one drill.
async fn one(args: &Args, drill: &Drill, seed: u64, run: &Run, home: &Path) -> anyhow::Result<Ended> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = signal(SignalKind::hangup())?;
    let mut child = inner(args, drill, seed, run, home)?;
    // Held open: its end is what tells the other side that this process is gone.
    let _stdin = child.stdin.take();
    let ended = tokio::select! {
        status = child.wait() => return Ok(Ended::Itself(status?)),
        () = crate::poll::pass_async(args.length * 3 + BESIDE) => Ended::TooLate,
        _ = interrupt.recv() => Ended::Interrupted(Signal::SIGINT),
        _ = terminate.recv() => Ended::Interrupted(Signal::SIGTERM),
        _ = hangup.recv() => Ended::Interrupted(Signal::SIGHUP),
    };
    end(&mut child, home).await?;
    Ok(ended)
}

/// The process of a drill, in namespaces of its own.
fn inner(args: &Args, drill: &Drill, seed: u64, run: &Run, home: &Path) -> anyhow::Result<Child> {
    let program = std::env::current_exe().context("find this program")?;
    let mut command = Command::new(Tool::Unshare.name());
    command
        .args(["--net", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc"])
        .arg("--")
        .arg(program)
        .arg("--inside")
        .arg(home)
        .args(["--drill", drill.name, "--seed", &seed.to_string()])
        .args(["--seconds", &args.length.as_secs().to_string()])
        .args(args.short.then_some("--short"))
        .args(args.strict.then_some("--strict"))
        .args(args.large.then_some("--large"))
        .env("TICKETRAIL_TEST_CHAOS_RUN", run.id())
        .env("TMPDIR", home)
        .stdin(Stdio::piped())
        // A signal from the terminal comes to this process alone.
        .process_group(0)
        .kill_on_drop(true);
    if let Some(rail) = &args.rail {
        command.env("TICKETRAIL_TEST_RAIL_BIN", rail);
    }
    command.spawn().context("start a drill")
}

/// Kills the process of a drill, and waits until all that it started is gone with it.
async fn end(child: &mut Child, home: &Path) -> anyhow::Result<()> {
    let Some(unshare) = child.id() else { return Ok(()) };
    // The first process of the namespace is the one child of `unshare`, which ends once that namespace is empty.
    let children = std::fs::read_to_string(format!("/proc/{unshare}/task/{unshare}/children")).unwrap_or_default();
    for pid in children.split_whitespace().filter_map(|pid| pid.parse().ok()) {
        // Whoever waits for a stopped disk can't be killed.
        for disk in volume::frozen(home) {
            let mounts = format!("--mount=/proc/{pid}/ns/mnt");
            let thawed = Command::new("nsenter").args([&mounts, "fsfreeze", "--unfreeze"]).arg(&disk).status().await;
            thawed.with_context(|| format!("let {} go on", disk.display()))?;
        }
        kill(Pid::from_raw(pid), Signal::SIGKILL).with_context(|| format!("kill process {pid}"))?;
    }
    if tokio::time::timeout(BESIDE, child.wait()).await.is_err() {
        bail!("expected all processes of the drill to end after SIGKILL, but some have not: is a disk still frozen?");
    }
    Ok(())
}

/// Moves what a drill wrote to where it stays.
fn keep(parent: &Path, drill: &Drill, seed: u64, home: &Path) -> anyhow::Result<PathBuf> {
    let kept = parent.join("chaos-kept").join(format!("{}-{seed}", drill.name));
    leftovers::remove_dir(&kept)?;
    std::fs::create_dir_all(kept.parent().context("expected a directory above")?)?;
    std::fs::rename(home, &kept).with_context(|| format!("move {} to {}", home.display(), kept.display()))?;
    Ok(kept)
}
