//! Drill 9: the leader is cut off from the others, with half of the clients on its side.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use ticketrail_client::{Client, Effect, Reason};

use crate::cut::Way;
use crate::dice::Dice;
use crate::poll::pass;
use crate::scene::Scene;
use crate::switch::CLIENT_ADDRESSES;
use crate::tools::Tool;
use crate::world::{USUAL, World};

use super::Drill;

pub(super) const DRILL: Drill = Drill {
    number: 9,
    name: "isolated-leader",
    broken: "The leader is cut off from the other nodes; some clients reach only it, the others only those.",
    holds: "On its side no call is answered OK from the cut on, but for those that were on their way, and each fails within 2 s of \
            its deadline; on the other side writes are back within 3 s; afterwards both sides agree.",
    tools: &[Tool::Nft],
    setup: USUAL,
    run,
};

/// What is promised.
const OUTAGE: Duration = Duration::from_secs(3);
/// What a client on the wrong side allows a call, and how long after that it is answered at the latest.
const PATIENCE: Duration = Duration::from_secs(1);
const ANSWER: Duration = Duration::from_secs(2);
/// The queue that clients on the wrong side send to.
const MINORITY: &str = "minority";

fn run(scene: &mut Scene) -> anyhow::Result<()> {
    scene.warm()?;
    let (begun, mut round) = (Instant::now(), 0);
    while scene.goes_on(begun, round, 2) {
        round += 1;
        isolate(scene)?;
    }
    scene.nemesis.demand("packets stopped", 10)?;
    scene.nemesis.demand("leaders isolated", 2)?;
    scene.nemesis.demand("calls refused on the wrong side", 2)?;
    scene.finish()
}

fn isolate(scene: &mut Scene) -> anyhow::Result<()> {
    pass(scene.dice.between(Duration::from_millis(200), Duration::from_millis(1_500)));
    scene.forget_outage()?;
    let leader = scene.world.cluster.leader()?;
    let name = scene.world.name(leader.at).to_owned();
    let address = scene.world.cluster.node(leader.at)?.server.url();
    let others = scene.world.others(leader.at);
    scene.nemesis.begin("leaders isolated", &name, "nft drops all between it and the other nodes");
    // Clients with an even number reach the leader alone, the others all but the leader.
    let clients = 0..usize::from(CLIENT_ADDRESSES);
    let (mine, theirs): (Vec<usize>, Vec<usize>) = clients.partition(|number| number % 2 == 0);
    let apart = scene.world.apart(Way::Both, &others)?;
    let cut = Instant::now();
    scene.world.cut(leader.at, &[apart, World::apart_from_clients(theirs)])?;
    for other in &others {
        scene.world.cut(*other, &[World::apart_from_clients(mine.clone())])?;
    }
    let next = scene.world.until_leader_after(leader)?;
    let elected = cut.elapsed();
    // From here on the old one cannot have a quorum.
    let refused = ask_the_wrong_side(&address, scene.sized(1, 4))?;
    let proof = format!("each failed, none was answered OK, the longest took {} ms", refused.longest.as_millis());
    scene.nemesis.effect("calls refused on the wrong side", &name, &proof, refused.calls);
    scene.world.cluster.until("the old leader to say that it is cut off", |cluster| {
        let node = cluster.node(leader.at)?;
        let told = node.figures().is_some_and(|figures| figures.get("ticketrail_node_cut_off") == Some(1));
        Ok((told && node.readiness().1.contains("[-] leader")).then_some(()))
    })?;
    let outage = scene.outage().context("expected writes on the side of the majority")?;
    let seconds = scene.sized(1, 6);
    pass(scene.dice.between(Duration::ZERO, Duration::from_secs(seconds)));
    let mut stopped = scene.world.heal(leader.at)?;
    for other in &others {
        stopped += scene.world.heal(*other)?;
    }
    scene.nemesis.effect("packets stopped", &name, &format!("nft counters: {stopped}"), stopped);
    scene.nemesis.effect("leaders isolated", &name, &format!("term {} after {}", next.term, leader.term), 1);
    scene.nemesis.end("leaders isolated", &name, "all rules removed");
    // The old leader follows.
    let healed = Instant::now();
    scene.world.cluster.until("the old leader to follow", |cluster| {
        let figures = cluster.node(leader.at)?.figures();
        let follows = figures.is_some_and(|figures| {
            figures.get("ticketrail_raft_leading") == Some(0)
                && figures.get("ticketrail_raft_term").is_some_and(|term| term >= next.term)
        });
        Ok(follows.then_some(()))
    })?;
    check_that_nothing_happened(scene, &refused.nothing)?;
    scene.say(format!(
        "{name} cut off: {} leads after {} ms, no write for {} ms, {} calls refused at {name}, which followed {} ms after",
        scene.world.name(next.at),
        elected.as_millis(),
        outage.as_millis(),
        refused.calls,
        healed.elapsed().as_millis()
    ));
    scene.promised("a refusal on the wrong side", refused.longest, PATIENCE + ANSWER)?;
    scene.promised("writes on the majority's side", outage, OUTAGE)?;
    // Clients of the SDK reach both sides, and leave the one that refuses them.
    scene.promised("writes by the SDK", scene.longest_by_sdk(), OUTAGE)
}

/// What clients on the wrong side were told.
#[derive(Debug, Default)]
struct Refused {
    calls: u64,
    /// Bodies of messages of which they were told that nothing happened.
    nothing: BTreeSet<String>,
    longest: Duration,
}

/// Sends to the old leader alone, with a client of its own each time. No call may be answered OK.
fn ask_the_wrong_side(address: &str, calls: u64) -> anyhow::Result<Refused> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut refused = Refused::default();
    for _ in 0..calls {
        let body = format!("{address}-{}", Dice::fresh_seed());
        let begun = Instant::now();
        let answer = runtime.block_on(async {
            let client = Client::builder().address(address).timeout(PATIENCE).connect()?;
            client.queue(MINORITY).send(body.clone()).await
        });
        refused.longest = refused.longest.max(begun.elapsed());
        refused.calls += 1;
        match answer {
            Ok(sent) => bail!("expected no OK without a quorum, but {} was acknowledged", sent.message_id),
            Err(error) if error.effect() == Effect::Nothing => {
                refused.nothing.insert(body);
            }
            Err(_) => {}
        }
    }
    Ok(refused)
}

/// Whoever was told that nothing happened was told the truth.
fn check_that_nothing_happened(scene: &Scene, told: &BTreeSet<String>) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let there = runtime.block_on(async {
        let client = Client::builder().addresses(scene.world.cluster.addresses()).connect()?;
        match client.queue(MINORITY).peek().page_size(1_000).await {
            Ok(page) => Ok(page.messages),
            Err(error) if error.reason() == Some(&Reason::QueueNotFound) => Ok(Vec::new()),
            Err(error) => Err(anyhow::Error::new(error)),
        }
    })?;
    for message in there {
        let body = String::from_utf8_lossy(&message.message.body).into_owned();
        ensure!(!told.contains(&body), "expected no message {body}: its sender was told that nothing happened");
    }
    Ok(())
}
