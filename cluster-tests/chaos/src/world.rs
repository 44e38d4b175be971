//! A cluster on a network and on disks of its own.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use ticketrail_cluster_tests::cluster::{Cluster, Leader, Place};

use crate::cut::{self, Rule};
use crate::switch::{Host, Switch, client_address, link_address};
use crate::volume::{Disk, Volume};

/// What a drill needs.
#[derive(Debug, Clone)]
pub struct Setup {
    /// Nodes that know each other from the beginning.
    pub nodes: usize,
    /// Their disks.
    pub disk: Disk,
    /// What each node is told beside the usual.
    pub args: &'static [&'static str],
    /// Whether peers reach each other through proxies of the harness.
    pub proxied: bool,
}

/// What most drills use.
pub const USUAL: Setup = Setup { nodes: 3, disk: Disk::Plain, args: &[], proxied: false };

/// A log that stays whole, so that it can be replayed from its first entry.
pub const WHOLE_LOG: &[&str] = &["--log-retention-bytes", "64GiB", "--log-retention-age", "7d"];

/// The cluster, its network, its disks. Nodes are killed when this is dropped; the kernel does the rest.
pub struct World {
    /// The nodes.
    pub cluster: Cluster,
    hosts: Vec<Host>,
    volumes: Vec<Volume>,
    switch: Switch,
    home: PathBuf,
    disk: Disk,
    /// Whether logs stay whole, so that they can be replayed from their first entry.
    pub keeps_log: bool,
}

impl World {
    /// Makes it in `home`; no node runs yet.
    ///
    /// # Errors
    /// Where this process is not in namespaces of its own.
    pub fn make(home: &Path, run: &str, setup: &Setup) -> anyhow::Result<Self> {
        let switch = Switch::make(run).context("make a network")?;
        let mut world = Self {
            cluster: Cluster::placed(home, Vec::new(), &[])?,
            hosts: Vec::new(),
            volumes: Vec::new(),
            switch,
            home: home.to_owned(),
            disk: setup.disk,
            keeps_log: !setup.args.contains(&"--log-retention-bytes"),
        };
        let places: Vec<Place> = (b'a'..=b'z')
            .take(setup.nodes)
            .map(|name| world.place(&char::from(name).to_string(), setup.proxied))
            .collect::<anyhow::Result<_>>()?;
        let log = if world.keeps_log { WHOLE_LOG } else { &[] };
        let args: Vec<&str> = log.iter().chain(setup.args).copied().collect();
        world.cluster = Cluster::placed(home, places, &args)?;
        Ok(world)
    }

    /// A place for one more node: its namespace and its disk.
    fn place(&mut self, name: &str, proxied: bool) -> anyhow::Result<Place> {
        let number = self.hosts.len();
        let host = self.switch.host(number, name).with_context(|| format!("make a network for {name}"))?;
        let home = self.home.join(name);
        self.volumes.push(Volume::make(&home.join("data"), self.disk).with_context(|| format!("a disk for {name}"))?);
        let place = Place {
            name: name.to_owned(),
            home,
            host: host.address,
            through: host.through(),
            advertised: proxied.then(|| format!("{}:50001", link_address(number))),
        };
        self.hosts.push(host);
        Ok(place)
    }

    /// One more node, which is not in the list that the others have; it does not run yet.
    ///
    /// # Errors
    /// Where its network can't be made.
    pub fn add(&mut self, name: &str) -> anyhow::Result<usize> {
        let place = self.place(name, false)?;
        self.cluster.add_placed(place)
    }

    /// Where this drill has its files.
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// The network.
    pub fn switch(&self) -> &Switch {
        &self.switch
    }

    /// The namespace of a node.
    ///
    /// # Errors
    /// Where there is no such node.
    pub fn host(&self, at: usize) -> anyhow::Result<&Host> {
        self.hosts.get(at).with_context(|| format!("expected a node number {at}"))
    }

    /// The disk of a node.
    ///
    /// # Errors
    /// Where there is no such node.
    pub fn volume(&self, at: usize) -> anyhow::Result<&Volume> {
        self.volumes.get(at).with_context(|| format!("expected a node number {at}"))
    }

    /// The name of a node.
    pub fn name(&self, at: usize) -> &str {
        self.cluster.nodes.get(at).map_or("?", |node| &node.name)
    }

    /// The numbers of all nodes but one.
    pub fn others(&self, at: usize) -> Vec<usize> {
        (0..self.hosts.len()).filter(|other| *other != at).collect()
    }

    /// Stops traffic at a node; what was stopped there before goes on, unless `rules` say otherwise.
    ///
    /// # Errors
    /// Where nft does not take them.
    pub fn cut(&self, at: usize, rules: &[Rule]) -> anyhow::Result<()> {
        cut::set(self.host(at)?, rules)
    }

    /// The rule that parts nodes from each other, to be set at one of them.
    ///
    /// # Errors
    /// Where there is no such node.
    pub fn apart(&self, way: cut::Way, others: &[usize]) -> anyhow::Result<Rule> {
        let others = others.iter().map(|at| Ok(self.host(*at)?.address)).collect::<anyhow::Result<Vec<_>>>()?;
        Ok(Rule::all(way, others))
    }

    /// The rule that parts clients from a node, to be set there: those that call from the addresses of these numbers.
    pub fn apart_from_clients(clients: impl IntoIterator<Item = usize>) -> Rule {
        Rule::all(cut::Way::Both, clients.into_iter().map(client_address))
    }

    /// Lets all traffic through at a node; returns how many packets were stopped.
    ///
    /// # Errors
    /// Where nft fails.
    pub fn heal(&self, at: usize) -> anyhow::Result<u64> {
        cut::heal(self.host(at)?)
    }

    /// The state of a node's process, as the kernel has it: R, S, D, T, Z.
    ///
    /// # Errors
    /// Where it is gone.
    pub fn state(&mut self, at: usize) -> anyhow::Result<char> {
        process_state(self.cluster.node_mut(at)?.server.child()?.id())
    }

    /// Waits until somebody leads in a later term than `before`, or another node than then.
    ///
    /// # Errors
    /// Where nobody does in time.
    pub fn until_leader_after(&self, before: Leader) -> anyhow::Result<Leader> {
        self.cluster.until("a leader of a later term", |cluster| {
            Ok(cluster.leader_now().filter(|leader| leader.term > before.term && leader.at != before.at))
        })
    }

    /// Has a node lead other than `at`.
    ///
    /// # Errors
    /// Where it does not come about.
    pub fn lead_elsewhere(&self, at: usize) -> anyhow::Result<()> {
        if self.cluster.leader()?.at == at {
            let moved = self.cluster.rail(at, &["cluster", "transfer-leader"])?;
            ensure!(moved.status.success(), "{}", String::from_utf8_lossy(&moved.stderr));
            self.cluster
                .until("another leader", |cluster| Ok(cluster.leader_now().filter(|leader| leader.at != at)))?;
        }
        Ok(())
    }

    /// Copies what is on disks that vanish with this process to where the outside can keep it.
    ///
    /// # Errors
    /// Where it can't be copied.
    pub fn rescue(&mut self) -> anyhow::Result<()> {
        // One that has ended already is what is wanted.
        let _ = self.cluster.kill_all();
        for volume in &self.volumes {
            if volume.disk() != Disk::Plain {
                volume.clear()?;
                let to = volume.dir().with_extension("saved");
                ticketrail_cluster_tests::faults::copy_dir(volume.dir(), &to)?;
            }
        }
        Ok(())
    }
}

/// The state of a process: R, S, D, T, Z.
///
/// # Errors
/// Where it is gone.
pub fn process_state(pid: u32) -> anyhow::Result<char> {
    let stat =
        std::fs::read_to_string(format!("/proc/{pid}/stat")).with_context(|| format!("look at process {pid}"))?;
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    state.with_context(|| format!("expected a state in {stat:?}"))
}
