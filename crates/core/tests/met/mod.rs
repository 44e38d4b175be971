//! What stories meet, by name: laws over stories that meet nothing would say nothing.

use std::collections::BTreeMap;

use ticketrail_core::Rejection;
use ticketrail_core::query::DeadReason;
use ticketrail_core::reply::{Answered, CancelOutcome, Committed, EnqueueOutcome, RescheduleOutcome, SettleOutcome};

use crate::harness::{Machine, Replies};

/// All that stories should meet.
pub(crate) const ALL: [&str; 22] = [
    "blocked",
    "cancelled",
    "commits that fell",
    "dead by attempts",
    "dead by expiry",
    "dead by rejection",
    "dead by their group",
    "dropped",
    "duplicates",
    "expired",
    "ids used again",
    "lines blocked",
    "lines that follow",
    "no such namespace",
    "outcomes",
    "parked",
    "replays",
    "reschedules of nothing",
    "shed",
    "taken for good",
    "too late",
    "would wait too long",
];

/// Counts what an entry and the state after it show.
pub(crate) fn count(machine: &Machine, replies: &Replies, seen: &mut BTreeMap<&'static str, u64>) {
    let mut add = |name, times: u64| *seen.entry(name).or_default() += times;
    let mut refusals: Vec<Rejection> = Vec::new();
    for reply in replies {
        match reply {
            Err(rejection) => refusals.push(rejection.clone()),
            Ok(reply) => {
                add("replays", u64::from(reply.replayed));
                match &reply.answered {
                    Some(Answered::Received(received)) => add("taken for good", received.taken.len() as u64),
                    Some(Answered::Committed(committed)) => refusals.extend(refused_parts(committed)),
                    Some(_) | None => {}
                }
            }
        }
    }
    for rejection in refusals {
        if let Some(name) = name_of(&rejection) {
            add(name, 1);
        }
    }
    for queue in &machine.model.queues {
        let stats = queue.stats();
        for (name, times) in [
            ("expired", stats.expired_dropped),
            ("cancelled", stats.cancelled),
            ("dropped", stats.dropped),
            ("duplicates", stats.duplicates),
            ("lines blocked", stats.groups_blocked),
            ("outcomes", stats.retained),
            ("parked", u64::from(stats.oldest_parked_at.is_some())),
            ("blocked", stats.blocked),
            ("lines that follow", queue.doomed_groups.len() as u64),
        ] {
            add(name, times);
        }
        for message in &queue.messages {
            let Some(dead) = &message.dead_letter else { continue };
            let name = match dead.reason {
                DeadReason::Attempts => "dead by attempts",
                DeadReason::Rejected => "dead by rejection",
                DeadReason::Expired => "dead by expiry",
                DeadReason::Group => "dead by their group",
            };
            add(name, 1);
        }
    }
}

/// Why parts of a commit were refused.
fn refused_parts(committed: &Committed) -> Vec<Rejection> {
    let settled = committed.settled.iter().filter_map(|part| match &part.outcome {
        Some(SettleOutcome::Rejected(why)) => why.rejection.clone(),
        Some(_) | None => None,
    });
    let cancelled = committed.cancelled.iter().filter_map(|part| match &part.outcome {
        Some(CancelOutcome::Rejected(why)) => why.rejection.clone(),
        Some(_) | None => None,
    });
    let rescheduled = committed.rescheduled.iter().filter_map(|part| match &part.outcome {
        Some(RescheduleOutcome::Rejected(why)) => why.rejection.clone(),
        Some(_) | None => None,
    });
    let enqueued = committed.enqueued.iter().filter_map(|part| match &part.outcome {
        Some(EnqueueOutcome::Rejected(why)) => why.rejection.clone(),
        Some(_) | None => None,
    });
    settled.chain(cancelled).chain(rescheduled).chain(enqueued).collect()
}

fn name_of(rejection: &Rejection) -> Option<&'static str> {
    let of_bound = |name: &str| matches!(rejection, Rejection::Full(full) if full.bound == name);
    let names = [
        ("too late", matches!(rejection, Rejection::TooLate(_))),
        ("reschedules of nothing", matches!(rejection, Rejection::MessageNotFound(_))),
        ("commits that fell", matches!(rejection, Rejection::PartRefused(_))),
        ("ids used again", matches!(rejection, Rejection::RequestIdReused(_))),
        ("no such namespace", matches!(rejection, Rejection::NamespaceNotFound(_))),
        ("shed", of_bound("shed")),
        ("would wait too long", of_bound("max_wait")),
    ];
    names.into_iter().find(|(_, is)| *is).map(|(name, _)| name)
}
