//! What nodes say that they want: to be let in, to be reached elsewhere, to have a vote. The leader keeps it for as long
//! as they go on saying it, and not a moment longer than it is fulfilled: a node may lose its disk, and be replaced.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::clock::Instant;
use crate::member::{Member, Members};

/// What was not said again for so long is over: a node that wants something says hello twice a second.
const SAID: Duration = Duration::from_secs(3);

/// What a node said that it wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wish {
    pub(crate) member: Member,
    pub(crate) wants_vote: bool,
    /// Whether it was a member: where it is none any more, it was removed.
    pub(crate) was_member: bool,
}

impl Wish {
    fn is_fulfilled(&self, id: u64, members: &Members) -> bool {
        members.nodes.get(&id) == Some(&self.member) && (members.is_voter(id) || !self.wants_vote)
    }
}

/// Wishes by the Raft ids of those who said them.
#[derive(Default)]
pub(crate) struct Wishes {
    said: Mutex<BTreeMap<u64, (Instant, Wish)>>,
    came: Notify,
}

impl Wishes {
    /// Takes note of what `id` wants.
    pub(super) fn say(&self, id: u64, wish: Wish, members: &Members, now: Instant) {
        let mut said = self.said.lock();
        if wish.is_fulfilled(id, members) {
            said.remove(&id);
        } else {
            said.insert(id, (now, wish));
            drop(said);
            self.came.notify_one();
        }
    }

    /// What is still to be done, in the order of the ids. What is fulfilled or over is forgotten, and what comes of members
    /// that were removed.
    pub(super) fn open(&self, members: &Members, now: Instant) -> Vec<(u64, Wish)> {
        let mut said = self.said.lock();
        said.retain(|id, (at, wish)| {
            let is_member = members.nodes.contains_key(id);
            let was_removed = wish.was_member && !is_member;
            wish.was_member |= is_member;
            !was_removed && !wish.is_fulfilled(*id, members) && counts(*at, now)
        });
        said.iter().map(|(id, (_, wish))| (*id, wish.clone())).collect()
    }

    /// Whether `id` has said lately that it wants something.
    pub(super) fn is_said_by(&self, id: u64, now: Instant) -> bool {
        self.said.lock().get(&id).is_some_and(|(at, _)| counts(*at, now))
    }

    /// Forgets all of them.
    pub(super) fn clear(&self) {
        self.said.lock().clear();
    }

    /// Waits until one comes.
    pub(super) async fn come(&self) {
        self.came.notified().await;
    }
}

/// Whether what was said at `at` still counts.
fn counts(at: Instant, now: Instant) -> bool {
    now.saturating_duration_since(at) <= SAID
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn member(name: &str) -> Member {
        Member { name: name.to_owned(), peer_address: format!("{name}:50001"), client_address: String::new() }
    }

    fn wish(was_member: bool) -> Wish {
        Wish { member: member("rail-1"), wants_vote: true, was_member }
    }

    /// Nodes 1 and 3, and the others named.
    fn members(voters: &[u64], learners: &[u64]) -> Members {
        let voters: BTreeSet<u64> = [1, 3].iter().chain(voters).copied().collect();
        let nodes = voters.iter().chain(learners).map(|id| match id {
            1 => (1, member("rail-0")),
            3 => (3, member("rail-2")),
            id => (*id, member("rail-1")),
        });
        Members { nodes: nodes.collect(), voters: vec![voters], committed: true, at: None }
    }

    #[test]
    fn a_newcomer_wants_something_until_it_has_its_vote() {
        let (wishes, now) = (Wishes::default(), crate::clock::monotonic());
        wishes.say(187, wish(false), &members(&[], &[]), now);
        assert_eq!(wishes.open(&members(&[], &[]), now), [(187, wish(false))]);
        assert_eq!(wishes.open(&members(&[], &[187]), now), [(187, wish(true))], "it has no vote yet");
        assert_eq!(wishes.open(&members(&[187], &[]), now), []);
        // Simulated seeds 416, 1400 and 1777: it loses its disk before its next hello, and 234 takes its place. It would
        // have been let in and removed in turns for good.
        assert_eq!(wishes.open(&members(&[234], &[]), now), []);
    }

    #[test]
    fn what_is_not_said_again_is_over() {
        let (wishes, now) = (Wishes::default(), crate::clock::monotonic());
        wishes.say(187, wish(false), &members(&[], &[]), now);
        assert!(wishes.is_said_by(187, now + SAID));
        let later = now + SAID + Duration::from_millis(1);
        assert!(!wishes.is_said_by(187, later));
        assert_eq!(wishes.open(&members(&[], &[]), later), []);
    }

    #[test]
    fn a_member_that_was_removed_is_not_let_in_again() {
        let (wishes, now) = (Wishes::default(), crate::clock::monotonic());
        wishes.say(187, wish(false), &members(&[], &[]), now);
        assert_eq!(wishes.open(&members(&[], &[187]), now).len(), 1);
        assert_eq!(wishes.open(&members(&[], &[]), now), []);
    }

    #[test]
    fn a_member_that_moves_says_so() {
        let (wishes, now) = (Wishes::default(), crate::clock::monotonic());
        let moved =
            Wish { member: Member { peer_address: "elsewhere:50001".into(), ..member("rail-1") }, ..wish(true) };
        wishes.say(187, moved.clone(), &members(&[187], &[]), now);
        assert_eq!(wishes.open(&members(&[187], &[]), now), [(187, moved)]);
        wishes.say(187, wish(true), &members(&[187], &[]), now);
        assert_eq!(wishes.open(&members(&[187], &[]), now), []);
    }
}
