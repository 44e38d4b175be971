//! The drills, one file each: what is broken, what must hold, what was measured.

mod backlog;
mod bad_links;
mod black_hole;
mod cuts;
mod damage;
mod full_disk;
mod gray_node;
mod herds;
mod isolated_leader;
mod kill_all;
mod kill_leader;
mod membership;
mod power_in_turn;
mod rolling_restart;
mod slow_disk;
mod stopped_leader;
mod stopped_worker;
mod sync_error;
mod wiped_disk;
mod wrong_disks;

use crate::scene::Scene;
use crate::tools::Tool;
use crate::world::Setup;

/// A drill.
#[derive(Debug)]
pub struct Drill {
    /// Its number in the plan of drills.
    pub number: u32,
    /// Its name on the command line.
    pub name: &'static str,
    /// What is broken.
    pub broken: &'static str,
    /// What must hold, beside what must hold in each drill.
    pub holds: &'static str,
    /// The programs that it needs beside the usual ones.
    pub tools: &'static [Tool],
    /// What world it needs.
    pub setup: Setup,
    /// Does it.
    pub run: fn(&mut Scene) -> anyhow::Result<()>,
}

/// What must hold in each drill.
const ALWAYS: &str = "No message that was acknowledged is lost or doubled, none is finished twice or delivered after its ack, each \
                      replica holds the same, and each log replays to the state beside it.";

/// All of them, in the order in which they are run.
pub static ALL: &[Drill] = &[
    kill_leader::DRILL,
    kill_all::DRILL,
    stopped_worker::DRILL,
    isolated_leader::DRILL,
    full_disk::DRILL,
    wiped_disk::DRILL,
    rolling_restart::DRILL,
    stopped_leader::DRILL,
    cuts::DRILL,
    bad_links::DRILL,
    gray_node::DRILL,
    slow_disk::DRILL,
    sync_error::DRILL,
    damage::DRILL,
    wrong_disks::DRILL,
    membership::DRILL,
    black_hole::DRILL,
    backlog::DRILL,
    herds::DRILL,
    power_in_turn::DRILL,
];

/// The drill called `name`.
pub fn named(name: &str) -> Option<&'static Drill> {
    ALL.iter().find(|drill| drill.name == name)
}

/// What `--list` prints.
pub fn list() -> String {
    let mut text = String::new();
    for drill in ALL {
        text.push_str(&format!("{:>3}  {:<18} {}\n", drill.number, drill.name, drill.broken));
    }
    text.push_str(&format!("\nIn each: {ALWAYS}\n"));
    text
}

impl Drill {
    /// What it says when it begins.
    pub fn introduction(&self) -> String {
        format!("drill {}, {}\n  broken: {}\n  must hold: {} {ALWAYS}", self.number, self.name, self.broken, self.holds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drills_have_names_and_numbers_of_their_own_and_say_what_they_are_about() {
        for (at, drill) in ALL.iter().enumerate() {
            assert!(ALL[..at].iter().all(|other| other.name != drill.name), "{}", drill.name);
            assert!(list().contains(&format!(" {} ", drill.name)));
            assert!(drill.broken.ends_with('.') && drill.holds.ends_with('.'), "{}", drill.name);
            assert_eq!(named(drill.name).map(|drill| drill.number), Some(drill.number));
        }
        assert!(named("none").is_none());
    }
}
