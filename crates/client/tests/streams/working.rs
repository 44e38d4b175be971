//! Workers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ticketrail_client::{Task, TaskError};
use tokio::sync::{Semaphore, oneshot};

use crate::poll::poll;
use crate::server::{Server, State};

const LEASE: Duration = Duration::from_secs(30);

/// A shutdown that is asked for.
fn shutdown() -> (oneshot::Sender<()>, impl Future<Output = ()>) {
    let (stop, stopped) = oneshot::channel();
    (stop, async { drop(stopped.await) })
}

#[derive(Debug, serde::Deserialize)]
struct Order {
    table: u32,
}

#[tokio::test]
async fn each_outcome_of_a_handler_settles_its_message() {
    let server = Server::start(LEASE).await;
    let order = |table: u32| format!("{{\"table\": {table}}}");
    server.fill([order(1), order(2), order(3), "not json".to_owned(), order(4)]);
    let (stop, stopped) = shutdown();
    let handler = |order: Order, task: Task| async move {
        match (order.table, task.receive_count) {
            (1, _) => Ok(()),
            (2, 1) => Err(TaskError::retry("BUSY", "later")),
            (3, 1) => panic!("table {} is on fire", order.table),
            (4, _) => Err(TaskError::permanent("GONE", "no such table")),
            _ => Ok(()),
        }
    };
    let worker = server.client().queue("orders").worker().concurrency(2);
    let working = tokio::spawn(worker.run_json(handler, stopped));
    poll("all settled", || {
        let open = server.count(|state| matches!(state, State::Ready | State::Leased(_)));
        (open == 0).then_some(())
    })
    .await;
    stop.send(()).expect("a worker");
    let worked = working.await.expect("joined").expect("worked");
    assert_eq!((worked.acked, worked.retried, worked.rejected), (3, 2, 2));
    assert_eq!((worked.released, worked.lost), (0, 0));
    let mut verdicts = server.verdicts();
    verdicts.sort();
    assert_eq!(verdicts, ["ack", "ack", "ack", "reject DECODE", "reject GONE", "retry BUSY", "retry PANIC"]);
}

#[tokio::test]
async fn leases_are_extended_while_a_handler_runs_and_while_a_message_waits() {
    let lease = Duration::from_secs(1);
    let server = Server::start(lease).await;
    server.fill(["runs".to_owned(), "waits".to_owned()]);
    let (stop, stopped) = shutdown();
    let go = Arc::new(Semaphore::new(0));
    let handler = {
        let go = Arc::clone(&go);
        move |_: Task| {
            let go = Arc::clone(&go);
            async move {
                go.acquire().await.expect("open").forget();
                Ok(())
            }
        }
    };
    let worker = server.client().queue("orders").worker().concurrency(1).lease(lease);
    let working = tokio::spawn(worker.run(handler, stopped));
    // Longer than the lease of both, as the server's clock goes.
    poll("extensions", || (server.extensions() >= 8).then_some(())).await;
    go.add_permits(2);
    poll("both done", || (server.count(|state| *state == State::Acked) == 2).then_some(())).await;
    stop.send(()).expect("a worker");
    assert_eq!(working.await.expect("joined").expect("worked").acked, 2);
    assert!(server.lock().messages.values().all(|held| held.receive_count == 1), "no lease ran out");
}

#[tokio::test]
async fn a_worker_that_stops_finishes_what_runs_and_releases_what_waits() {
    let server = Server::start(LEASE).await;
    server.fill((0..20).map(|n| n.to_string()));
    let (stop, stopped) = shutdown();
    let (go, started) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicUsize::new(0)));
    let handler = {
        let (go, started) = (Arc::clone(&go), Arc::clone(&started));
        move |_: Task| {
            let (go, started) = (Arc::clone(&go), Arc::clone(&started));
            async move {
                started.fetch_add(1, Ordering::SeqCst);
                go.acquire().await.expect("open").forget();
                Ok(())
            }
        }
    };
    let worker = server.client().queue("orders").worker().concurrency(3).prefetch(1_000);
    let working = tokio::spawn(worker.run(handler, stopped));
    poll("three running", || (started.load(Ordering::SeqCst) == 3).then_some(())).await;
    poll("twice as many held", || (server.count(|state| matches!(state, State::Leased(_))) == 6).then_some(())).await;
    stop.send(()).expect("a worker");
    poll("the waiting ones released", || (server.count(|state| *state == State::Ready) == 17).then_some(())).await;
    assert!(!working.is_finished());
    go.add_permits(3);
    let worked = working.await.expect("joined").expect("worked");
    assert_eq!((worked.acked, worked.lost, started.load(Ordering::SeqCst)), (3, 0, 3));
    assert_eq!((server.most_leased(), server.count(|state| *state == State::Acked)), (6, 3));
    assert_eq!(server.verdicts(), ["release", "release", "release", "ack", "ack", "ack"]);
}

#[tokio::test]
async fn a_handler_that_does_not_end_in_time_is_dropped_and_its_message_released() {
    let server = Server::start(LEASE).await;
    server.fill(["endless".to_owned()]);
    let (stop, stopped) = shutdown();
    let started = Arc::new(AtomicUsize::new(0));
    let handler = {
        let started = Arc::clone(&started);
        move |_: Task| {
            started.fetch_add(1, Ordering::SeqCst);
            std::future::pending::<Result<(), TaskError>>()
        }
    };
    let worker = server.client().queue("orders").worker().drain(Duration::from_millis(20));
    let working = tokio::spawn(worker.run(handler, stopped));
    poll("a running handler", || (started.load(Ordering::SeqCst) == 1).then_some(())).await;
    stop.send(()).expect("a worker");
    let worked = working.await.expect("joined").expect("worked");
    assert_eq!((worked.released, server.verdicts()), (1, vec!["release".to_owned()]));
}

#[tokio::test]
async fn what_is_unavailable_counts_nothing_and_holds_the_place() {
    let server = Server::start(LEASE).await;
    server.fill(["x".to_owned()]);
    let (stop, stopped) = shutdown();
    let calls = Arc::new(AtomicUsize::new(0));
    let handler = {
        let calls = Arc::clone(&calls);
        move |_: Task| {
            let first = calls.fetch_add(1, Ordering::SeqCst) == 0;
            async move {
                if first {
                    let pause = Some(Duration::from_millis(10));
                    return Err(TaskError::Unavailable { text: "the oven is cold".to_owned(), pause });
                }
                Ok(())
            }
        }
    };
    let working = tokio::spawn(server.client().queue("orders").worker().run(handler, stopped));
    poll("an ack", || (server.count(|state| *state == State::Acked) == 1).then_some(())).await;
    stop.send(()).expect("a worker");
    let worked = working.await.expect("joined").expect("worked");
    assert_eq!((worked.released, worked.acked, worked.retried), (1, 1, 0));
    assert_eq!(server.verdicts(), ["release", "ack"]);
}
