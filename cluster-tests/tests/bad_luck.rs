//! What goes wrong around one node: a full disk, a directory or a port in use, a client that vanishes, an orderly stop.

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, ensure};
use ticketrail_client::{Client, Error, Reason};
use ticketrail_cluster_tests::faults::{SmallDisk, needs_root};
use ticketrail_cluster_tests::poll::poll_async;
use ticketrail_cluster_tests::replay;
use ticketrail_cluster_tests::server::{DEADLINE, Server, rail};

fn client(server: &Server, timeout: Duration) -> anyhow::Result<Client> {
    Ok(Client::builder().address(server.url()).timeout(timeout).connect()?)
}

/// A second server on the same directory or port: it ends, says what is in the way, and the first goes on.
#[tokio::test]
async fn a_directory_and_a_port_have_one_server() -> anyhow::Result<()> {
    let (dir, other) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let mut server = Server::start(dir.path(), &[])?;
    let pid = server.child()?.id().to_string();
    let address = server.url().trim_start_matches("http://").to_owned();
    for (data_dir, listen, expected) in [
        (server.data_dir(), "127.0.0.1:0", pid.as_str()),
        (other.path().join("data"), address.as_str(), address.as_str()),
    ] {
        let output = Command::new(rail()?)
            .args(["serve", "--http-listen", "none", "--listen", listen, "--data-dir"])
            .arg(&data_dir)
            .stdin(Stdio::null())
            .output()?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(!output.status.success(), "expected a refusal, but a second server ran: {said}");
        ensure!(said.contains(expected), "expected {expected:?} in what it says, but it says: {said}");
    }
    client(&server, DEADLINE)?.queue("orders").send("still here").await?;
    ensure!(server.stop()?.success(), "expected a clean stop:\n{}", server.log());
    Ok(())
}

/// Below its mark a node refuses enqueues and settles all the same; with room again it recovers by itself.
#[tokio::test]
async fn a_disk_that_is_nearly_full_refuses_enqueues_and_recovers() -> anyhow::Result<()> {
    if !needs_root() {
        return Ok(());
    }
    let dir = tempfile::tempdir()?;
    fs::create_dir(dir.path().join("data"))?;
    let disk = SmallDisk::mount(&dir.path().join("data"), 768)?;
    let marks = ["--disk-low-bytes", "256 MiB", "--disk-critical-bytes", "16 MiB", "--ballast-bytes", "16 MiB"];
    let mut server = Server::start(dir.path(), &marks)?;
    let queue = client(&server, Duration::from_secs(2))?.queue("orders");
    let kept = queue.send("before").await?;
    let delivery = queue.receive().await?.deliveries.pop().context("expected a delivery")?;

    let filler = disk.fill(128 << 20)?;
    let refused = poll_async(DEADLINE, async || match queue.send("while full").await {
        Ok(_) => Ok(None),
        Err(error) => Ok(Some(error)),
    })
    .await?;
    ensure!(refused.reason() == Some(&Reason::DiskLow), "expected DISK_LOW, but {refused:?}");
    delivery.ack().await.context("settle while the disk is low")?;

    fs::remove_file(filler)?;
    poll_async(DEADLINE, async || Ok(queue.send("after").await.ok())).await.context("recover by itself")?;
    let gone = client(&server, DEADLINE)?.get(&kept.message_id).await;
    ensure!(matches!(gone, Err(Error::Refused(_))), "expected the settled message to be gone, but {gone:?}");
    ensure!(server.stop()?.success(), "expected a clean stop:\n{}", server.log());
    Ok(())
}

/// No room at all, under load: whatever the node does then, it loses nothing that it had acknowledged, and goes on once
/// there is room.
#[tokio::test]
async fn a_disk_without_any_room_loses_nothing() -> anyhow::Result<()> {
    if !needs_root() {
        return Ok(());
    }
    let dir = tempfile::tempdir()?;
    fs::create_dir(dir.path().join("data"))?;
    let disk = SmallDisk::mount(&dir.path().join("data"), 768)?;
    let marks = ["--disk-low-bytes", "64 MiB", "--disk-critical-bytes", "0 B", "--ballast-bytes", "0 B"];
    let mut server = Server::start(dir.path(), &marks)?;
    let queue = client(&server, Duration::from_secs(2))?.queue("orders");
    let mut acknowledged = vec![queue.send("first").await?.message_id];
    // To the last byte at once, before the marks are looked at again.
    let filler = disk.fill(0)?;
    let failed = poll_async(DEADLINE, async || match queue.send(vec![b'x'; 256 << 10]).await {
        Ok(sent) => {
            acknowledged.push(sent.message_id);
            Ok(None)
        }
        Err(error) => Ok(Some(error)),
    })
    .await?;
    fs::remove_file(filler)?;
    let mut ended = 0;
    poll_async(DEADLINE, async || {
        if server.child()?.try_wait()?.is_some() {
            ended += 1;
            server.wait()?;
            server.restart()?;
        }
        Ok(queue.send("after").await.ok())
    })
    .await
    .with_context(|| format!("go on with room again; it logged:\n{}", server.log()))?;
    println!("{} acknowledged on a full disk, then: {failed}; the node ended {ended} times", acknowledged.len() - 1);
    let reader = client(&server, DEADLINE)?;
    for id in &acknowledged {
        reader.get(id).await.with_context(|| format!("{id} was acknowledged"))?;
    }
    ensure!(server.stop()?.success(), "expected a clean stop:\n{}", server.log());
    let data_dir = server.data_dir();
    tokio::task::spawn_blocking(move || replay::check_dir(&data_dir)).await??;
    Ok(())
}

/// A client that vanishes in a long poll holds nothing: the next message goes to one that is there.
#[tokio::test]
async fn a_client_that_vanishes_in_a_long_poll_holds_nothing() -> anyhow::Result<()> {
    let dir = tempfile::tempdir()?;
    let mut server = Server::start(dir.path(), &[])?;
    let mut gone = Command::new(rail()?)
        .args(["msg", "receive", "orders", "--wait", "60s", "--address", &server.url()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let here = client(&server, DEADLINE)?;
    poll_async(DEADLINE, async || Ok((here.admin().status().await?.parked_receives == 1).then_some(()))).await?;
    ticketrail_cluster_tests::faults::kill_9(&mut gone)?;
    poll_async(DEADLINE, async || Ok((here.admin().status().await?.parked_receives == 0).then_some(()))).await?;
    here.queue("orders").send("for whoever is there").await?;
    let got = here.queue("orders").receive().await?.deliveries.pop().context("expected the message")?;
    ensure!(got.receive_count == 1, "expected a first delivery, but it is number {}", got.receive_count);
    got.ack().await?;
    ensure!(server.stop()?.success(), "expected a clean stop:\n{}", server.log());
    Ok(())
}
