//! A network in memory: connections can be refused, held up and cut.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, ReadHalf, WriteHalf, duplex, split};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Endpoint, Uri};
use tower::service_fn;

use crate::peers::{Connector, tuned};

/// Hosts by address.
#[derive(Clone, Default)]
pub(super) struct Net(Arc<Mutex<BTreeMap<String, Host>>>);

struct Host {
    accept: mpsc::Sender<io::Result<DuplexStream>>,
    wires: Vec<Wire>,
    /// Connections ever made.
    made: usize,
}

/// A connection: what carries its bytes, and whether its answers are held up.
struct Wire {
    pumps: JoinSet<()>,
    held: watch::Sender<bool>,
}

impl Net {
    /// The connections to a new host.
    pub(super) fn listen(&self, address: &str) -> ReceiverStream<io::Result<DuplexStream>> {
        let (accept, accepted) = mpsc::channel(16);
        self.0.lock().insert(address.to_owned(), Host { accept, wires: Vec::new(), made: 0 });
        ReceiverStream::new(accepted)
    }

    /// Refuses connections to a host and cuts those that it has.
    pub(super) fn close(&self, address: &str) {
        self.0.lock().remove(address);
    }

    /// Cuts a host's connections. New ones can be made.
    pub(super) fn cut(&self, address: &str) {
        if let Some(host) = self.0.lock().get_mut(address) {
            host.wires.clear();
        }
    }

    /// Holds up what a host says on the connections that it has, or lets it go on.
    pub(super) fn hold_answers(&self, address: &str, held: bool) {
        if let Some(host) = self.0.lock().get(address) {
            for wire in &host.wires {
                wire.held.send_replace(held);
            }
        }
    }

    /// Connections ever made to a host.
    pub(super) fn connections(&self, address: &str) -> usize {
        self.0.lock().get(address).map_or(0, |host| host.made)
    }

    /// Connects to hosts of this network.
    pub(super) fn connector(&self) -> Connector {
        let net = self.clone();
        Connector::new(move |address| {
            let (net, address) = (net.clone(), address.to_owned());
            let dial = service_fn(move |_: Uri| {
                let connection = net.dial(&address);
                async move { connection.await.map(TokioIo::new) }
            });
            Ok(tuned(Endpoint::from_static("http://peer")).connect_with_connector_lazy(dial))
        })
    }

    fn dial(&self, address: &str) -> impl Future<Output = io::Result<DuplexStream>> + Send + use<> {
        let (near, near_end) = duplex(1 << 16);
        let (far, far_end) = duplex(1 << 16);
        let accept = self.0.lock().get_mut(address).map(|host| {
            let (held, holding) = watch::channel(false);
            let ((near_in, near_out), (far_in, far_out)) = (split(near_end), split(far_end));
            let mut pumps = JoinSet::new();
            pumps.spawn(pump(near_in, far_out, watch::channel(false).1));
            pumps.spawn(pump(far_in, near_out, holding));
            host.wires.push(Wire { pumps, held });
            host.made += 1;
            host.accept.clone()
        });
        async move {
            let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
            accept.ok_or_else(refused)?.send(Ok(far)).await.map_err(|_| refused())?;
            Ok(near)
        }
    }
}

/// Carries bytes one way until either end is gone.
async fn pump(mut from: ReadHalf<DuplexStream>, mut to: WriteHalf<DuplexStream>, mut held: watch::Receiver<bool>) {
    let mut bytes = vec![0; 1 << 16];
    while let Ok(count @ 1..) = from.read(&mut bytes).await {
        // A lost sender holds nothing up.
        let _ = held.wait_for(|held| !held).await;
        if to.write_all(&bytes[..count]).await.is_err() {
            return;
        }
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.pumps.abort_all();
    }
}
