//! Bugs to plant, one at a time, so that a test of the whole can show that it would catch them.
//!
//! Each stands in the code at the place where it could have been made, behind [`is_planted`]. Without the feature
//! `planted` that is `false` at compile time, and nothing can plant one. The feature is for a build of its own: it refuses
//! to be compiled without debug assertions, so no release can contain it.

#[cfg(all(feature = "planted", not(debug_assertions)))]
compile_error!("expected debug assertions with the feature `planted`: it is for tests, never for a release");

/// Declares the bugs: variant, name, what it does.
macro_rules! bugs {
    ($($bug:ident $name:literal $about:literal,)+) => {
        /// A bug to plant.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Bug {
            $(#[doc = $about] $bug,)+
        }

        impl Bug {
            /// All of them.
            pub const ALL: &'static [Bug] = &[$(Bug::$bug),+];

            /// Its name, as commands take it.
            pub fn name(self) -> &'static str {
                match self { $(Bug::$bug => $name,)+ }
            }

            /// What is wrong with it in place.
            pub fn about(self) -> &'static str {
                match self { $(Bug::$bug => $about,)+ }
            }
        }
    };
}

bugs! {
    // In `core`.
    AcceptExpiredToken "accept-expired-token" "a lease past its deadline still settles, until it has been ended",
    AcceptOldToken "accept-old-token" "the token of an earlier lease settles the one that followed it",
    KeepReceiveCount "keep-receive-count" "a lease granted after an expiry does not raise the receive count",
    DeadLetterLate "dead-letter-late" "a message is dead-lettered after one failure too many",
    AckUndone "ack-undone" "the ack of a message that was delivered before is answered, and the message stays",
    ChildLost "child-lost" "what one commit in eight enqueues is put off for a year",
    RepeatRunsAgain "repeat-runs-again" "a request that comes again is carried out again",
    EarlyTimer "early-timer" "delayed messages are ready up to a second and a half early",
    ExtensionForgotten "extension-forgotten" "a lease that was extended ends when it would have ended before",
    ReleaseCounts "release-counts" "a message given back counts as failed",
    LeaseClockJumps "lease-clock-jumps" "the lease clock goes on over a change of leader by what cluster time does",
    PriorityUpsideDown "priority-upside-down" "the lowest priority that has something ready is served first",
    GroupForgotten "group-forgotten" "whoever joins the line of a group is its head",
    DedupForgotten "dedup-forgotten" "a dedup id is forgotten when its message ends",
    ExpiredDelivered "expired-delivered" "a receive delivers messages whose time to live is over",
    CancelUndone "cancel-undone" "a cancel of a delayed message is answered, and the message stays",
    AutoAckKept "auto-ack-kept" "a message received with auto-ack stays leased, and comes again",
    // In `node`, where it speaks to its log.
    VoteNotSynced "vote-not-synced" "a vote is answered before it is durable",
    AnswerBeforeSync "answer-before-sync" "entries count as appended before they are durable",
    // In `storage`.
    SnapshotWithoutSessions "snapshot-without-sessions" "a snapshot lacks the outcomes of requests",
    SnapshotLacksRecords "snapshot-lacks-records" "a snapshot lacks one record in fifty",
    // In `node`.
    DoubtForgotten "doubt-forgotten" "a request whose entry may be in the log is proposed again without its id",
    ReadWithoutIndex "read-without-index" "a leader answers reads without asking whether it still leads",
    WallClockLeads "wall-clock-leads" "a new leader begins its time with its own wall clock alone",
}

/// Plants a bug, and takes the one out that was planted before.
#[cfg(feature = "planted")]
pub fn plant(bug: Bug) {
    switch::ON.store(switch::number(bug), std::sync::atomic::Ordering::SeqCst);
}

/// Whether a bug is planted.
#[cfg(feature = "planted")]
pub fn is_planted(bug: Bug) -> bool {
    switch::ON.load(std::sync::atomic::Ordering::SeqCst) == switch::number(bug)
}

/// Whether a bug is planted: never, without the feature `planted`.
#[cfg(not(feature = "planted"))]
#[inline(always)]
pub const fn is_planted(_: Bug) -> bool {
    false
}

#[cfg(feature = "planted")]
mod switch {
    use std::sync::atomic::AtomicU8;

    use super::Bug;

    /// The number of the bug that is planted; 0: none. A process has at most one.
    pub(super) static ON: AtomicU8 = AtomicU8::new(0);

    #[expect(clippy::as_conversions, clippy::arithmetic_side_effects, reason = "there are fewer than 255 bugs")]
    pub(super) fn number(bug: Bug) -> u8 {
        bug as u8 + 1
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_bug_has_a_name_of_its_own_and_none_is_planted() {
        let names: BTreeSet<_> = Bug::ALL.iter().map(|bug| bug.name()).collect();
        assert_eq!(names.len(), Bug::ALL.len());
        assert!(Bug::ALL.iter().all(|bug| !is_planted(*bug) && !bug.about().is_empty()));
    }
}
