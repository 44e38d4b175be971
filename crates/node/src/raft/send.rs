//! Sends snapshots: a checkpoint, file by file, in chunks with checksums.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ticketrail_proto::raft as pb;
use ticketrail_proto::raft::raft_service_client::RaftServiceClient;
use ticketrail_proto::raft::snapshot_frame::Piece;
use ticketrail_storage::state::{StateError, StateFile, StateStore};
use tokio::sync::mpsc::error::SendTimeoutError;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{sleep_until, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use tonic::transport::Channel;

use super::snapshot::{SnapshotData, meta};
use super::types::{Snapshot, Vote};
use super::wire::{self, WireError};
use crate::clock::Clock;
use crate::peers::Peers;
use crate::work::Work;

/// Bytes of one chunk.
pub(super) const CHUNK_BYTES: usize = 1 << 20;
/// Chunks on their way.
const CHUNKS: usize = 2;
/// Snapshots sent at one time.
const AT_ONCE: usize = 2;
/// How long a receiver may take for one chunk.
const IDLE: Duration = Duration::from_secs(10);
/// How long it may take to make the whole durable and install it.
const INSTALL: Duration = Duration::from_secs(120);

/// Sends snapshots, a few at a time and not faster than it was told.
pub(crate) struct Sender<S> {
    store: Arc<S>,
    work: Work,
    clock: Clock,
    bytes_per_second: u64,
    turn: Semaphore,
    sent: Arc<AtomicU64>,
}

/// Why a snapshot was not sent.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SendError {
    #[error(transparent)]
    State(#[from] StateError),
    #[error("expected a checkpoint that says how far it is, but {0}")]
    Meta(std::io::Error),
    #[error("expected the receiver to take a chunk within {IDLE:?}, but it has not")]
    Stalled,
    #[error("expected the receiver to install the snapshot within {INSTALL:?}, but it has not")]
    NotInstalled,
    #[error("expected the receiver to take the snapshot, but {0}")]
    Refused(Status),
    #[error(transparent)]
    Answer(#[from] WireError),
}

impl<S: StateStore> Sender<S> {
    pub(crate) fn new(store: Arc<S>, work: Work, clock: Clock, bytes_per_second: u64, sent: Arc<AtomicU64>) -> Self {
        Self { store, work, clock, bytes_per_second: bytes_per_second.max(1), turn: Semaphore::new(AT_ONCE), sent }
    }

    /// Sends a snapshot; returns the vote of the receiver, which has installed it.
    pub(super) async fn send(
        &self,
        mut client: RaftServiceClient<Channel>,
        peers: &Peers,
        to: u64,
        vote: Vote,
        snapshot: Snapshot<SnapshotData<S>>,
    ) -> Result<Vote, SendError> {
        // Never closed.
        let _turn = self.turn.acquire().await;
        let started = self.clock.now();
        let checkpoint = self.work.run(move || snapshot.snapshot.checkpoint()).await?;
        let checkpoint = Arc::new(checkpoint);
        let meta = meta(&self.store.checkpoint_applied(&checkpoint)).map_err(SendError::Meta)?;
        let files = self.store.checkpoint_files(&checkpoint)?;
        let bytes: u64 = files.iter().map(|file| file.size).sum();
        tracing::info!(node = to, snapshot = %meta, files = files.len(), bytes, "sends a snapshot");

        let (frames, outgoing) = mpsc::channel::<pb::SnapshotFrame>(CHUNKS);
        let frame = |piece| pb::SnapshotFrame { header: peers.header(to), piece: Some(piece) };
        let listed = files.iter().map(|file| pb::SnapshotFile { name: file.name.clone(), size: file.size }).collect();
        let start = frame(Piece::Start(wire::snapshot_start(&vote, &meta, listed)));
        let feeding = async {
            put(&frames, start).await?;
            let mut checksums = Vec::with_capacity(files.len());
            let mut sent = 0;
            for (number, file) in files.iter().enumerate() {
                let mut checksum = crc32fast::Hasher::new();
                let mut offset = 0;
                while offset < file.size {
                    let data = self.chunk(&checkpoint, file, offset).await?;
                    checksum.update(&data);
                    let crc32 = crc32fast::hash(&data);
                    sent += data.len() as u64;
                    let file = u32::try_from(number).unwrap_or(u32::MAX);
                    let chunk = pb::SnapshotChunk { file, offset, crc32, data };
                    offset += chunk.data.len() as u64;
                    put(&frames, frame(Piece::Chunk(chunk))).await?;
                    // No faster than the cap.
                    sleep_until(started + Duration::from_secs_f64(sent as f64 / self.bytes_per_second as f64)).await;
                }
                checksums.push(checksum.finalize());
            }
            put(&frames, frame(Piece::End(pb::SnapshotEnd { crc32: checksums }))).await?;
            drop(frames);
            Ok::<(), SendError>(())
        };
        let mut calling = Box::pin(client.snapshot(ReceiverStream::new(outgoing)));
        let answer = tokio::select! {
            answer = &mut calling => answer,
            fed = feeding => {
                fed?;
                timeout(INSTALL, calling).await.map_err(|_| SendError::NotInstalled)?
            }
        };
        let answer = answer.map_err(SendError::Refused)?.into_inner();
        if let Some(header) = &answer.header {
            peers.note(header);
        }
        let took = self.clock.now().saturating_duration_since(started);
        tracing::info!(node = to, snapshot = %meta, bytes, took_ms = took.as_millis(), "sent a snapshot");
        self.sent.fetch_add(1, Ordering::Relaxed);
        Ok(wire::vote_from(answer.vote)?)
    }

    async fn chunk(
        &self,
        checkpoint: &Arc<S::Checkpoint>,
        file: &StateFile,
        offset: u64,
    ) -> Result<bytes::Bytes, SendError> {
        let (store, checkpoint, name) = (self.store.clone(), checkpoint.clone(), file.name.clone());
        let chunk = self.work.run(move || store.read_chunk(&checkpoint, &name, offset, CHUNK_BYTES)).await?;
        if chunk.is_empty() {
            let reason = format!("{} ends at byte {offset} of {}", file.name, file.size);
            return Err(SendError::State(StateError { action: "read a checkpoint of", reason }));
        }
        Ok(chunk)
    }
}

async fn put(frames: &mpsc::Sender<pb::SnapshotFrame>, frame: pb::SnapshotFrame) -> Result<(), SendError> {
    match frames.send_timeout(frame, IDLE).await {
        Ok(()) => Ok(()),
        Err(SendTimeoutError::Timeout(_)) => Err(SendError::Stalled),
        // The call has ended: its answer says why.
        Err(SendTimeoutError::Closed(_)) => std::future::pending().await,
    }
}
