//! Drill 21: members come and go while nodes are killed, and while the operator who asked for it is.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use ticketrail_cluster_tests::cluster::Member;
use ticketrail_cluster_tests::server::rail;

use crate::cut::Way;
use crate::poll::pass;
use crate::scene::Scene;
use crate::tools::Tool;
use crate::world::USUAL;

use super::Drill;

pub(super) const DRILL: Drill = Drill {
    number: 21,
    name: "membership",
    broken: "Two nodes join and two leave, three to five to three, while the leader is killed or cut off in the middle of the change, \
             and so is the operator's command.",
    holds: "One configuration at a time, a change that was begun is finished or undone by the next leader, and nothing is lost.",
    tools: &[Tool::Nft],
    setup: USUAL,
    run,
};

/// What happens in the middle of a change.
#[derive(Debug, Clone, Copy)]
enum Beside {
    LeaderKilled,
    LeaderCutOff,
    OperatorKilled,
}

const BESIDES: [Beside; 3] = [Beside::LeaderKilled, Beside::OperatorKilled, Beside::LeaderCutOff];

fn run(scene: &mut Scene) -> anyhow::Result<()> {
    scene.warm()?;
    let (begun, mut round) = (Instant::now(), 0_u32);
    while scene.goes_on(begun, round, 1) {
        for step in 0..2_usize {
            let name = char::from(b'd' + u8::try_from(2 * round).unwrap_or(0) % 20 + u8::try_from(step).unwrap_or(0));
            join(scene, &name.to_string(), BESIDES[(usize::try_from(round).unwrap_or(0) + step) % BESIDES.len()])?;
        }
        for step in 0..2_usize {
            leave(scene, BESIDES[(usize::try_from(round).unwrap_or(0) + step + 1) % BESIDES.len()])?;
        }
        round += 1;
        // Names and addresses are used once.
        if round >= 8 {
            break;
        }
    }
    scene.nemesis.demand("joined", 2)?;
    scene.nemesis.demand("removed", 2)?;
    scene.nemesis.demand("changes disturbed", 2)?;
    scene.finish()
}

/// Something happens to whoever changes the membership; returns what undoes it.
fn disturb(scene: &mut Scene, beside: Beside) -> anyhow::Result<Option<usize>> {
    let leader = scene.world.cluster.leader()?;
    let name = scene.world.name(leader.at).to_owned();
    match beside {
        Beside::LeaderKilled => {
            scene.nemesis.begin("changes disturbed", &name, "SIGKILL in a change of members");
            scene.world.cluster.node_mut(leader.at)?.server.kill_9()?;
            scene.world.until_leader_after(leader)?;
            scene.nemesis.effect("changes disturbed", &name, "the leader was killed", 1);
            scene.world.cluster.restart(leader.at)?;
            scene.nemesis.end("changes disturbed", &name, "started again");
            Ok(None)
        }
        Beside::LeaderCutOff => {
            scene.nemesis.begin("changes disturbed", &name, "nft in a change of members");
            let rule = scene.world.apart(Way::Both, &scene.world.others(leader.at))?;
            scene.world.cut(leader.at, &[rule])?;
            scene.world.until_leader_after(leader)?;
            Ok(Some(leader.at))
        }
        Beside::OperatorKilled => Ok(None),
    }
}

fn heal(scene: &mut Scene, cut: Option<usize>) -> anyhow::Result<()> {
    let Some(at) = cut else { return Ok(()) };
    let name = scene.world.name(at).to_owned();
    let stopped = scene.world.heal(at)?;
    scene.nemesis.effect("changes disturbed", &name, &format!("nft counters: {stopped}"), u64::from(stopped > 0));
    scene.nemesis.end("changes disturbed", &name, "all rules removed");
    Ok(())
}

/// A new node joins by itself, as one with the list of peers does.
fn join(scene: &mut Scene, name: &str, beside: Beside) -> anyhow::Result<()> {
    let begun = Instant::now();
    let at = scene.world.add(name)?;
    scene.world.cluster.spawn(at)?;
    pass(scene.dice.between(Duration::from_millis(200), Duration::from_millis(1_200)));
    let cut = match beside {
        Beside::OperatorKilled => {
            // The one who joins is who asked for it.
            scene.world.cluster.node_mut(at)?.server.kill_9()?;
            scene.nemesis.effect("changes disturbed", name, "the newcomer was killed while it joined", 1);
            scene.world.cluster.spawn(at)?;
            None
        }
        Beside::LeaderKilled | Beside::LeaderCutOff => disturb(scene, beside)?,
    };
    heal(scene, cut)?;
    scene.world.cluster.node_mut(at)?.server.until_ready()?;
    let id = scene.world.cluster.node(at)?.id().context("expected an id")?;
    let members = scene.world.cluster.until_members("the newcomer's vote", |members| {
        members.iter().any(|member| member.node == id && member.votes()) && members.iter().all(|member| member.alive)
    })?;
    check(&members)?;
    scene.nemesis.effect("joined", name, &format!("id {id}, one of {}", members.len()), 1);
    scene.say(format!(
        "{name} joined as {id} in {} ms, {beside:?}: {} members",
        begun.elapsed().as_millis(),
        members.len()
    ));
    scene.outage()?;
    Ok(())
}

/// An operator removes a node that does not lead.
fn leave(scene: &mut Scene, beside: Beside) -> anyhow::Result<()> {
    let begun = Instant::now();
    let leader = scene.world.cluster.leader()?.at;
    let running =
        |at: &usize| *at != leader && scene.world.cluster.nodes.get(*at).is_some_and(|node| node.server.is_started());
    let at = (0..scene.world.cluster.nodes.len()).rev().find(running).context("expected a node that can leave")?;
    let (name, id) = (scene.world.name(at).to_owned(), scene.world.cluster.node(at)?.id().context("expected an id")?);
    let mut operator = Command::new(rail()?)
        .args(["cluster", "remove", &id.to_string(), "--yes", "--timeout", "20s"])
        .args(["--address", &scene.world.cluster.node(leader)?.server.url()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .context("start an operator's command")?;
    pass(scene.dice.between(Duration::from_millis(5), Duration::from_millis(80)));
    let cut = match beside {
        Beside::OperatorKilled => {
            let running = operator.try_wait()?.is_none();
            operator.kill()?;
            scene.nemesis.effect("changes disturbed", &name, "the operator's command was killed", running.into());
            None
        }
        Beside::LeaderKilled | Beside::LeaderCutOff => disturb(scene, beside)?,
    };
    heal(scene, cut)?;
    operator.wait()?;
    // Whatever became of the command: asked again, it is done or was already.
    scene.world.cluster.until("the node to be removed", |cluster| {
        let leader = cluster.leader()?.at;
        if cluster.members(leader)?.iter().all(|member| member.node != id) {
            return Ok(Some(()));
        }
        cluster.rail(leader, &["cluster", "remove", &id.to_string(), "--yes"])?;
        Ok(None)
    })?;
    // It is told, or finds out, and ends by itself.
    let status = scene.world.cluster.node_mut(at)?.server.wait().context("wait until the removed node ends")?;
    ensure!(!status.success(), "expected the removed node to say so with its exit code, but {status}");
    scene.world.cluster.take_out(at)?;
    scene.nemesis.effect("removed", &name, &format!("id {id}; it ended with {status}"), 1);
    let leader = scene.world.cluster.leader()?.at;
    let members = scene.world.cluster.members(leader)?;
    check(&members)?;
    scene.say(format!(
        "{name} ({id}) left in {} ms, {beside:?}: {} members",
        begun.elapsed().as_millis(),
        members.len()
    ));
    scene.outage()?;
    Ok(())
}

/// No name twice, no id twice, and a quorum of votes.
fn check(members: &[Member]) -> anyhow::Result<()> {
    for (at, member) in members.iter().enumerate() {
        let twice = members[..at].iter().any(|other| other.node == member.node || other.name == member.name);
        ensure!(!twice, "expected each member once, but {members:?}");
    }
    ensure!(members.iter().filter(|member| member.votes()).count() >= 3, "expected three votes, but {members:?}");
    Ok(())
}
