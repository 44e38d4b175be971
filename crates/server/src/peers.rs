//! The port for peers, and this node's place among them.

use std::future::Future;

use anyhow::Context as _;
use ticketrail_node::{Connector, Member, Peering, PeeringConfig};
use ticketrail_storage::home::FileHome;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;

use crate::config::{Config, JoinAs};
use crate::listen::{self, Port};

/// Bytes that a stream of entries or a snapshot may send ahead.
const STREAM_WINDOW: u32 = 4 << 20;
/// Bytes that all streams of a connection may send ahead.
const CONNECTION_WINDOW: u32 = 16 << 20;

/// This node's place among its peers; clients reach it on `client_port`.
pub(crate) fn peering(config: &Config, home: FileHome, client_port: u16) -> anyhow::Result<Peering> {
    let member = if config.peers.0.is_empty() {
        Member::default()
    } else {
        Member {
            name: config.name.clone(),
            peer_address: config.peer_address(),
            client_address: config.client_address(client_port),
        }
    };
    let config = PeeringConfig {
        member,
        peers: config.peers.0.clone(),
        may_found: config.may_found,
        wants_vote: config.join_as == JoinAs::Voter,
        connector: Connector::tcp(),
        ..PeeringConfig::alone()
    };
    Ok(Peering::new(config, Box::new(home))?)
}

/// Serves the peers, if there are any, until `stop` ends.
pub(crate) async fn serve(
    config: &Config,
    peering: &Peering,
    tasks: &mut JoinSet<()>,
    stop: impl Future<Output = ()> + Send + 'static,
) -> anyhow::Result<()> {
    if config.peers.0.is_empty() {
        return Ok(());
    }
    let listener: TcpListener = listen::listen(config.peer_listen, Port::Peers).await?;
    tracing::info!(address = %listener.local_addr().context("tell the address for peers")?, "listens for peers");
    let router = Server::builder()
        .tcp_nodelay(true)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .add_routes(peering.routes());
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    tasks.spawn(async move {
        if let Err(error) = router.serve_with_incoming_shutdown(incoming, stop).await {
            tracing::error!(%error, "the port for peers has failed");
        }
    });
    Ok(())
}
