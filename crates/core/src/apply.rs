//! The central contract: one committed entry in, its outcome out.

use crate::command::{Command, Entry, InitCluster, Request};
use crate::keys;
use crate::limits;
use crate::queue::{create, delete, expire, gate, group, invalid, purge, receive, update};
use crate::reply::{Answered, Empty, Fault, Initialized, Outcome, Rejection, Reply};
use crate::secret::Secret;
use crate::session::{self, Admission};
use crate::time::Timestamp;
use crate::txn::{self, Txn};
use crate::view::View;
use crate::{LogPosition, clock, commit, namespace, tick, token};

/// Applies one committed entry. Pure: the same view and entry give the same outcome on every replica.
/// `Err(Fault)` means that this replica's data is broken: the node stops. A user's mistake is never a fault.
pub fn apply(view: &dyn View, at: LogPosition, entry: &Entry) -> Result<Outcome, Fault> {
    let mut txn = Txn::begin(view, at)?;
    clock::advance(&mut txn.header, at.term, Timestamp(entry.proposed_at_ms));
    let mut replies = Vec::with_capacity(entry.requests.len());
    for (ordinal, request) in (0u32..).zip(&entry.requests) {
        txn.savepoint();
        let result = admit_and_run(&mut txn, ordinal, request)?;
        if result.is_err() {
            txn.rollback();
        }
        replies.push(result);
    }
    let (writes, effects) = txn.finish();
    Ok(Outcome { writes, replies, effects })
}

fn too_large() -> Rejection {
    let (keys, bytes) = (limits::ENTRY_KEYS, limits::ENTRY_BYTES);
    invalid("request", format!("expected a request that changes at most {keys} keys and {bytes} bytes; split it"))
}

fn admit_and_run(txn: &mut Txn<'_>, ordinal: u32, request: &Request) -> Result<Result<Reply, Rejection>, Fault> {
    let Some(command) = &request.command else {
        return Err(Fault::Newer("a request has no command".into()));
    };
    if let Some(id) = &request.id {
        let admission = if id.session == 0 { token::admit(txn, id)? } else { session::admit(txn, id)? };
        match admission {
            Admission::New => {}
            Admission::Replay(reply) => return Ok(Ok(reply)),
            Admission::Rejected(rejection) => return Ok(Err(rejection)),
        }
    }
    let is_first_write = txn.overlay.keys() == 0;
    let answered = match run(txn, ordinal, command)? {
        Ok(_) if txn.is_full() && is_first_write => return Ok(Err(too_large())),
        Ok(_) if txn.is_full() => return Ok(Err(Rejection::EntryFull(Empty {}))),
        Ok(answered) => answered,
        Err(rejection) => return Ok(Err(rejection)),
    };
    let mut reply =
        Reply { replayed: false, index: txn.at.index, ordinal, at_ms: txn.header.cluster_ms, answered: Some(answered) };
    match &request.id {
        Some(id) if id.session == 0 => token::remember(txn, id, &mut reply),
        Some(id) => session::remember(txn, id, &mut reply)?,
        None => {}
    }
    Ok(Ok(reply))
}

fn run(txn: &mut Txn<'_>, ordinal: u32, command: &Command) -> Result<Result<Answered, Rejection>, Fault> {
    match command {
        Command::Commit(_) | Command::Receive(_) if txn.secret().is_none() => {
            Ok(Err(Rejection::NotInitialized(Empty {})))
        }
        Command::Commit(commit) => commit::run(txn, commit),
        Command::Receive(receive) => receive::run(txn, receive),
        Command::Expire(expire) => expire::run(txn, expire),
        Command::Tick(_) => tick::run(txn).map(Ok),
        Command::InitCluster(init) => Ok(init_cluster(txn, init)),
        Command::OpenSession(open) => session::open(txn, ordinal, *open),
        Command::CreateQueue(command) => create::run(txn, command),
        Command::UpdateQueue(command) => update::run(txn, command),
        Command::DeleteQueue(command) => delete::run(txn, command),
        Command::PurgeQueue(command) => purge::run(txn, command),
        Command::PauseQueue(command) => gate::pause(txn, command),
        Command::CloseQueue(command) => gate::close(txn, command),
        Command::SetNamespace(command) => namespace::set(txn, command),
        Command::DeleteNamespace(command) => namespace::delete(txn, command),
    }
}

fn init_cluster(txn: &mut Txn<'_>, init: &InitCluster) -> Result<Answered, Rejection> {
    let Some(secret) = Secret::new(&init.secret) else {
        return Err(invalid("secret", format!("expected {} bytes, but got {}", Secret::LEN, init.secret.len())));
    };
    let first = txn.secret().is_none();
    if first {
        txn.set_secret(secret, bytes::Bytes::copy_from_slice(&init.secret));
    }
    Ok(Answered::Initialized(Initialized { first }))
}

/// When the leader must propose the next `Tick`, on cluster time; `None`: nothing is due ever.
pub fn next_due(view: &dyn View) -> Result<Option<Timestamp>, Fault> {
    let header = txn::header(view)?;
    let (from, to) = keys::space(b'w');
    let drains = group::next_drain(|from, to| view.scan(from, to, 1), &header)?;
    if drains.is_some() || !view.scan(&from, &to, 1)?.is_empty() {
        return Ok(Some(header.now()));
    }
    tick::next_timer(view, &header)
}
