//! What operators call: queues, and the node's status.

use std::time::{Duration, SystemTime};

use ticketrail_proto::v1;
use ticketrail_proto::v1::admin_service_client::AdminServiceClient;

use crate::call::{Attempt, service};
use crate::settings::QueueSettings;
use crate::{Client, Error, wire};

/// What operators call.
///
/// ```no_run
/// # use ticketrail_client::{Client, QueueSettings};
/// # async fn example(client: Client) -> Result<(), ticketrail_client::Error> {
/// let settings = QueueSettings { max_depth: Some(2_400), max_attempts: Some(3), ..QueueSettings::default() };
/// client.admin().create_queue("payments", settings).await?;
/// for queue in client.admin().queues().await? {
///     println!("{}: {} ready", queue.name, queue.stats.ready);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Admin {
    client: Client,
}

/// A change of one queue: the same shape for each verb.
macro_rules! change {
    ($self:ident, $queue:expr, $request:ident { $($field:ident: $value:expr),* }, $method:ident, $read:expr) => {{
        let make = |attempt: Attempt| v1::$request {
            request_id: Some(attempt.id),
            namespace: $self.client.namespace().to_owned(),
            queue: $queue.to_owned(),
            $($field: $value,)*
        };
        let send = async |channel, request| service!(AdminServiceClient, channel).$method(request).await;
        $self.client.changing().change(Duration::ZERO, make, send, |answer| Ok(Ok($read(answer)))).await
    }};
}

impl Admin {
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) fn new(client: Client) -> Self {
        Self { client }
    }

    /// Makes a queue; what is absent gets its default. Returns the queue's id.
    ///
    /// # Errors
    /// [`Reason::QueueExists`](crate::Reason::QueueExists) where it is there already.
    pub async fn create_queue(&self, queue: &str, settings: QueueSettings) -> Result<u64, Error> {
        let settings = settings.into_wire();
        change!(
            self,
            queue,
            CreateQueueRequest { settings: Some(settings.clone()) },
            create_queue,
            |answer: v1::CreateQueueResponse| answer.queue_id
        )
    }

    /// Changes a queue's settings; what is absent stays.
    ///
    /// # Errors
    /// [`Reason::QueueNotFound`](crate::Reason::QueueNotFound); as every change.
    pub async fn update_queue(&self, queue: &str, settings: QueueSettings) -> Result<(), Error> {
        let settings = settings.into_wire();
        change!(self, queue, UpdateQueueRequest { settings: Some(settings.clone()) }, update_queue, |_| ())
    }

    /// Removes a queue and all it holds; its leases are void. Returns how many messages went with it.
    ///
    /// # Errors
    /// As [`Admin::update_queue`].
    pub async fn delete_queue(&self, queue: &str) -> Result<u64, Error> {
        change!(self, queue, DeleteQueueRequest {}, delete_queue, |answer: v1::DeleteQueueResponse| answer.messages)
    }

    /// Removes all messages that are not leased. Returns how many.
    ///
    /// # Errors
    /// As [`Admin::update_queue`].
    pub async fn purge_queue(&self, queue: &str) -> Result<u64, Error> {
        change!(self, queue, PurgeQueueRequest {}, purge_queue, |answer: v1::PurgeQueueResponse| answer.messages)
    }

    /// Stops delivery; enqueues go on.
    ///
    /// # Errors
    /// As [`Admin::update_queue`].
    pub async fn pause_queue(&self, queue: &str, pause: Pause) -> Result<(), Error> {
        let pause = v1::Pause { reason: pause.reason, author: pause.author, until: pause.until.map(Into::into) };
        change!(self, queue, PauseQueueRequest { pause: Some(pause.clone()) }, pause_queue, |_| ())
    }

    /// Lets delivery go on.
    ///
    /// # Errors
    /// As [`Admin::update_queue`].
    pub async fn resume_queue(&self, queue: &str) -> Result<(), Error> {
        change!(self, queue, ResumeQueueRequest {}, resume_queue, |_| ())
    }

    /// Refuses enqueues; delivery goes on.
    ///
    /// # Errors
    /// As [`Admin::update_queue`].
    pub async fn close_queue(&self, queue: &str) -> Result<(), Error> {
        change!(self, queue, CloseQueueRequest {}, close_queue, |_| ())
    }

    /// Admits enqueues again.
    ///
    /// # Errors
    /// As [`Admin::update_queue`].
    pub async fn reopen_queue(&self, queue: &str) -> Result<(), Error> {
        change!(self, queue, ReopenQueueRequest {}, reopen_queue, |_| ())
    }

    /// One queue.
    ///
    /// # Errors
    /// [`Reason::QueueNotFound`](crate::Reason::QueueNotFound); as every read.
    pub async fn queue(&self, queue: &str) -> Result<QueueInfo, Error> {
        let make = || v1::GetQueueRequest {
            namespace: self.client.namespace().to_owned(),
            queue: queue.to_owned(),
            stale_ok: false,
        };
        let send = async |channel, request| service!(AdminServiceClient, channel).get_queue(request).await;
        match self.client.reading().read(make, send).await?.queue {
            Some(info) => Ok(QueueInfo::from_wire(info)),
            None => Err(Error::Protocol { expected: "a queue", found: "none".to_owned() }),
        }
    }

    /// All queues of the namespace, by name, read page by page: at most 100,000.
    ///
    /// # Errors
    /// As every read.
    pub async fn queues(&self) -> Result<Vec<QueueInfo>, Error> {
        let mut queues = Vec::new();
        let mut page_token = String::new();
        loop {
            let make = || v1::ListQueuesRequest {
                namespace: self.client.namespace().to_owned(),
                page_size: 1_000,
                page_token: page_token.clone(),
                stale_ok: false,
            };
            let send = async |channel, request| service!(AdminServiceClient, channel).list_queues(request).await;
            let page = self.client.reading().read(make, send).await?;
            queues.extend(page.queues.into_iter().map(QueueInfo::from_wire));
            if page.next_page_token.is_empty() {
                return Ok(queues);
            }
            page_token = page.next_page_token;
        }
    }

    /// The node that answers: role, term, log, disk.
    ///
    /// # Errors
    /// As every read.
    pub async fn status(&self) -> Result<NodeStatus, Error> {
        let make = || v1::GetStatusRequest {};
        let send = async |channel, request| service!(AdminServiceClient, channel).get_status(request).await;
        self.client.reading().read(make, send).await.map(NodeStatus::from_wire)
    }
}

/// Why delivery is stopped, by whom, until when.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pause {
    /// Why; at most 512 bytes.
    pub reason: String,
    /// Who stopped it; at most 512 bytes.
    pub author: String,
    /// Until when; `None`: until resumed.
    pub until: Option<SystemTime>,
}

/// A queue: its settings and figures.
#[derive(Debug, Clone, PartialEq)]
pub struct QueueInfo {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its id: a queue deleted and made again has a new one.
    pub id: u64,
    /// When it was made.
    pub created_at: SystemTime,
    /// All settings, none absent.
    pub settings: QueueSettings,
    /// The pause; `None` where delivery goes on.
    pub pause: Option<Pause>,
    /// Whether enqueues are refused.
    pub closed: bool,
    /// Figures.
    pub stats: QueueStats,
    /// Messages in its dead-letter queue now.
    pub dead: u64,
}

impl QueueInfo {
    fn from_wire(info: v1::QueueInfo) -> Self {
        Self {
            namespace: info.namespace,
            name: info.name,
            id: info.id,
            created_at: wire::some_time(info.created_at),
            settings: QueueSettings::from_wire(info.settings.unwrap_or_default()),
            pause: info.pause.map(|pause| Pause {
                reason: pause.reason,
                author: pause.author,
                until: wire::maybe_time(pause.until),
            }),
            closed: info.closed,
            stats: QueueStats::from_wire(info.stats.unwrap_or_default()),
            dead: info.dead,
        }
    }
}

/// Figures of one queue.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct QueueStats {
    /// Messages ready now.
    pub ready: u64,
    /// Messages delayed now.
    pub delayed: u64,
    /// Messages blocked now, behind an earlier one of their group.
    pub blocked: u64,
    /// Messages leased now.
    pub leased: u64,
    /// Bytes of the messages ready, delayed, blocked and leased.
    pub bytes: u64,
    /// Messages enqueued ever.
    pub enqueued: u64,
    /// Messages moved here ever.
    pub moved_in: u64,
    /// Messages finished ever.
    pub acked: u64,
    /// Messages moved away ever, such as to the dead-letter queue.
    pub moved_out: u64,
    /// Messages dropped ever because their time to live ran out.
    pub expired_dropped: u64,
    /// Messages cancelled ever.
    pub cancelled: u64,
    /// Messages purged ever.
    pub purged: u64,
    /// Messages dropped ever at the end of their attempts.
    pub dropped: u64,
    /// Leases granted ever.
    pub received: u64,
    /// Leases granted ever on messages that had been leased before.
    pub redelivered: u64,
    /// Failures counted ever.
    pub failed: u64,
    /// Leases that ran out ever.
    pub lease_expired: u64,
    /// Messages taken in ever over a bound, by a move.
    pub over_bound: u64,
    /// Since when the oldest ready message has been ready; `None` where none is.
    pub oldest_ready_at: Option<SystemTime>,
    /// How long that is; `None` where none is ready.
    pub oldest_ready_age: Option<Duration>,
    /// Messages sent ever that added nothing, as their dedup id was remembered.
    pub duplicates: u64,
    /// Outcomes ever that were not kept, as too many were.
    pub outcomes_dropped: u64,
    /// Dedup ids remembered now.
    pub dedup_ids: u64,
    /// Outcomes of acked messages kept now.
    pub retained: u64,
    /// Groups now that wait until a dead letter is gone.
    pub groups_blocked: u64,
    /// What the queue's workers finish while they have work, in messages a second: as measured, else the expected rate;
    /// `None` where nothing says.
    pub rate: Option<f64>,
    /// Since when the longest parked group has been parked behind a head that waits for its time; `None` where none is.
    pub oldest_parked_at: Option<SystemTime>,
    /// How long that is; `None` where none is parked.
    pub oldest_parked_age: Option<Duration>,
}

impl QueueStats {
    /// Messages here now: ready, delayed, blocked and leased.
    pub fn depth(&self) -> u64 {
        self.ready.saturating_add(self.delayed).saturating_add(self.blocked).saturating_add(self.leased)
    }

    /// Messages finished ever: acked, dropped, moved away or expired. The rate of this is what leaves the queue.
    pub fn finished(&self) -> u64 {
        [self.acked, self.dropped, self.moved_out, self.expired_dropped].into_iter().fold(0, u64::saturating_add)
    }

    fn from_wire(stats: v1::QueueStats) -> Self {
        Self {
            ready: stats.ready,
            delayed: stats.delayed,
            blocked: stats.blocked,
            leased: stats.leased,
            bytes: stats.bytes,
            enqueued: stats.enqueued,
            moved_in: stats.moved_in,
            acked: stats.acked,
            moved_out: stats.moved_out,
            expired_dropped: stats.expired_dropped,
            cancelled: stats.cancelled,
            purged: stats.purged,
            dropped: stats.dropped,
            received: stats.received,
            redelivered: stats.redelivered,
            failed: stats.failed,
            lease_expired: stats.lease_expired,
            over_bound: stats.over_bound,
            oldest_ready_at: wire::maybe_time(stats.oldest_ready_at),
            oldest_ready_age: stats.oldest_ready_age.and_then(wire::duration),
            duplicates: stats.duplicates,
            outcomes_dropped: stats.outcomes_dropped,
            dedup_ids: stats.dedup_ids,
            retained: stats.retained,
            groups_blocked: stats.groups_blocked,
            rate: stats.rate,
            oldest_parked_at: wire::maybe_time(stats.oldest_parked_at),
            oldest_parked_age: stats.oldest_parked_age.and_then(wire::duration),
        }
    }
}

/// What a node is in its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// It leads: changes go through it.
    Leader,
    /// It follows a leader.
    Follower,
    /// It asks to be elected.
    Candidate,
    /// It follows without a vote.
    Learner,
    /// A role of a newer server.
    Other,
}

impl Role {
    /// The role's name.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::Leader => "leader",
            Role::Follower => "follower",
            Role::Candidate => "candidate",
            Role::Learner => "learner",
            Role::Other => "other",
        }
    }
}

/// A node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeStatus {
    /// The server's version.
    pub version: String,
    /// The cluster's id.
    pub cluster_id: String,
    /// The node's Raft id.
    pub node: u64,
    /// What it is now.
    pub role: Role,
    /// Its term.
    pub term: u64,
    /// The leader's Raft id, as this node knows it.
    pub leader: Option<u64>,
    /// The index of its last log entry.
    pub last_log_index: u64,
    /// The index up to which its state is applied.
    pub applied_index: u64,
    /// Cluster time at that entry.
    pub cluster_time: SystemTime,
    /// The disk under its data directory.
    pub disk: DiskStatus,
    /// Whether it is shutting down.
    pub draining: bool,
    /// How long it has been running.
    pub uptime: Duration,
    /// Settings in force that weaken a guarantee.
    pub unsafe_settings: Vec<String>,
    /// Long polls that wait for messages now.
    pub parked_receives: u64,
}

impl NodeStatus {
    fn from_wire(status: v1::GetStatusResponse) -> Self {
        let role = match status.role() {
            v1::NodeRole::Unspecified => Role::Other,
            v1::NodeRole::Leader => Role::Leader,
            v1::NodeRole::Follower => Role::Follower,
            v1::NodeRole::Candidate => Role::Candidate,
            v1::NodeRole::Learner => Role::Learner,
        };
        let disk = status.disk.unwrap_or_default();
        Self {
            parked_receives: status.parked_receives,
            version: status.version,
            cluster_id: status.cluster_id,
            node: status.node,
            role,
            term: status.term,
            leader: (status.leader != 0).then_some(status.leader),
            last_log_index: status.last_log_index,
            applied_index: status.applied_index,
            cluster_time: wire::some_time(status.cluster_time),
            disk: DiskStatus {
                free_bytes: disk.free_bytes,
                total_bytes: disk.total_bytes,
                low_watermark_bytes: disk.low_watermark_bytes,
                low: disk.low,
            },
            draining: status.draining,
            uptime: status.uptime.and_then(wire::duration).unwrap_or_default(),
            unsafe_settings: status.unsafe_settings,
        }
    }
}

/// A disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DiskStatus {
    /// Bytes free for the server.
    pub free_bytes: u64,
    /// The size of its file system, in bytes.
    pub total_bytes: u64,
    /// Enqueues are refused while less than this is free, in bytes.
    pub low_watermark_bytes: u64,
    /// Whether that is so now.
    pub low: bool,
}
