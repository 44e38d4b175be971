//! A cluster of `rail serve` processes on this machine, each with a directory of its own.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::Value;
use tempfile::TempDir;

use crate::faults;
use crate::poll::poll;
use crate::ports;
use crate::server::{DEADLINE, Refusal, Server, rail};

/// How long a node may take to answer over HTTP; it is on this machine.
const HTTP: Duration = Duration::from_secs(2);

/// A place that a node runs in, or has run in: its name, its addresses and its disk.
pub struct Node {
    /// Its name among its peers.
    pub name: String,
    /// The process.
    pub server: Server,
    host: Ipv4Addr,
    client: u16,
    peer: u16,
    http: u16,
    /// Where it says that peers reach it, where that is not where it listens.
    advertised: Option<String>,
    /// Whether it is out of the cluster for good.
    out: bool,
}

/// Where a node of a cluster stands.
#[derive(Debug, Clone)]
pub struct Place {
    /// Its name among its peers.
    pub name: String,
    /// Its directory: data in `data`, log in `server.log`.
    pub home: PathBuf,
    /// Its address, on which all ports are its own.
    pub host: Ipv4Addr,
    /// What its process is started through, see [`Server::through`].
    pub through: Vec<String>,
    /// Where peers reach it: `None`, directly.
    pub advertised: Option<String>,
}

/// The ports of a node that has an address of its own: for clients, for peers, for probes.
const OWN_PORTS: [u16; 3] = [50_000, 50_001, 8_080];

/// Several places that belong together. Whatever runs in them is killed when this is dropped.
pub struct Cluster {
    /// The places: first the named ones, in the order of their list.
    pub nodes: Vec<Node>,
    peers: String,
    extra: Vec<String>,
    dir: TempDir,
}

/// What a node tells on `/metrics`.
#[derive(Debug, Clone, Default)]
pub struct Figures(BTreeMap<String, f64>);

impl Figures {
    /// A figure by its name, without its labels.
    pub fn get(&self, name: &str) -> Option<u64> {
        self.0.get(name).map(|value| *value as u64)
    }

    /// A figure by its name; 0 where it is not told.
    pub fn or_0(&self, name: &str) -> u64 {
        self.get(name).unwrap_or(0)
    }

    fn parse(page: &str) -> Self {
        let samples = page.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
            let (name, value) = line.rsplit_once(' ')?;
            let name = name.split('{').next()?;
            Some((name.to_owned(), value.parse().ok()?))
        });
        // Of several with one name the first: none of those that tests look at has more.
        let mut figures = BTreeMap::new();
        for (name, value) in samples {
            figures.entry(name).or_insert(value);
        }
        Self(figures)
    }
}

/// A member, as `rail cluster members` shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its Raft id.
    pub node: u64,
    /// Its name.
    pub name: String,
    /// leader, voter or learner.
    pub role: String,
    /// Whether it was heard lately.
    pub alive: bool,
    /// Where peers reach it.
    pub peer_address: String,
}

impl Node {
    fn new(home: &Path, name: &str) -> anyhow::Result<Self> {
        fs::create_dir_all(home)?;
        let [client, peer, http] = [ports::free()?, ports::free()?, ports::free()?];
        let host = Ipv4Addr::LOCALHOST;
        let server = Server::new(home, &format!("{host}:{client}"), Vec::new());
        Ok(Self { name: name.to_owned(), server, host, client, peer, http, advertised: None, out: false })
    }

    fn at(place: Place) -> anyhow::Result<Self> {
        let Place { name, home, host, through, advertised } = place;
        fs::create_dir_all(&home)?;
        let [client, peer, http] = OWN_PORTS;
        let mut server = Server::new(&home, &format!("{host}:{client}"), Vec::new());
        server.through(through);
        Ok(Self { name, server, host, client, peer, http, advertised, out: false })
    }

    fn address(&self, port: u16) -> String {
        format!("{}:{port}", self.host)
    }

    /// Where its peers reach it.
    pub fn peer_address(&self) -> String {
        self.advertised.clone().unwrap_or_else(|| self.address(self.peer))
    }

    /// Its address.
    pub fn host(&self) -> Ipv4Addr {
        self.host
    }

    fn args(&self, peers: &str, extra: &[String]) -> Vec<String> {
        let (peer, listen, http) = (self.peer_address(), self.address(self.peer), self.address(self.http));
        let client = self.address(self.client);
        let own = [
            ["--name", &self.name],
            ["--peers", peers],
            ["--peer-listen", &listen],
            ["--advertise-peer", &peer],
            ["--advertise-client", &client],
            ["--http-listen", &http],
            // Several of them stand on this disk.
            ["--ballast-bytes", "0B"],
        ];
        let told = own.iter().filter(|[name, _]| !extra.iter().any(|other| other == name));
        told.flatten().map(|arg| (*arg).to_owned()).chain(extra.iter().cloned()).collect()
    }

    /// What it tells; `None` where it does not answer.
    pub fn figures(&self) -> Option<Figures> {
        let page = get(SocketAddr::from((self.host, self.http)), "/metrics").ok()?;
        page.starts_with("HTTP/1.1 200").then(|| Figures::parse(&page))
    }

    /// Whether it says that it is ready, and what it says.
    pub fn readiness(&self) -> (bool, String) {
        match get(SocketAddr::from((self.host, self.http)), "/readyz") {
            Ok(page) => (page.starts_with("HTTP/1.1 200"), page),
            Err(error) => (false, error.to_string()),
        }
    }

    /// Empties its disk, while it is stopped.
    pub fn wipe(&self) -> anyhow::Result<()> {
        ensure!(!self.server.is_started(), "expected {} to be stopped", self.name);
        // The directory itself may be where a disk is mounted.
        let emptied = || {
            for entry in fs::read_dir(self.server.data_dir())? {
                let entry = entry?;
                match entry.file_type()?.is_dir() {
                    true => fs::remove_dir_all(entry.path())?,
                    false => fs::remove_file(entry.path())?,
                }
            }
            Ok::<_, std::io::Error>(())
        };
        emptied().with_context(|| format!("wipe the disk of {}", self.name))
    }

    /// The Raft id on its disk; `None` on an empty one.
    pub fn id(&self) -> Option<u64> {
        self.identity("node")?.parse().ok()
    }

    /// The cluster's id on its disk; `None` on an empty one.
    pub fn cluster(&self) -> Option<String> {
        self.identity("cluster")
    }

    fn identity(&self, key: &str) -> Option<String> {
        let text = fs::read_to_string(self.server.data_dir().join("IDENTITY")).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = "))?;
        Some(line.to_owned())
    }

    /// What it holds itself in memory, files not counted, in MiB.
    pub fn anonymous_mib(&mut self) -> anyhow::Result<u64> {
        faults::anonymous_mib(self.server.child()?)
    }
}

/// Who leads, and in which term.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leader {
    /// The place.
    pub at: usize,
    /// The term.
    pub term: u64,
}

impl Cluster {
    /// `named` places that know each other, named a, b, c and so on; none of them runs. Each gets `extra` arguments.
    pub fn of(named: u8, extra: &[&str]) -> anyhow::Result<Self> {
        let dir = tempfile::tempdir()?;
        let nodes = (b'a'..b'a' + named).map(|name| {
            let name = char::from(name).to_string();
            Node::new(&dir.path().join(&name), &name)
        });
        let nodes = nodes.collect::<anyhow::Result<Vec<_>>>()?;
        let peers: Vec<_> = nodes.iter().map(|node| format!("{}={}", node.name, node.peer_address())).collect();
        let extra = extra.iter().map(|arg| (*arg).to_owned()).collect();
        Ok(Self { nodes, peers: peers.join(","), extra, dir })
    }

    /// Places made elsewhere that know each other; none of them runs. Each gets `extra` arguments. What else is written
    /// goes below `dir`.
    pub fn placed(dir: &Path, places: Vec<Place>, extra: &[&str]) -> anyhow::Result<Self> {
        let dir = tempfile::tempdir_in(dir)?;
        let nodes = places.into_iter().map(Node::at).collect::<anyhow::Result<Vec<_>>>()?;
        let peers: Vec<_> = nodes.iter().map(|node| format!("{}={}", node.name, node.peer_address())).collect();
        let extra = extra.iter().map(|arg| (*arg).to_owned()).collect();
        Ok(Self { nodes, peers: peers.join(","), extra, dir })
    }

    /// One more place made elsewhere, which is not in the list that the others have.
    pub fn add_placed(&mut self, place: Place) -> anyhow::Result<usize> {
        self.nodes.push(Node::at(place)?);
        Ok(self.nodes.len() - 1)
    }

    /// What each node gets beside the arguments of its place, from its next start on.
    pub fn set_extra(&mut self, extra: &[&str]) {
        self.extra = extra.iter().map(|arg| (*arg).to_owned()).collect();
    }

    /// Three of them, running.
    pub fn start(extra: &[&str]) -> anyhow::Result<Self> {
        let mut cluster = Self::of(3, extra)?;
        cluster.start_all()?;
        Ok(cluster)
    }

    /// One more place, which is not in the list that the others have, with its directory `dir` beside theirs.
    pub fn add_place(&mut self, name: &str, dir: &str) -> anyhow::Result<usize> {
        self.nodes.push(Node::new(&self.dir.path().join(dir), name)?);
        Ok(self.nodes.len() - 1)
    }

    /// Gives the node of a place the arguments that belong to its addresses of now.
    fn prepared(&mut self, at: usize) -> anyhow::Result<&mut Server> {
        let node = self.node(at)?;
        let (address, args) = (node.address(node.client), node.args(&self.peers, &self.extra));
        let server = &mut self.node_mut(at)?.server;
        server.move_to(&address, args);
        Ok(server)
    }

    /// Starts the node of a place, and waits for nothing.
    pub fn spawn(&mut self, at: usize) -> anyhow::Result<()> {
        self.prepared(at)?.spawn()
    }

    /// Starts the node of a place, and waits until it serves.
    pub fn restart(&mut self, at: usize) -> anyhow::Result<()> {
        self.spawn(at)?;
        self.node_mut(at)?.server.until_ready()
    }

    /// Starts whatever does not run, all at the same time, and waits until each serves and one leads.
    pub fn start_all(&mut self) -> anyhow::Result<Leader> {
        for at in 0..self.nodes.len() {
            if !self.node(at)?.server.is_started() && !self.node(at)?.out {
                self.spawn(at)?;
            }
        }
        for node in self.nodes.iter_mut().filter(|node| !node.out) {
            node.server.until_ready().with_context(|| format!("start {}", node.name))?;
        }
        self.leader()
    }

    /// Starts the node of a place, and waits until it has given up; returns what it logged and how it ended.
    pub fn refused(&mut self, at: usize) -> anyhow::Result<Refusal> {
        self.prepared(at)?.refused().with_context(|| self.logs())
    }

    /// Kills all that run with -9, at one moment.
    pub fn kill_all(&mut self) -> anyhow::Result<()> {
        let running = self.nodes.iter_mut().filter(|node| node.server.is_started());
        let mut killed = running.map(|node| &mut node.server).collect::<Vec<_>>();
        for server in &mut killed {
            faults::signal(server.child()?, nix::sys::signal::Signal::SIGKILL)?;
        }
        for server in killed {
            server.kill_9()?;
        }
        Ok(())
    }

    /// Stops all that run with SIGTERM, at one moment, and waits until they are gone.
    pub fn stop_all(&mut self) -> anyhow::Result<()> {
        for node in self.nodes.iter_mut().filter(|node| node.server.is_started()) {
            faults::signal(node.server.child()?, nix::sys::signal::Signal::SIGTERM)?;
        }
        for node in self.nodes.iter_mut().filter(|node| node.server.is_started()) {
            let status = node.server.wait()?;
            let log = node.server.log_of_this_life();
            ensure!(status.success(), "expected a clean stop of {}, but {status}:\n{log}", node.name);
        }
        Ok(())
    }

    /// Gives a stopped node a new port for its peers, as a pod has that was scheduled anew.
    pub fn move_peer_address(&mut self, at: usize) -> anyhow::Result<()> {
        let node = self.node_mut(at)?;
        ensure!(!node.server.is_started(), "expected {} to be stopped", node.name);
        node.peer = ports::free()?;
        Ok(())
    }

    /// Exchanges the disks of two stopped nodes.
    pub fn swap_disks(&mut self, one: usize, other: usize) -> anyhow::Result<()> {
        let [one, other] = [self.node(one)?.server.data_dir(), self.node(other)?.server.data_dir()];
        let aside = self.dir.path().join("aside");
        fs::rename(&one, &aside)?;
        fs::rename(&other, &one)?;
        fs::rename(&aside, &other)?;
        Ok(())
    }

    /// Leaves a stopped node out from now on: it is a member no more.
    pub fn take_out(&mut self, at: usize) -> anyhow::Result<()> {
        let node = self.node_mut(at)?;
        ensure!(!node.server.is_started(), "expected {} to be stopped", node.name);
        node.out = true;
        Ok(())
    }

    /// The directories of all nodes' data, but for those that are out.
    pub fn data_dirs(&self) -> Vec<PathBuf> {
        self.nodes.iter().filter(|node| !node.out).map(|node| node.server.data_dir()).collect()
    }

    /// The Raft ids and the directories of all nodes' data, but for those that are out.
    pub fn disks(&self) -> anyhow::Result<Vec<(u64, PathBuf)>> {
        let members = self.nodes.iter().filter(|node| !node.out);
        let disk = |node: &Node| {
            let id = node.id().with_context(|| format!("expected a disk of {} with an id", node.name))?;
            Ok((id, node.server.data_dir()))
        };
        members.map(disk).collect()
    }

    /// A path beside the nodes' directories, where there is nothing yet.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The place of this number.
    pub fn node(&self, at: usize) -> anyhow::Result<&Node> {
        self.nodes.get(at).with_context(|| format!("expected a place number {at}"))
    }

    /// The place of this number.
    pub fn node_mut(&mut self, at: usize) -> anyhow::Result<&mut Node> {
        self.nodes.get_mut(at).with_context(|| format!("expected a place number {at}"))
    }

    /// Where clients reach the nodes.
    pub fn addresses(&self) -> Vec<String> {
        self.nodes.iter().map(|node| node.server.url()).collect()
    }

    /// Who leads and serves now, as far as the nodes tell.
    pub fn leader_now(&self) -> Option<Leader> {
        let leading = |(at, node): (usize, &Node)| {
            let figures = node.server.is_started().then(|| node.figures())??;
            let term = figures.get("ticketrail_raft_term")?;
            (figures.get("ticketrail_raft_leading") == Some(1)).then_some(Leader { at, term })
        };
        self.nodes.iter().enumerate().filter_map(leading).max_by_key(|leader| leader.term)
    }

    /// Waits until somebody leads and serves.
    pub fn leader(&self) -> anyhow::Result<Leader> {
        self.until("a leader", |cluster| Ok(cluster.leader_now()))
    }

    /// The place after the leader's, around the circle: a follower.
    pub fn follower(&self) -> anyhow::Result<usize> {
        Ok((self.leader()?.at + 1) % 3)
    }

    /// Waits until `found` has something; on failure tells what the nodes logged.
    pub fn until<T>(&self, what: &str, mut found: impl FnMut(&Self) -> anyhow::Result<Option<T>>) -> anyhow::Result<T> {
        poll(DEADLINE, || found(self)).with_context(|| format!("wait for {what}; {}", self.logs()))
    }

    /// The ends of the nodes' logs, and how each answers when it is asked for its figures.
    pub fn logs(&self) -> String {
        let tail = |node: &Node| {
            let log = node.server.log_of_this_life();
            let lines: Vec<_> = log.lines().collect();
            let page = node.server.is_started().then(|| get(SocketAddr::from((node.host, node.http)), "/metrics"));
            let told = match page {
                None => "it does not run".to_owned(),
                Some(Ok(page)) => page.lines().next().unwrap_or("nothing").to_owned(),
                Some(Err(error)) => error.to_string(),
            };
            let end = lines[lines.len().saturating_sub(25)..].join("\n");
            format!("\n{} (/metrics: {told}):\n{end}", node.name)
        };
        self.nodes.iter().map(tail).collect()
    }

    /// Waits until all running nodes have applied the same entries, and there are at least as many as now.
    pub fn until_level(&self) -> anyhow::Result<u64> {
        let least = self.leader_now().and_then(|leader| self.nodes.get(leader.at)?.figures());
        let least = least.map_or(0, |figures| figures.or_0("ticketrail_raft_committed_index"));
        self.until("all nodes to have applied the same", |cluster| {
            let running = cluster.nodes.iter().filter(|node| node.server.is_started());
            let applied: Option<Vec<u64>> =
                running.map(|node| node.figures()?.get("ticketrail_raft_applied_index")).collect();
            let Some(applied) = applied else { return Ok(None) };
            let first = applied.first().copied().unwrap_or(0);
            Ok((first >= least && applied.iter().all(|index| *index == first)).then_some(first))
        })
    }

    /// Waits until each running node has applied what the leader has committed now: also while the leader goes on.
    pub fn until_level_under_load(&self) -> anyhow::Result<()> {
        let leader = self.leader()?;
        let figures = self.until("the leader's figures", |cluster| Ok(cluster.node(leader.at)?.figures()))?;
        let least = figures.or_0("ticketrail_raft_committed_index");
        self.until("all nodes to have applied what is committed", |cluster| {
            let mut running = cluster.nodes.iter().filter(|node| node.server.is_started());
            let level = |node: &Node| Some(node.figures()?.get("ticketrail_raft_applied_index")? >= least);
            Ok(running.all(|node| level(node) == Some(true)).then_some(()))
        })
    }

    /// Runs `rail` against the node of a place.
    pub fn rail(&self, at: usize, args: &[&str]) -> anyhow::Result<Output> {
        let address = self.node(at)?.server.url();
        let mut command = Command::new(rail()?);
        command.args(args).args(["--address", &address, "--timeout", "20s"]);
        command.output().with_context(|| format!("run {command:?}"))
    }

    /// The members, as a node says to `rail cluster members`.
    pub fn members(&self, at: usize) -> anyhow::Result<Vec<Member>> {
        let output = self.rail(at, &["cluster", "members", "-o", "json"])?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "expected the members, but {}: {said}", output.status);
        let members: Value = serde_json::from_slice(&output.stdout)?;
        let list = members.as_array().with_context(|| format!("expected a list, but got {members}"))?;
        list.iter().map(|member| Member::parse(member).with_context(|| format!("read {member}"))).collect()
    }

    /// Waits until the members are as `wanted` says, and returns them.
    pub fn until_members(&self, what: &str, wanted: impl Fn(&[Member]) -> bool) -> anyhow::Result<Vec<Member>> {
        let mut last = Vec::new();
        self.until(what, |cluster| {
            let leader = cluster.leader()?;
            last = cluster.members(leader.at)?;
            Ok(wanted(&last).then(|| last.clone()))
        })
    }
}

impl Member {
    fn parse(member: &Value) -> Option<Self> {
        let text = |key: &str| Some(member.get(key)?.as_str()?.to_owned());
        Some(Self {
            node: member.get("node")?.as_u64()?,
            name: text("name")?,
            role: text("role")?,
            alive: member.get("alive")?.as_bool()?,
            peer_address: text("peer_address")?,
        })
    }

    /// Whether it has a vote.
    pub fn votes(&self) -> bool {
        self.role != "learner"
    }
}

/// A page of a server on this machine, its head included.
fn get(address: SocketAddr, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, HTTP)?;
    stream.set_read_timeout(Some(HTTP))?;
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").as_bytes())?;
    let mut page = String::new();
    stream.read_to_string(&mut page)?;
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_by_their_names() {
        let page =
            "HTTP/1.1 200 OK\r\n\r\n# TYPE a gauge\na{group=\"queues\"} 7\nb_total 2.5e3\nb_total{x=\"y\"} 1\n# EOF";
        let figures = Figures::parse(page);
        assert_eq!((figures.get("a"), figures.get("b_total"), figures.get("c")), (Some(7), Some(2_500), None));
    }
}
