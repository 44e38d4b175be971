//! Drill 16: bytes of one node's files change under it, while it is stopped or while it runs.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use ticketrail_cluster_tests::replay;
use ticketrail_cluster_tests::server::DEADLINE;

use crate::damage::{Harm, Part, hurt};
use crate::poll::poll;
use crate::scene::Scene;
use crate::volume::Disk;
use crate::world::Setup;

use super::Drill;

pub(super) const DRILL: Drill = Drill {
    number: 16,
    name: "damage",
    broken: "A bit flips, or the end is missing, in one node's log, tables, MANIFEST, CURRENT or IDENTITY, while it is killed or \
             while it runs.",
    holds: "The node refuses to start, or ends, with a message that says what is wrong, or it holds the same as the others all the \
            same; a refused disk is emptied and filled again by the others within 60 s.",
    tools: &[],
    // Tables soon, and often.
    setup: Setup {
        nodes: 3,
        disk: Disk::Plain,
        args: &["--flush-bytes", "256KiB", "--flush-age", "1s"],
        proxied: false,
    },
    run,
};

/// What is promised.
const HEALED: Duration = Duration::from_secs(60);

/// What became of a damaged disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// The node did not start, or ended, and said why.
    Refused,
    /// Nobody reads what was hurt until a check of the whole disk, which finds it.
    Found,
    /// What was hurt holds nothing that counts.
    Harmless,
}

fn run(scene: &mut Scene) -> anyhow::Result<()> {
    scene.warm()?;
    let (begun, mut round) = (Instant::now(), 0);
    while scene.goes_on(begun, round, scene.sized(6, 12)) {
        let turn = usize::try_from(round).unwrap_or(0);
        let part = Part::ALL[turn % Part::ALL.len()];
        let running = (turn / Part::ALL.len()) % 2 == 1;
        let harm = if scene.dice.below(2) == 0 { Harm::Flip } else { Harm::Truncate };
        round += 1;
        damage(scene, part, harm, running)?;
    }
    scene.nemesis.demand("files hurt", 5)?;
    scene.nemesis.demand("refused", 2)?;
    scene.finish()
}

fn damage(scene: &mut Scene, part: Part, harm: Harm, running: bool) -> anyhow::Result<()> {
    let at = scene.world.cluster.follower()?;
    let name = scene.world.name(at).to_owned();
    let data = scene.world.cluster.node(at)?.server.data_dir();
    // Something to hurt.
    poll(DEADLINE, || part.file(&data)).with_context(|| format!("wait until {name} has a file to hurt: {part:?}"))?;
    if !running {
        scene.world.cluster.node_mut(at)?.server.kill_9()?;
    }
    let state = if running { "running" } else { "killed" };
    scene.nemesis.begin("files hurt", &name, &format!("{part:?} of the {state} node"));
    let dice = &mut scene.dice;
    let done = poll(DEADLINE, || hurt(&data, part, harm, dice)).context("wait until there is something to hurt")?;
    scene.nemesis.effect("files hurt", &name, &done, 1);
    if running {
        // What it holds in memory may hide it: it is read at the next start.
        scene.world.cluster.node_mut(at)?.server.kill_9()?;
    }
    let outcome = outcome(scene, at)?;
    let effect = match outcome {
        Outcome::Refused => "refused",
        Outcome::Found => "found by a check",
        Outcome::Harmless => "harmless",
    };
    scene.nemesis.effect(effect, &name, &done, 1);
    let healing = Instant::now();
    // What it acknowledged and lost, the leader may find only once it serves: then it is refused, and ends.
    let stays = outcome == Outcome::Harmless && start(scene, at)? && scene.until_it_follows_or_ends(at)?.is_none();
    if !stays {
        replace(scene, at)?;
    }
    let healed = healing.elapsed();
    scene.nemesis.end("files hurt", &name, "follows");
    scene.outage()?;
    scene.say(format!("{state} {name}, {done}: {effect}; follows {} ms after", healed.as_millis()));
    scene.promised("to heal from the others", healed, HEALED)
}

/// Starts the hurt node; whether it serves. If not, it has ended and said why.
fn start(scene: &mut Scene, at: usize) -> anyhow::Result<bool> {
    scene.world.cluster.spawn(at)?;
    let server = &mut scene.world.cluster.node_mut(at)?.server;
    let ended = poll(DEADLINE, || {
        if let Some(status) = server.child()?.try_wait()? {
            return Ok(Some(Some(status)));
        }
        Ok(server.is_ready()?.then_some(None))
    })
    .context("wait until the node serves or ends")?;
    let Some(status) = ended else { return Ok(true) };
    server.wait()?;
    let said = server.log_of_this_life();
    ensure!(status.code().is_some_and(|code| code != 0), "expected a refusal, but it ended with {status}:\n{said}");
    ensure!(said.lines().last().is_some_and(|line| line.len() > 40), "expected it to say why:\n{said}");
    Ok(false)
}

/// Starts the hurt node, and sees what it does; in the end it is stopped.
fn outcome(scene: &mut Scene, at: usize) -> anyhow::Result<Outcome> {
    if !start(scene, at)? {
        return Ok(Outcome::Refused);
    }
    let server = &mut scene.world.cluster.node_mut(at)?.server;
    // It serves: whatever it tells must be right, so it leads on no account by what it holds alone.
    let status = server.stop()?;
    let data = server.data_dir();
    if !status.success() {
        return Ok(Outcome::Refused);
    }
    let whole = replay::check_dir(&data).and_then(|_| replay::agree(std::slice::from_ref(&data)));
    Ok(if whole.is_ok() { Outcome::Harmless } else { Outcome::Found })
}

/// As the messages say: the disk is emptied, and the others fill it again.
fn replace(scene: &mut Scene, at: usize) -> anyhow::Result<()> {
    scene.world.cluster.node(at)?.wipe()?;
    scene.world.cluster.restart(at)?;
    let id = scene.world.cluster.node(at)?.id().context("expected an id")?;
    scene.world.cluster.until_members("three voters, the new one among them", |members| {
        members.len() == 3
            && members.iter().all(|member| member.votes() && member.alive)
            && members.iter().any(|member| member.node == id)
    })?;
    Ok(())
}
