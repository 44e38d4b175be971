//! The demo's cluster: three `rail serve` processes, ended and started again one by one.

use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;

use super::figures::{self, Figures};
use crate::child::{self, Server};

/// How many nodes there are.
pub(crate) const COUNT: usize = 3;
/// Their names.
const NAMES: [&str; COUNT] = ["a", "b", "c"];
/// Log kept for nodes that come back: little, so that one that is away for a while needs a snapshot.
const RETENTION_BYTES: &str = "4 MiB";
/// Room on the disk: none is kept free for a demo.
const DISK: [&str; 6] = ["--disk-low-bytes", "96 MiB", "--disk-critical-bytes", "16 MiB", "--ballast-bytes", "0 B"];

/// The three nodes.
#[derive(Debug)]
pub(crate) struct Nodes(Vec<Node>);

/// One node, running or not.
#[derive(Debug)]
pub(crate) struct Node {
    /// Its name.
    pub(crate) name: &'static str,
    http: SocketAddr,
    server: Server,
    up: bool,
}

/// A node that leads, as its own figures say.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Leader {
    /// Its place among the nodes.
    pub(crate) place: usize,
    /// Its figures.
    pub(crate) figures: Figures,
}

impl Nodes {
    /// Starts them, each in a directory of its own in `dir`, with so much log kept by age, and does not wait for them.
    pub(crate) fn launch(dir: &Path, retention_age: Duration) -> anyhow::Result<Self> {
        let [clients, peers, http]: [[SocketAddr; COUNT]; 3] = {
            let [a, b, c, d, e, f, g, h, i] = child::free_ports()?;
            [[a, b, c], [d, e, f], [g, h, i]]
        };
        let list: Vec<String> = NAMES.iter().zip(peers).map(|(name, address)| format!("{name}={address}")).collect();
        let mut nodes = Self(Vec::new());
        for (place, name) in NAMES.into_iter().enumerate() {
            let dir = dir.join(name);
            std::fs::create_dir(&dir)?;
            let told = [
                ("--name", name.to_owned()),
                ("--peers", list.join(",")),
                ("--peer-listen", peers[place].to_string()),
                ("--http-listen", http[place].to_string()),
                ("--log-retention-bytes", RETENTION_BYTES.to_owned()),
                ("--log-retention-age", format!("{}ms", retention_age.as_millis())),
            ];
            let flags = told.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]);
            let flags = flags.chain(DISK.into_iter().map(str::to_owned)).collect();
            let server = Server::launch(&dir, clients[place], flags)?;
            nodes.0.push(Node { name, http: http[place], server, up: true });
        }
        Ok(nodes)
    }

    /// Waits until they serve.
    pub(crate) async fn serve(&mut self) -> anyhow::Result<()> {
        for node in &mut self.0 {
            node.server.serves().await?;
        }
        Ok(())
    }

    /// Their addresses for clients.
    pub(crate) fn addresses(&self) -> Vec<String> {
        self.0.iter().map(|node| node.server.address()).collect()
    }

    /// The node at `place`.
    pub(crate) fn node(&mut self, place: usize) -> &mut Node {
        &mut self.0[place]
    }

    /// Errors where a node has ended that should run.
    pub(crate) fn check(&mut self) -> anyhow::Result<()> {
        self.0.iter_mut().filter(|node| node.up).try_for_each(|node| node.server.check())
    }

    /// What the nodes that run tell, by their places; one that does not answer is left out.
    pub(crate) async fn ask(&self) -> Vec<(usize, Figures)> {
        let running = self.0.iter().enumerate().filter(|(_, node)| node.up);
        let asked = running.map(async |(place, node)| Some((place, figures::ask(node.http).await.ok()?)));
        futures::future::join_all(asked).await.into_iter().flatten().collect()
    }

    /// How many run.
    pub(crate) fn running(&self) -> usize {
        self.0.iter().filter(|node| node.up).count()
    }

    /// Stops those that run in order. What went wrong with it.
    pub(crate) async fn stop(&mut self) -> Vec<String> {
        let stopped = self.0.iter_mut().filter(|node| node.up).map(async |node| (node.name, node.stop().await));
        let stopped = futures::future::join_all(stopped).await.into_iter();
        stopped.filter_map(|(name, stopped)| not_in_order(name, stopped)).collect()
    }

    /// Kills whoever is left.
    pub(crate) async fn end(&mut self) {
        for node in &mut self.0 {
            // Whatever cannot be killed has ended.
            let _ = node.server.kill_9().await;
        }
    }
}

impl Node {
    /// Kills it with SIGKILL. Whether it was that signal that ended it.
    pub(crate) async fn kill_9(&mut self) -> anyhow::Result<bool> {
        self.up = false;
        self.server.kill_9().await
    }

    /// Stops it in order.
    pub(crate) async fn stop(&mut self) -> anyhow::Result<ExitStatus> {
        self.up = false;
        self.server.stop().await
    }

    /// Starts it again, and does not wait for it.
    pub(crate) fn relaunch(&mut self) -> anyhow::Result<()> {
        self.server.relaunch()?;
        self.up = true;
        Ok(())
    }

    /// Whether it serves.
    pub(crate) fn is_ready(&self) -> bool {
        self.server.is_ready()
    }
}

/// What is wrong with how a node has stopped, if anything.
pub(crate) fn not_in_order(name: &str, stopped: anyhow::Result<ExitStatus>) -> Option<String> {
    match stopped {
        Ok(status) if status.success() => None,
        Ok(status) => Some(format!("node {name} did not stop in order: {status}")),
        Err(error) => Some(format!("node {name} did not stop in order: {error:#}")),
    }
}

/// The one that leads, where all of `nodes` that run are heard and follow it.
pub(crate) fn leader(told: &[(usize, Figures)], nodes: usize) -> Option<Leader> {
    let term = told.iter().map(|(_, figures)| figures.term).max()?;
    if told.len() < nodes || told.iter().any(|(_, figures)| figures.term != term) {
        return None;
    }
    let leads = told.iter().find(|(_, figures)| figures.leading)?;
    Some(Leader { place: leads.0, figures: leads.1 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leader_is_whom_all_follow() {
        let follows = |term| Figures { term, ..Figures::default() };
        let leads = |term| Figures { leading: true, ..follows(term) };
        let found = leader(&[(0, follows(2)), (1, leads(2)), (2, follows(2))], 3).expect("a leader");
        assert_eq!((found.place, found.figures.term), (1, 2));
        assert!(leader(&[(0, follows(2)), (1, leads(2))], 3).is_none(), "one is not heard");
        assert!(leader(&[(0, follows(3)), (1, leads(2)), (2, follows(2))], 3).is_none(), "one knows better");
        assert!(leader(&[(0, follows(2)), (2, follows(2))], 2).is_none(), "nobody leads");
        assert!(leader(&[], 0).is_none());
    }
}
