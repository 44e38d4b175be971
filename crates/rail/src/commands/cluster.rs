//! `rail cluster`: who belongs to it, who leads, who comes and goes.

use clap::{Args, Subcommand};
use serde::Serialize;
use ticketrail_client::{ClusterInfo, ClusterMember};

use crate::confirm::{Sure, confirm};
use crate::connect::Connection;
use crate::exit::{Exit, Failure};
use crate::output::{self, Card, Format, Row};

#[derive(Debug, Args)]
pub(crate) struct ClusterArgs {
    #[command(flatten)]
    connection: Connection,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Show the cluster: leader, term, whether a majority is there
    Status,
    /// List the members
    #[command(visible_alias = "ls")]
    Members,
    /// Invite an empty node that waits for a cluster
    Add {
        /// Where its peers reach it
        #[arg(value_name = "HOST:PORT")]
        peer_address: String,
    },
    /// Remove a member for good: its disk is refused from then on
    Remove {
        /// Its Raft id, as `rail cluster members` shows it
        node: u64,
        #[command(flatten)]
        sure: Sure,
    },
    /// Give a member a vote
    Promote {
        /// Its Raft id
        node: u64,
    },
    /// Have another member lead
    TransferLeader {
        /// Its Raft id; the best of the others if none is given
        node: Option<u64>,
    },
}

/// The cluster in short.
#[derive(Debug, Serialize)]
struct ClusterCard {
    cluster_id: String,
    leader: Option<u64>,
    leader_name: Option<String>,
    term: u64,
    voters: usize,
    voters_alive: usize,
    learners: usize,
    changing: bool,
    answered_by: u64,
}

impl ClusterCard {
    fn new(info: &ClusterInfo) -> Self {
        let voters = || info.members.iter().filter(|member| member.voter);
        let leader = info.members.iter().find(|member| Some(member.node) == info.leader);
        Self {
            cluster_id: info.cluster_id.clone(),
            leader: info.leader,
            leader_name: leader.map(|member| member.name.clone()),
            term: info.term,
            voters: voters().count(),
            voters_alive: voters().filter(|member| member.alive).count(),
            learners: info.members.len() - voters().count(),
            changing: info.changing,
            answered_by: info.answered_by,
        }
    }

    fn has_quorum(&self) -> bool {
        self.leader.is_some() && self.voters_alive > self.voters / 2
    }
}

impl Card for ClusterCard {
    fn fields(&self) -> Vec<(&'static str, String)> {
        let leader = match (self.leader, self.leader_name.as_deref()) {
            (Some(node), Some(name)) if !name.is_empty() => format!("{node} ({name})"),
            (Some(node), _) => node.to_string(),
            (None, _) => "none known".to_owned(),
        };
        vec![
            ("cluster", self.cluster_id.clone()),
            ("leader", leader),
            ("term", self.term.to_string()),
            ("voters", format!("{} of {} alive", self.voters_alive, self.voters)),
            ("learners", self.learners.to_string()),
            ("membership", if self.changing { "changing" } else { "stable" }.to_owned()),
            ("answered by", self.answered_by.to_string()),
        ]
    }
}

/// A member in a list.
#[derive(Debug, Serialize)]
struct MemberLine {
    node: u64,
    name: String,
    role: &'static str,
    alive: bool,
    behind: Option<u64>,
    disk_low: bool,
    peer_address: String,
    client_address: String,
}

impl MemberLine {
    fn of(info: &ClusterInfo) -> Vec<Self> {
        let newest = info.members.iter().filter_map(|member| member.matched_index).max();
        let line = |member: &ClusterMember| Self {
            node: member.node,
            name: member.name.clone(),
            role: match (info.leader == Some(member.node), member.voter) {
                (true, _) => "leader",
                (false, true) => "voter",
                (false, false) => "learner",
            },
            alive: member.alive,
            behind: newest.zip(member.matched_index).map(|(newest, matched)| newest - matched),
            disk_low: member.disk_low,
            peer_address: member.peer_address.clone(),
            client_address: member.client_address.clone(),
        };
        info.members.iter().map(line).collect()
    }
}

impl Row for MemberLine {
    const COLUMNS: &'static [&'static str] = &["NODE", "NAME", "ROLE", "STATE", "BEHIND", "PEERS AT", "CLIENTS AT"];

    fn cells(&self) -> Vec<String> {
        let state = match (self.alive, self.disk_low) {
            (true, false) => "alive",
            (true, true) => "disk low",
            (false, _) => "silent",
        };
        vec![
            self.node.to_string(),
            self.name.clone(),
            self.role.to_owned(),
            state.to_owned(),
            self.behind.map(|behind| behind.to_string()).unwrap_or_default(),
            self.peer_address.clone(),
            self.client_address.clone(),
        ]
    }
}

pub(crate) async fn run(args: ClusterArgs, format: Format) -> Result<Exit, Failure> {
    let admin = args.connection.client()?.admin();
    match args.verb {
        Verb::Status => {
            let card = ClusterCard::new(&admin.cluster().await?);
            output::card(format, &card)?;
            Ok(if card.has_quorum() { Exit::Ok } else { Exit::Unavailable })
        }
        Verb::Members => {
            output::list(format, &MemberLine::of(&admin.cluster().await?))?;
            Ok(Exit::Ok)
        }
        Verb::Add { peer_address } => {
            let node = admin.add_member(&peer_address).await?;
            output::say(format!(
                "invited node {node}: it gets a vote once it has caught up; see `rail cluster members`"
            ));
            Ok(Exit::Ok)
        }
        Verb::Remove { node, sure } => {
            let name = admin.cluster().await?.members.into_iter().find(|member| member.node == node);
            let name = name.map_or_else(|| "no such member".to_owned(), |member| member.name);
            confirm(&sure, &format!("remove node {node} ({name}) for good? Its disk is refused from then on"))?;
            admin.remove_member(node).await?;
            output::say(format!("removed node {node}"));
            Ok(Exit::Ok)
        }
        Verb::Promote { node } => {
            admin.promote_member(node).await?;
            output::say(format!("node {node} votes"));
            Ok(Exit::Ok)
        }
        Verb::TransferLeader { node } => {
            let leader = admin.transfer_leader(node).await?;
            output::say(format!("node {leader} leads"));
            Ok(Exit::Ok)
        }
    }
}
