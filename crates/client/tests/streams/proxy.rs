//! A connection that is cut when so many bytes have come back from the server, or on which nothing comes through any more.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// A way to a server.
#[derive(Clone)]
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    cuts: Arc<Mutex<VecDeque<u64>>>,
    stalled: watch::Sender<bool>,
}

impl Proxy {
    /// A way to `target`. Each connection is cut after as many bytes of answers as `cuts` says; later ones are not.
    pub(crate) async fn to(target: SocketAddr, cuts: impl IntoIterator<Item = u64>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let cuts: Arc<Mutex<VecDeque<u64>>> = Arc::new(Mutex::new(cuts.into_iter().collect()));
        let stalled = watch::Sender::new(false);
        let proxy = Self { address, cuts: cuts.clone(), stalled: stalled.clone() };
        // Ends with the test's runtime.
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let cut = cuts.lock().expect("cuts").pop_front();
                tokio::spawn(pass(client, target, cut, stalled.subscribe()));
            }
        });
        proxy
    }

    /// From now on nothing comes through, and all connections stay: the server is stopped, or packets are dropped.
    pub(crate) fn stall(&self) {
        self.stalled.send_replace(true);
    }

    /// How many connections are still to be cut.
    pub(crate) fn cuts_left(&self) -> usize {
        self.cuts.lock().expect("cuts").len()
    }
}

async fn pass(mut client: TcpStream, target: SocketAddr, cut: Option<u64>, mut stalled: watch::Receiver<bool>) {
    let Ok(mut server) = TcpStream::connect(target).await else { return };
    let (mut from_client, mut to_client) = client.split();
    let (from_server, mut to_server) = server.split();
    let mut answers = from_server.take(cut.unwrap_or(u64::MAX));
    let stalled = async { stalled.wait_for(|stalled| *stalled).await.is_ok() };
    let stalled = tokio::select! {
        _ = copy(&mut from_client, &mut to_server) => false,
        _ = copy(&mut answers, &mut to_client) => false,
        stalled = stalled => stalled,
    };
    if stalled {
        std::future::pending::<()>().await;
    }
    let _ = to_client.shutdown().await;
}
