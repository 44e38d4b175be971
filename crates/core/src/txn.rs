//! One entry at work: the overlay, and the records that many of its requests share, read once and written once.

use std::collections::BTreeMap;
use std::hash::Hasher;
use std::rc::Rc;

use bytes::Bytes;
use prost::Message;
use siphasher::sip::SipHasher13;

use crate::LogPosition;
use crate::command::QueueRef;
use crate::ids::QueueId;
use crate::keys;
use crate::limits;
use crate::overlay::Overlay;
use crate::records::{ConfigRecord, Header, QueueRecord, SessionRecord, broken, decode};
use crate::reply::{Effect, Fault};
use crate::secret::Secret;
use crate::session::FreshOutcomes;
use crate::view::View;
use crate::writes::{Write, WriteSet};

/// A queue as this entry sees it.
#[derive(Debug, Clone)]
pub(crate) struct Queue {
    /// Its id.
    pub id: QueueId,
    /// Its name and settings; replaced whole when they change.
    pub config: Rc<ConfigRecord>,
    /// Heads and counters.
    pub record: QueueRecord,
    config_changed: bool,
    record_changed: bool,
}

/// A session as this entry sees it.
#[derive(Debug, Clone)]
pub(crate) struct Session {
    /// What is stored of it.
    pub record: SessionRecord,
    /// Outcomes of this entry, not stored yet.
    pub fresh: FreshOutcomes,
    /// Whether it must be written.
    pub changed: bool,
}

/// One entry at work.
pub(crate) struct Txn<'v> {
    /// All other records.
    pub overlay: Overlay<'v>,
    /// Clocks, counters and positions.
    pub header: Header,
    /// Where the entry stands.
    pub at: LogPosition,
    /// What the leader may want to look at.
    pub effects: Vec<Effect>,
    secret: Option<Secret>,
    queues: BTreeMap<QueueId, Option<Queue>>,
    names: BTreeMap<QueueRef, Option<QueueId>>,
    sessions: BTreeMap<u64, Option<Session>>,
    before: Before,
}

/// What a request has changed, as it was before.
#[derive(Default)]
struct Before {
    header: Header,
    secret: Option<Secret>,
    effects: usize,
    /// Each the first time that the request changed it; few, so a list.
    queues: Vec<(QueueId, Option<Queue>)>,
    names: Vec<(QueueRef, Option<QueueId>)>,
    sessions: Vec<(u64, Option<Session>)>,
}

/// Reads the header of a state; a new one where there is none.
pub(crate) fn header(view: &dyn View) -> Result<Header, Fault> {
    let key = keys::header();
    match view.get(&key)? {
        Some(bytes) => decode("the header", &key, bytes),
        None => Ok(Header { format: crate::records::STATE_FORMAT, ..Header::default() }),
    }
}

/// Reads the secret of a state.
pub(crate) fn secret(view: &dyn View) -> Result<Option<Secret>, Fault> {
    let key = keys::secret();
    match view.get(&key)? {
        Some(bytes) => match Secret::new(&bytes) {
            Some(secret) => Ok(Some(secret)),
            None => Err(broken("a secret of 32 bytes", &key, format!("there are {}", bytes.len()))),
        },
        None => Ok(None),
    }
}

/// Reads the id that a queue's name stands for.
pub(crate) fn queue_id(
    get: impl Fn(&[u8]) -> Result<Option<Bytes>, Fault>,
    queue: &QueueRef,
) -> Result<Option<QueueId>, Fault> {
    let key = keys::name(&queue.namespace, &queue.name);
    match get(&key)? {
        Some(bytes) => match keys::last_number(&bytes) {
            Some(id) => Ok(Some(QueueId(id))),
            None => Err(broken("a queue id of 8 bytes", &key, format!("there are {}", bytes.len()))),
        },
        None => Ok(None),
    }
}

impl<'v> Txn<'v> {
    /// The entry at `at`, over `view`.
    pub(crate) fn begin(view: &'v dyn View, at: LogPosition) -> Result<Self, Fault> {
        let header = header(view)?;
        if header.format != crate::records::STATE_FORMAT {
            return Err(Fault::Newer(format!("the applied state has format {}", header.format)));
        }
        if at.index <= header.index && header.index != 0 {
            return Err(Fault::Order { applied: header.index, got: at.index });
        }
        Ok(Self {
            overlay: Overlay::new(view),
            header,
            at,
            effects: Vec::new(),
            secret: secret(view)?,
            queues: BTreeMap::new(),
            names: BTreeMap::new(),
            sessions: BTreeMap::new(),
            before: Before::default(),
        })
    }

    /// From here on, `rollback` undoes.
    pub(crate) fn savepoint(&mut self) {
        self.overlay.savepoint();
        self.before.header.clone_from(&self.header);
        self.before.secret = self.secret;
        self.before.effects = self.effects.len();
        self.before.queues.clear();
        self.before.names.clear();
        self.before.sessions.clear();
    }

    /// Undoes all since the savepoint: a rejected request leaves nothing behind. The outcomes of sessions are kept only
    /// for requests that can't be rejected any more.
    pub(crate) fn rollback(&mut self) {
        self.overlay.rollback();
        self.header.clone_from(&self.before.header);
        self.secret = self.before.secret;
        self.effects.truncate(self.before.effects);
        self.queues.extend(self.before.queues.drain(..).rev());
        self.names.extend(self.before.names.drain(..).rev());
        self.sessions.extend(self.before.sessions.drain(..).rev());
    }

    /// Whether the entry writes as much as one may.
    pub(crate) fn is_full(&self) -> bool {
        self.overlay.keys() > limits::ENTRY_KEYS || self.overlay.bytes() > limits::ENTRY_BYTES
    }

    /// Whether a bounded job should stop here and leave the rest to the next tick.
    pub(crate) fn is_nearly_full(&self) -> bool {
        self.overlay.keys() > limits::ENTRY_KEYS / 2 || self.overlay.bytes() > limits::ENTRY_BYTES / 2
    }

    /// The cluster's secret, once it has one.
    pub(crate) fn secret(&self) -> Option<Secret> {
        self.secret
    }

    /// Gives the cluster its secret.
    pub(crate) fn set_secret(&mut self, secret: Secret, bytes: Bytes) {
        self.secret = Some(secret);
        self.overlay.put(keys::secret(), bytes);
    }

    /// A record of the overlay, decoded.
    pub(crate) fn record<R: Message + Default>(&self, what: &'static str, key: &[u8]) -> Result<Option<R>, Fault> {
        self.overlay.get(key)?.map(|bytes| decode(what, key, bytes)).transpose()
    }

    /// Stores a record.
    pub(crate) fn put<R: Message>(&mut self, key: keys::Key, record: &R) {
        self.overlay.put(key, record.encode_to_vec());
    }

    /// Tells the leader that messages of a queue became ready.
    pub(crate) fn wake(&mut self, queue: QueueId) {
        if self.effects.last() != Some(&Effect::Wake(queue)) {
            self.effects.push(Effect::Wake(queue));
        }
    }

    /// The id that a name stands for.
    pub(crate) fn queue_id(&mut self, queue: &QueueRef) -> Result<Option<QueueId>, Fault> {
        if let Some(id) = self.names.get(queue) {
            return Ok(*id);
        }
        let id = queue_id(|key| self.overlay.get(key), queue)?;
        self.names.insert(queue.clone(), id);
        Ok(id)
    }

    /// Binds or frees a name.
    pub(crate) fn set_name(&mut self, queue: &QueueRef, id: Option<QueueId>) {
        let before = self.names.insert(queue.clone(), id);
        self.before.names.push((queue.clone(), before.flatten()));
        let key = keys::name(&queue.namespace, &queue.name);
        match id {
            Some(id) => self.overlay.put(key, id.0.to_be_bytes().to_vec()),
            None => self.overlay.delete(key),
        }
    }

    /// A queue, or `None` where it was deleted.
    pub(crate) fn queue(&mut self, id: QueueId) -> Result<Option<&Queue>, Fault> {
        self.load_queue(id)?;
        Ok(self.queues.get(&id).and_then(Option::as_ref))
    }

    /// A queue to look at; a fault where it is not there.
    pub(crate) fn queue_there(&mut self, id: QueueId) -> Result<&Queue, Fault> {
        self.queue(id)?.ok_or_else(|| broken("a queue", &keys::queue(id), "there is none"))
    }

    /// A queue to change; a fault where it is not there.
    pub(crate) fn queue_mut(&mut self, id: QueueId) -> Result<&mut Queue, Fault> {
        self.load_queue(id)?;
        let now = self.header.cluster_ms;
        let Some(Some(queue)) = self.queues.get_mut(&id) else {
            return Err(broken("a queue", &keys::queue(id), "there is none"));
        };
        if !self.before.queues.iter().any(|(changed, _)| *changed == id) {
            self.before.queues.push((id, Some(queue.clone())));
        }
        queue.record_changed = true;
        queue.record.reckon(now, queue.config.pause.is_some());
        Ok(queue)
    }

    /// Changes a queue's settings.
    pub(crate) fn set_config(&mut self, id: QueueId, config: ConfigRecord) -> Result<(), Fault> {
        let queue = self.queue_mut(id)?;
        queue.config = Rc::new(config);
        queue.config_changed = true;
        Ok(())
    }

    /// Adds a queue.
    pub(crate) fn add_queue(&mut self, id: QueueId, config: ConfigRecord, record: QueueRecord) {
        let queue = Queue { id, config: Rc::new(config), record, config_changed: true, record_changed: true };
        let before = self.queues.insert(id, Some(queue));
        self.before.queues.push((id, before.flatten()));
    }

    /// Removes a queue's own records; its messages are swept later.
    pub(crate) fn remove_queue(&mut self, id: QueueId) {
        let before = self.queues.insert(id, None);
        self.before.queues.push((id, before.flatten()));
        self.overlay.delete(keys::queue(id));
        self.overlay.delete(keys::config(id));
    }

    fn load_queue(&mut self, id: QueueId) -> Result<(), Fault> {
        if self.queues.contains_key(&id) {
            return Ok(());
        }
        let queue = match self.record("a queue", &keys::queue(id))? {
            Some(record) => {
                let key = keys::config(id);
                let Some(config) = self.record("a queue's settings", &key)? else {
                    return Err(broken("a queue's settings", &key, "there are none"));
                };
                Some(Queue { id, config: Rc::new(config), record, config_changed: false, record_changed: false })
            }
            None => None,
        };
        self.queues.insert(id, queue);
        Ok(())
    }

    /// A session, or `None` where it is not there.
    pub(crate) fn session(&mut self, id: u64) -> Result<Option<&Session>, Fault> {
        if !self.sessions.contains_key(&id) {
            let record = self.record("a session", &keys::session(id))?;
            self.sessions
                .insert(id, record.map(|record| Session { record, fresh: FreshOutcomes::default(), changed: false }));
        }
        Ok(self.sessions.get(&id).and_then(Option::as_ref))
    }

    /// A session to change; a fault where it is not there. Not undone by `rollback`: only for requests that can't be
    /// rejected any more.
    pub(crate) fn session_mut(&mut self, id: u64) -> Result<&mut Session, Fault> {
        self.session(id)?;
        let Some(Some(session)) = self.sessions.get_mut(&id) else {
            return Err(broken("a session", &keys::session(id), "there is none"));
        };
        session.changed = true;
        Ok(session)
    }

    /// Adds a session, or with `None` removes one's own record.
    pub(crate) fn set_session(&mut self, id: u64, record: Option<SessionRecord>) {
        if record.is_none() {
            self.overlay.delete(keys::session(id));
        }
        let session = record.map(|record| Session { record, fresh: FreshOutcomes::default(), changed: true });
        let before = self.sessions.insert(id, session);
        self.before.sessions.push((id, before.flatten()));
    }

    /// All changes, and the header with the digest over them.
    pub(crate) fn finish(mut self) -> (WriteSet, Vec<Effect>) {
        // What was only looked at is not written: everything else was touched through a `_mut`.
        for (id, queue) in std::mem::take(&mut self.queues) {
            let Some(queue) = queue else { continue };
            if queue.config_changed {
                self.put(keys::config(id), queue.config.as_ref());
            }
            if queue.record_changed {
                self.put(keys::queue(id), &queue.record);
            }
        }
        crate::session::store_outcomes(&mut self.overlay, self.at.index, std::mem::take(&mut self.sessions));
        let mut header = std::mem::take(&mut self.header);
        header.index = self.at.index;
        let mut writes = self.overlay.into_writes();
        header.digest = digest(header.digest, &writes);
        writes.push(Write::Put { key: keys::header().into(), value: header.encode_to_vec().into() });
        (writes, self.effects)
    }
}

/// The rolling hash after `writes`: SipHash-1-3 of the one before and each write, lengths included.
fn digest(before: u64, writes: &WriteSet) -> u64 {
    let mut hasher = SipHasher13::new();
    let mut part = |tag: u8, bytes: &[u8]| {
        hasher.write(&[tag]);
        hasher.write(&u64::try_from(bytes.len()).unwrap_or(u64::MAX).to_be_bytes());
        hasher.write(bytes);
    };
    part(0, &before.to_be_bytes());
    for write in writes.iter() {
        match write {
            Write::Put { key, value } => {
                part(1, key);
                part(2, value);
            }
            Write::Delete { key } => part(3, key),
            Write::DeleteRange { from, to } => {
                part(4, from);
                part(5, to);
            }
        }
    }
    hasher.finish()
}
