//! Receives snapshots: into a directory beside the live state, verified and made durable, then swapped in.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ticketrail_proto::raft as pb;
use ticketrail_proto::raft::snapshot_frame::Piece;
use ticketrail_storage::state::{StateError, StateFile, StateStore};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tonic::{Status, Streaming};

use super::send::CHUNK_BYTES;
use super::snapshot::{SnapshotData, meta};
use super::types::{Snapshot, Vote};
use super::wire;
use crate::peers::Peers;
use crate::work::Work;

/// Files of one snapshot.
const FILES: usize = 100_000;
/// How long the sender may take for one chunk.
const IDLE: Duration = Duration::from_secs(10);

/// Receives snapshots, one at a time.
pub(crate) struct Receiver<S> {
    store: Arc<S>,
    work: Work,
    turn: Semaphore,
    installed: Arc<AtomicU64>,
}

/// A snapshot that is whole and durable, and not live yet.
pub(crate) struct Staged<S: StateStore> {
    pub(crate) vote: Vote,
    pub(crate) snapshot: Snapshot<SnapshotData<S>>,
}

impl<S: StateStore> Receiver<S> {
    pub(crate) fn new(store: Arc<S>, work: Work, installed: Arc<AtomicU64>) -> Self {
        Self { store, work, turn: Semaphore::new(1), installed }
    }

    /// A snapshot has been installed.
    pub(crate) fn installed(&self) {
        self.installed.fetch_add(1, Ordering::Relaxed);
    }

    /// Receives and stages one.
    pub(crate) async fn receive(
        &self,
        peers: &Peers,
        mut frames: Streaming<pb::SnapshotFrame>,
    ) -> Result<Staged<S>, Status> {
        let Ok(_turn) = self.turn.try_acquire() else {
            return Err(Status::resource_exhausted("expected no other snapshot on its way here, but there is one"));
        };
        let Piece::Start(start) = next(peers, &mut frames).await? else {
            return Err(Status::invalid_argument("expected the start of a snapshot, but got another piece of one"));
        };
        let (vote, sent) = wire::snapshot_start_from(&start)?;
        if start.files.len() > FILES {
            let count = start.files.len();
            return Err(Status::invalid_argument(format!("expected at most {FILES} files, but got {count}")));
        }
        let files: Vec<StateFile> =
            start.files.into_iter().map(|file| StateFile { name: file.name, size: file.size }).collect();
        tracing::info!(snapshot = %sent, files = files.len(), "receives a snapshot");
        let incoming = {
            let (store, files) = (self.store.clone(), files.clone());
            self.work.run(move || store.begin_incoming(&files)).await.map_err(|error| failed(&error))?
        };
        let incoming = self.fill(peers, &mut frames, &files, incoming).await?;
        let store = self.store.clone();
        let checkpoint =
            self.work.run(move || store.finish_incoming(incoming)).await.map_err(|error| failed(&error))?;
        let found =
            meta(&self.store.checkpoint_applied(&checkpoint)).map_err(|error| Status::internal(error.to_string()))?;
        if found != sent {
            return Err(Status::data_loss(format!("expected the snapshot {sent}, but its data is of {found}")));
        }
        Ok(Staged { vote, snapshot: Snapshot { meta: found, snapshot: SnapshotData::Received(checkpoint) } })
    }

    /// Takes in the chunks, which come in order, and compares each checksum.
    async fn fill(
        &self,
        peers: &Peers,
        frames: &mut Streaming<pb::SnapshotFrame>,
        files: &[StateFile],
        mut incoming: S::Incoming,
    ) -> Result<S::Incoming, Status> {
        let mut checksums: Vec<crc32fast::Hasher> = files.iter().map(|_| crc32fast::Hasher::new()).collect();
        loop {
            match next(peers, frames).await? {
                Piece::Chunk(chunk) => {
                    if chunk.data.len() > CHUNK_BYTES || crc32fast::hash(&chunk.data) != chunk.crc32 {
                        return Err(Status::data_loss(format!(
                            "expected byte {} of file {} as it was read, but its checksum differs",
                            chunk.offset, chunk.file
                        )));
                    }
                    let file = usize::try_from(chunk.file).unwrap_or(usize::MAX);
                    if let Some(checksum) = checksums.get_mut(file) {
                        checksum.update(&chunk.data);
                    }
                    let store = self.store.clone();
                    let written = self.work.run(move || {
                        let written = store.write_chunk(&mut incoming, file, chunk.offset, &chunk.data);
                        written.map(|()| incoming)
                    });
                    incoming = written.await.map_err(|error| failed(&error))?;
                }
                Piece::End(end) => {
                    let found: Vec<u32> = checksums.into_iter().map(crc32fast::Hasher::finalize).collect();
                    if found != end.crc32 {
                        return Err(Status::data_loss("expected files as they were read, but a checksum differs"));
                    }
                    return Ok(incoming);
                }
                Piece::Start(_) => return Err(Status::invalid_argument("expected one start, but got a second")),
            }
        }
    }
}

async fn next(peers: &Peers, frames: &mut Streaming<pb::SnapshotFrame>) -> Result<Piece, Status> {
    match timeout(IDLE, frames.message()).await {
        Ok(frame) => match frame? {
            Some(frame) => {
                peers.check(frame.header.as_ref())?;
                frame.piece.ok_or_else(|| Status::invalid_argument("expected a piece of a snapshot, but it is empty"))
            }
            None => Err(Status::aborted("expected the end of the snapshot, but the sender has stopped before it")),
        },
        Err(_) => Err(Status::deadline_exceeded(format!("expected the next chunk within {IDLE:?}, but there is none"))),
    }
}

fn failed(error: &StateError) -> Status {
    Status::internal(error.to_string())
}
