//! Links between nodes that go through this process, so that they can be slow: what comes in is passed on in order, each
//! piece a while later. Every node says that peers reach it at the address of its proxy.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::dice::Dice;
use crate::poll::due;
use crate::switch::{link_address, node_address};

/// The port for peers.
const PORT: u16 = 50_001;
/// Pieces on their way on one connection, each way.
const PIECES: usize = 256;
/// The largest of them, in bytes.
const PIECE: usize = 16 << 10;

/// How slow links are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Delay {
    /// The least, each way.
    pub least: Duration,
    /// The most.
    pub most: Duration,
}

/// The proxies of all nodes. They end when this is dropped.
#[derive(Debug)]
pub struct Links {
    shared: Arc<Shared>,
    // Ends the tasks.
    _runtime: Runtime,
}

#[derive(Debug)]
struct Shared {
    delay: Mutex<Delay>,
    dice: Mutex<Dice>,
    delayed: AtomicU64,
}

impl Links {
    /// A proxy for each of so many nodes.
    ///
    /// # Errors
    /// Where one can't listen.
    pub fn start(nodes: usize, seed: u64) -> anyhow::Result<Self> {
        let shared = Arc::new(Shared {
            delay: Mutex::new(Delay::default()),
            dice: Mutex::new(Dice::new(seed)),
            delayed: AtomicU64::new(0),
        });
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        for number in 0..nodes {
            let from = SocketAddr::from((link_address(number), PORT));
            let listener = runtime.block_on(TcpListener::bind(from)).with_context(|| format!("listen on {from}"))?;
            runtime.spawn(serve(listener, number, Arc::clone(&shared)));
        }
        Ok(Self { shared, _runtime: runtime })
    }

    /// From now on each piece waits so long; nothing overtakes.
    pub fn delay(&self, delay: Delay) {
        *lock(&self.shared.delay) = delay;
    }

    /// How many pieces had to wait so far.
    pub fn delayed(&self) -> u64 {
        self.shared.delayed.load(Ordering::Relaxed)
    }
}

impl Shared {
    /// When a piece that has come now goes on.
    fn goes_on(&self) -> Instant {
        let delay = *lock(&self.delay);
        if delay.most.is_zero() {
            return Instant::now();
        }
        self.delayed.fetch_add(1, Ordering::Relaxed);
        Instant::now() + lock(&self.dice).between(delay.least, delay.most)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes connections to a node for as long as the drill goes on.
async fn serve(listener: TcpListener, number: usize, shared: Arc<Shared>) {
    while let Ok((near, peer)) = listener.accept().await {
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            // A node that is down refuses: then the caller is hung up on.
            let Ok(far) = connect(number, caller(peer)).await else { return };
            let (near_in, near_out) = near.into_split();
            let (far_in, far_out) = far.into_split();
            tokio::join!(pass(near_in, far_out, &shared), pass(far_in, near_out, &shared));
        });
    }
}

/// The address that a node's calls come from, so that rules can tell nodes apart.
fn caller(peer: SocketAddr) -> Ipv4Addr {
    let number = (0..26).find(|number| peer.ip() == node_address(*number));
    number.map_or(link_address(0), link_address)
}

async fn connect(number: usize, from: Ipv4Addr) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::from((from, 0)))?;
    let stream = socket.connect(SocketAddr::from((node_address(number), PORT))).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Passes on what comes, one way, until one side hangs up.
async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, shared: &Shared) {
    let (sender, mut waiting) = mpsc::channel::<(Instant, Vec<u8>)>(PIECES);
    let reading = async move {
        let mut piece = vec![0; PIECE];
        let mut last = Instant::now();
        while let Ok(read @ 1..) = from.read(&mut piece).await {
            // Nothing overtakes.
            last = last.max(shared.goes_on());
            if sender.send((last, piece[..read].to_vec())).await.is_err() {
                return;
            }
        }
    };
    let writing = async move {
        while let Some((at, piece)) = waiting.recv().await {
            due(at).await;
            if to.write_all(&piece).await.is_err() {
                return;
            }
        }
        let _ = to.shutdown().await;
    };
    tokio::join!(reading, writing);
}
