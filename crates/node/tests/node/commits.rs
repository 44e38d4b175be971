//! Atomic commits at the leader: what it refuses without a log entry, and what it leaves to the log.

use bytes::Bytes;
use ticketrail_core::command::{Ack, Commit, Content, Enqueue, QueueSettings, Settle, Verdict};
use ticketrail_core::query::Delivery;
use ticketrail_core::reply::{Part, PartRefused};
use ticketrail_core::{Command, Rejection, RequestId};
use ticketrail_node::call::{CallError, Done};

use crate::rig::{Rig, enqueued, queue};

/// An atomic commit that acks `acked` and enqueues a small message on the queue of each name.
fn commit(acked: &[&Delivery], names: &[&str]) -> Command {
    let mut commit = Commit { atomic: true, auto_create: true, ..Commit::default() };
    for name in names {
        let known = commit.queues.iter().position(|known| known.name == *name);
        let number = known.unwrap_or_else(|| {
            commit.queues.push(queue(name));
            commit.queues.len() - 1
        });
        let message = Some(Content { body: Bytes::from_static(b"x"), ..Content::default() });
        commit.enqueue.push(Enqueue { queue: number as u32, message, ..Enqueue::default() });
    }
    for delivery in acked {
        commit.settle.push(Settle { token: delivery.token.clone(), verdict: Some(Verdict::Ack(Ack::default())) });
    }
    Command::Commit(commit)
}

/// The part that is refused because its queue is full, and what that queue held.
fn full(outcome: Result<Done, CallError>) -> (Option<Part>, u64) {
    let Err(CallError::Rejected(Rejection::PartRefused(PartRefused { part, why: Some(why) }))) = &outcome else {
        panic!("expected a refused part, but got {outcome:?}");
    };
    match &why.rejection {
        Some(Rejection::Full(full)) => (*part, full.held),
        other => panic!("expected a full queue, but got {other:?}"),
    }
}

#[tokio::test]
async fn what_cannot_fit_is_refused_without_a_log_entry() {
    let rig = Rig::start().await;
    rig.create("orders", QueueSettings { max_depth: Some(2), ..QueueSettings::default() }).await;
    rig.enqueue("orders", "one").await;
    rig.create("mail", QueueSettings::default()).await;
    let before = rig.handle.status().last_log_index;
    // The first on "orders" would fit; the second would not.
    let refused = full(rig.call(commit(&[], &["mail", "orders", "orders"])).await);
    assert_eq!(refused, (Some(Part::Enqueue(2)), 2));
    assert_eq!(rig.handle.status().last_log_index, before);
    assert_eq!(rig.info("mail").await.expect("the queue").stats.depth(), 0, "nothing happened");
    // Whether a queue may be made, only `apply` can tell.
    let refused = full(rig.call(commit(&[], &["post", "orders", "orders"])).await);
    assert_eq!(refused, (Some(Part::Enqueue(2)), 2));
    assert!(rig.handle.status().last_log_index > before);
    assert!(rig.info("post").await.is_none(), "nothing happened");
    rig.call(commit(&[], &["mail", "orders"])).await.expect("room for one");
    assert_eq!(full(rig.call(commit(&[], &["orders"])).await), (Some(Part::Enqueue(0)), 2));
    rig.stop().await;
}

#[tokio::test]
async fn a_commit_that_settles_is_for_the_log_to_refuse() {
    let rig = Rig::start().await;
    rig.create("orders", QueueSettings { max_depth: Some(1), ..QueueSettings::default() }).await;
    rig.enqueue("orders", "one").await;
    let got = rig.receive("orders", 0).await;
    let before = rig.handle.status().last_log_index;
    let refused = full(rig.call(commit(&[&got[0]], &["orders", "orders"])).await);
    assert_eq!(refused, (Some(Part::Enqueue(1)), 1));
    assert!(rig.handle.status().last_log_index > before);
    rig.call(commit(&[&got[0]], &["orders"])).await.expect("the place that the ack frees");
    assert_eq!(rig.info("orders").await.expect("the queue").stats.depth(), 1);
    rig.stop().await;
}

#[tokio::test]
async fn a_repeat_is_never_refused_for_what_it_did_itself() {
    let rig = Rig::start().await;
    rig.create("orders", QueueSettings { max_depth: Some(1), ..QueueSettings::default() }).await;
    let session = rig.open_session().await;
    let id = |seq| RequestId { session, seq, ..RequestId::default() };
    let first = rig.call_as(id(1), false, commit(&[], &["mail", "orders"])).await.expect("room");
    for repeat in [true, false] {
        let again = rig.call_as(id(1), repeat, commit(&[], &["mail", "orders"])).await.expect("the first outcome");
        assert!(again.reply.replayed);
        assert_eq!(enqueued(&again.reply), enqueued(&first.reply));
    }
    // One that may have been proposed before is proposed again, and the log says no.
    let before = rig.handle.status().last_log_index;
    let refused = full(rig.call_as(id(2), true, commit(&[], &["mail", "orders"])).await);
    assert_eq!(refused, (Some(Part::Enqueue(1)), 1));
    assert!(rig.handle.status().last_log_index > before);
    rig.stop().await;
}
