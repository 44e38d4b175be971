//! A connection that is cut when so many bytes have come back from the server.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy};
use tokio::net::{TcpListener, TcpStream};

/// A way to a server.
#[derive(Clone)]
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    cuts: Arc<Mutex<VecDeque<u64>>>,
}

impl Proxy {
    /// A way to `target`. Each connection is cut after as many bytes of answers as `cuts` says; later ones are not.
    pub(crate) async fn to(target: SocketAddr, cuts: impl IntoIterator<Item = u64>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let cuts: Arc<Mutex<VecDeque<u64>>> = Arc::new(Mutex::new(cuts.into_iter().collect()));
        let proxy = Self { address, cuts: cuts.clone() };
        // Ends with the test's runtime.
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let cut = cuts.lock().expect("cuts").pop_front();
                tokio::spawn(pass(client, target, cut));
            }
        });
        proxy
    }

    /// How many connections are still to be cut.
    pub(crate) fn cuts_left(&self) -> usize {
        self.cuts.lock().expect("cuts").len()
    }
}

async fn pass(mut client: TcpStream, target: SocketAddr, cut: Option<u64>) {
    let Ok(mut server) = TcpStream::connect(target).await else { return };
    let (mut from_client, mut to_client) = client.split();
    let (from_server, mut to_server) = server.split();
    let mut answers = from_server.take(cut.unwrap_or(u64::MAX));
    tokio::select! {
        _ = copy(&mut from_client, &mut to_server) => {}
        _ = copy(&mut answers, &mut to_client) => {}
    }
    let _ = to_client.shutdown().await;
}
