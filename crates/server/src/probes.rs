//! Whether a server lives, and whether it is ready for clients: as a probe asks.
//!
//! Liveness never depends on other nodes: a server that waits for a quorum must not be restarted for it. Readiness is
//! about this server: whether calls that come here are served, and whether a rolling restart may go on to the next one.

use std::fmt::Write as _;

use ticketrail_node::{NodeStatus, Role};

use crate::phase::Phase;

/// Entries that a ready node may have left to apply: at full load about a second.
const LAG_ENTRIES: u64 = 2_000;

/// What the probes look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) stage: Stage,
    pub(crate) node: Option<NodeFacts>,
}

/// How far the server is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Doing this.
    Starting(&'static str),
    Running,
    Stopping,
}

/// What the probes look at of the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NodeFacts {
    pub(crate) broken: Option<String>,
    pub(crate) draining: bool,
    pub(crate) role: Role,
    /// Whether it leads and has applied what came before its term.
    pub(crate) leading: bool,
    pub(crate) leader: Option<u64>,
    /// Whether it hears nothing of those that it needs.
    pub(crate) cut_off: bool,
    pub(crate) committed: Option<u64>,
    pub(crate) applied: Option<u64>,
}

impl Facts {
    /// What a server in `phase` tells.
    pub(crate) fn of(phase: &Phase) -> Self {
        let stage = match phase {
            Phase::Starting(what) => Stage::Starting(what),
            Phase::Running(_) => Stage::Running,
            Phase::Stopping(_) | Phase::Stopped => Stage::Stopping,
        };
        Self { stage, node: phase.running().map(|running| NodeFacts::from(running.node.status())) }
    }
}

impl From<NodeStatus> for NodeFacts {
    fn from(status: NodeStatus) -> Self {
        Self {
            broken: status.broken,
            draining: status.draining,
            role: status.role,
            leading: status.leading,
            leader: status.leader,
            cut_off: status.cut_off,
            committed: status.committed_index,
            applied: status.applied_index,
        }
    }
}

/// One check and, where it fails, why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Check {
    pub(crate) name: &'static str,
    pub(crate) failure: Option<String>,
}

/// What a probe found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Verdict {
    checks: Vec<Check>,
}

/// Whether the process lives. That it answers at all is half of it.
pub(crate) fn live(facts: &Facts) -> Verdict {
    Verdict { checks: vec![healthy(facts)] }
}

/// Whether calls that come here are served.
pub(crate) fn ready(facts: &Facts) -> Verdict {
    let mut checks = vec![started(facts), not_stopping(facts), healthy(facts)];
    if let Some(node) = &facts.node {
        checks.extend([member(node), leader(node), caught_up(node)]);
    }
    Verdict { checks }
}

fn check(name: &'static str, failure: Option<impl Into<String>>) -> Check {
    Check { name, failure: failure.map(Into::into) }
}

fn started(facts: &Facts) -> Check {
    let failure = match (facts.stage, &facts.node) {
        (Stage::Starting(what), _) => Some(format!("expected a running node, but it is still {what}")),
        (Stage::Running | Stage::Stopping, None) => Some("expected a running node, but it has ended".to_owned()),
        (Stage::Running | Stage::Stopping, Some(_)) => None,
    };
    check("started", failure)
}

fn not_stopping(facts: &Facts) -> Check {
    let draining = facts.node.as_ref().is_some_and(|node| node.draining);
    let stops = facts.stage == Stage::Stopping || draining;
    check("not-stopping", stops.then_some("expected a server that stays, but this one stops"))
}

fn healthy(facts: &Facts) -> Check {
    let broken = facts.node.as_ref().and_then(|node| node.broken.as_ref());
    check("healthy", broken.map(|reason| format!("expected a healthy node, but {reason}")))
}

/// A learner serves clients, but does not count: a rolling restart that went on now could cost the quorum.
fn member(node: &NodeFacts) -> Check {
    let failure = match node.role {
        Role::Learner => Some("expected a voter, but this node is still a learner"),
        Role::Stopped => Some("expected a voter, but this node's Raft has stopped"),
        Role::Follower | Role::Candidate | Role::Leader => None,
    };
    check("voter", failure)
}

fn leader(node: &NodeFacts) -> Check {
    let failure = match (node.role, node.leader) {
        (Role::Leader, _) if node.cut_off => {
            Some("expected a leader with a quorum, but none has answered it for a while")
        }
        (Role::Learner | Role::Follower | Role::Candidate, Some(_)) if node.cut_off => {
            Some("expected a leader, but none was heard for a while")
        }
        (Role::Leader, _) if node.leading => None,
        (Role::Leader, _) => Some("expected a leader that serves, but this one is still applying what came before it"),
        (Role::Learner | Role::Follower | Role::Candidate | Role::Stopped, Some(_)) => None,
        (Role::Learner | Role::Follower | Role::Candidate | Role::Stopped, None) => {
            Some("expected a leader, but none is known")
        }
    };
    check("leader", failure)
}

fn caught_up(node: &NodeFacts) -> Check {
    let lag = node.committed.unwrap_or(0).saturating_sub(node.applied.unwrap_or(0));
    let failure = (lag > LAG_ENTRIES)
        .then(|| format!("expected at most {LAG_ENTRIES} entries left to apply, but there are {lag}"));
    check("caught-up", failure)
}

impl Verdict {
    /// Whether all checks passed.
    pub(crate) fn holds(&self) -> bool {
        self.checks.iter().all(|check| check.failure.is_none())
    }

    /// For people: `word` where all passed, else a line for each failure; `verbose`: a line for each check.
    pub(crate) fn text(&self, word: &str, verbose: bool) -> String {
        let mut text = String::new();
        for Check { name, failure } in &self.checks {
            // Writing to a string does not fail.
            let _ = match failure {
                Some(failure) => writeln!(text, "[-] {name}: {failure}"),
                None if verbose => writeln!(text, "[+] {name}"),
                None => Ok(()),
            };
        }
        let not = if self.holds() { "" } else { "not " };
        let _ = writeln!(text, "{not}{word}");
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn follower() -> NodeFacts {
        NodeFacts {
            broken: None,
            draining: false,
            role: Role::Follower,
            leading: false,
            leader: Some(2),
            cut_off: false,
            committed: Some(5_000),
            applied: Some(4_990),
        }
    }

    fn running(node: NodeFacts) -> Facts {
        Facts { stage: Stage::Running, node: Some(node) }
    }

    fn failed(facts: &Facts) -> Vec<&'static str> {
        ready(facts).checks.iter().filter(|check| check.failure.is_some()).map(|check| check.name).collect()
    }

    #[test]
    fn each_reason_makes_a_node_unready_and_is_named() {
        let leading = NodeFacts { role: Role::Leader, leading: true, leader: Some(1), ..follower() };
        let rows: [(NodeFacts, &[&str]); 12] = [
            (follower(), &[]),
            (leading.clone(), &[]),
            (NodeFacts { leading: false, ..leading.clone() }, &["leader"]),
            (NodeFacts { cut_off: true, ..leading.clone() }, &["leader"]),
            (NodeFacts { cut_off: true, ..follower() }, &["leader"]),
            (NodeFacts { leader: None, ..follower() }, &["leader"]),
            (NodeFacts { leader: None, role: Role::Candidate, ..follower() }, &["leader"]),
            (NodeFacts { role: Role::Learner, ..follower() }, &["voter"]),
            (NodeFacts { role: Role::Stopped, leader: None, ..follower() }, &["voter", "leader"]),
            (NodeFacts { committed: Some(7_000), ..follower() }, &["caught-up"]),
            (NodeFacts { draining: true, ..leading }, &["not-stopping"]),
            (NodeFacts { broken: Some("its disk is gone".into()), ..follower() }, &["healthy"]),
        ];
        for (node, expected) in rows {
            assert_eq!(failed(&running(node.clone())), expected, "{node:?}");
        }
    }

    #[test]
    fn a_server_without_a_node_is_not_ready() {
        assert_eq!(failed(&Facts { stage: Stage::Starting("opening its data directory"), node: None }), ["started"]);
        assert_eq!(failed(&Facts { stage: Stage::Stopping, node: None }), ["started", "not-stopping"]);
        assert_eq!(failed(&Facts { stage: Stage::Stopping, node: Some(follower()) }), ["not-stopping"]);
    }

    #[test]
    fn liveness_depends_on_nothing_but_this_process() {
        let alone = NodeFacts { leader: None, role: Role::Candidate, committed: Some(1 << 40), ..follower() };
        let draining = NodeFacts { draining: true, ..alone.clone() };
        let starting = Facts { stage: Stage::Starting("opening its data directory"), node: None };
        for facts in [starting, running(alone.clone()), running(draining)] {
            assert!(live(&facts).holds(), "{facts:?}");
            assert!(!ready(&facts).holds(), "{facts:?}");
        }
        let broken = running(NodeFacts { broken: Some("its disk is gone".into()), ..alone });
        assert_eq!(
            live(&broken).text("live", false),
            "[-] healthy: expected a healthy node, but its disk is gone\nnot live\n"
        );
    }

    #[test]
    fn verbose_lists_what_passed_too() {
        let verdict = ready(&running(follower()));
        assert_eq!(verdict.text("ready", false), "ready\n");
        assert_eq!(
            verdict.text("ready", true),
            "[+] started\n[+] not-stopping\n[+] healthy\n[+] voter\n[+] leader\n[+] caught-up\nready\n"
        );
    }
}
