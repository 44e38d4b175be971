//! Every bound of the machine, with its reason. Times are in milliseconds, sizes in bytes.

/// The longest name: fits a key, a metric label and a terminal line.
pub const NAME_BYTES: usize = 200;
/// The largest body: large payloads belong in an object store, with a reference here.
pub const BODY_BYTES: usize = 1 << 20;
/// The largest body that configuration may allow: an entry holds at most 8 MiB and must hold one message whole.
pub const BODY_BYTES_CONFIGURABLE: usize = 4 << 20;
/// Bodies up to this size stand inside the message record; larger ones in a key space of their own, so that compaction
/// of records does not move them.
pub const BODY_INLINE_BYTES: usize = 4 << 10;
/// Tags of a message.
pub const TAGS: usize = 64;
/// One side of a tag, in bytes.
pub const TAG_BYTES: usize = 256;
/// All headers of a message together, names and values.
pub const HEADERS_BYTES: usize = 16 << 10;
/// Content type, type, correlation id, reply-to and worker, each.
pub const FIELD_BYTES: usize = 256;
/// Messages of one enqueue, settlements of one settle, each of both in one commit, deliveries of one receive.
pub const BATCH: usize = 1_000;
/// Bytes of one batch, and of a receive's reply by default.
pub const BATCH_BYTES: usize = 4 << 20;
/// The shortest lease: shorter ones expire while the reply travels.
pub const LEASE_MIN_MS: u64 = 1_000;
/// The longest lease, and the longest time after its grant to which it can be extended.
pub const LEASE_MAX_MS: u64 = 12 * HOUR_MS;
/// A queue's lease unless it says otherwise.
pub const LEASE_DEFAULT_MS: u64 = 60_000;
/// The longest a receive may wait: load balancers cut silent calls at about that time.
pub const WAIT_MAX_MS: u64 = 60_000;
/// A receive's wait unless it says otherwise.
pub const WAIT_DEFAULT_MS: u64 = 10_000;
/// The longest delay.
pub const DELAY_MAX_MS: u64 = 366 * DAY_MS;
/// The attempt budget unless a queue says otherwise.
pub const ATTEMPTS_DEFAULT: u32 = 5;
/// The largest attempt budget; 0 means without limit.
pub const ATTEMPTS_MAX: u32 = 100;
/// The window in which failures are counted, unless a queue says otherwise.
pub const FAILURE_WINDOW_DEFAULT_MS: u64 = DAY_MS;
/// The longest failure window.
pub const FAILURE_WINDOW_MAX_MS: u64 = 366 * DAY_MS;
/// The base of the backoff: the n-th failure waits up to base * 2^n.
pub const BACKOFF_BASE_DEFAULT_MS: u64 = 1_000;
/// The cap of the backoff.
pub const BACKOFF_CAP_DEFAULT_MS: u64 = 60_000;
/// The longest backoff that a queue may ask for.
pub const BACKOFF_MAX_MS: u64 = DAY_MS;
/// A queue's depth bound unless it says otherwise; 0 means without limit.
pub const DEPTH_DEFAULT: u64 = 1_000_000;
/// Failures kept of each message.
pub const HISTORY: u64 = 16;
/// The text of a failure; its code gets `FIELD_BYTES`.
pub const FAILURE_TEXT_BYTES: usize = 512;
/// The reason and the author of a pause, each.
pub const NOTE_BYTES: usize = 512;
/// The output of an ack.
pub const OUTPUT_BYTES: usize = 64 << 10;
/// The priority of a message that names none.
pub const PRIORITY_DEFAULT: u8 = 4;
/// The first priority to be served; the last is 0.
pub const PRIORITY_MAX: u8 = 9;
/// A group's name and a dedup id, each: they stand in keys.
pub const ID_BYTES: usize = 256;
/// Queues of one receive: each costs a read where it is empty.
pub const RECEIVE_QUEUES: usize = 16;
/// The longest time to live.
pub const TTL_MAX_MS: u64 = 366 * DAY_MS;
/// How long a dedup id is remembered, unless a queue says otherwise.
pub const DEDUP_WINDOW_DEFAULT_MS: u64 = HOUR_MS;
/// The longest dedup window.
pub const DEDUP_WINDOW_MAX_MS: u64 = 30 * DAY_MS;
/// Dedup ids that a queue remembers: each is two small records.
pub const DEDUP_IDS: u64 = 10_000_000;
/// The longest that outcomes of acks can be read: they are for whoever waits, not an archive.
pub const RETAIN_DONE_MAX_MS: u64 = 7 * DAY_MS;
/// Outcomes that a queue keeps.
pub const RETAIN_DONE: u64 = 1_000_000;
/// Rules of shedding of a queue: one a priority.
pub const SHED_RULES: usize = 10;
/// The longest `max_wait`, and the longest `age_slo`.
pub const MAX_WAIT_MAX_MS: u64 = 366 * DAY_MS;
/// The highest `expected_rate`, in thousandths of a message a second: a million messages a second.
pub const EXPECTED_RATE_MAX_MILLI: u64 = 1_000_000_000;
/// Time that one bucket of a queue's rate holds, in milliseconds of cluster time.
pub const RATE_BUCKET_MS: u64 = 10_000;
/// Buckets of a queue's rate, the current one included.
pub const RATE_BUCKETS: u64 = 6;
/// Busy time after which a queue's rate is believed.
pub const RATE_BUSY_MS: u64 = 10_000;
/// Finished messages after which a queue's rate is believed for the first time.
pub const RATE_FINISHED: u64 = 50;
/// The lowest rate that is reckoned with: one message in so many milliseconds.
pub const RATE_LOWEST_MS: u64 = 60_000;
/// A request's own id, where it has no session: as long as a UUID.
pub const TOKEN_BYTES: usize = 16;
/// Time that one bucket of such ids holds, in milliseconds of the lease clock.
pub const TOKEN_BUCKET_MS: u64 = 5 * 60_000;
/// Outcomes of such requests, in all buckets.
pub const TOKENS: u64 = 200_000;
/// Namespaces with defaults of their own.
pub const NAMESPACES: u64 = 10_000;

/// Keys that one scan in `apply` looks at: an entry takes milliseconds, never seconds.
pub const SCAN_KEYS: usize = 1_000;
/// Expired messages that one receive ends: each may have as many rows as it failed.
pub const RECEIVE_EXPIRED: usize = 200;
/// Messages that one Tick moves to the dead letters behind the head of their group.
pub const TICK_DRAINED: usize = 1_000;
/// Timers that one Tick fires: each writes a handful of keys.
pub const TICK_TIMERS: usize = 1_000;
/// Leases that one Expire ends.
pub const EXPIRE_LEASES: usize = 1_000;
/// Keys that one entry may write.
pub const ENTRY_KEYS: usize = 10_000;
/// Bytes that one entry may write.
pub const ENTRY_BYTES: usize = 8 << 20;
/// Requests of one entry.
pub const ENTRY_REQUESTS: usize = 256;
/// Bytes at which the proposer closes an entry; one larger request may still be an entry of its own.
pub const ENTRY_TARGET_BYTES: usize = 1 << 20;
/// Cluster time that one entry of the same term may add: a leap of a clock moves nothing by more.
pub const CLOCK_STEP_MS: u64 = 10_000;

/// Requests of one stream that are read and not yet answered: enough to keep every entry full, a quarter of a session's
/// outcomes.
pub const STREAM_REQUESTS: usize = 256;
/// Bytes of those requests: four batches of full size.
pub const STREAM_BYTES: usize = 16 << 20;
/// Credits of one consumer: ten receives of full size.
pub const CREDITS: u32 = 10_000;

/// Outcomes stored for one session; a client that asks for more must first say what it has seen.
pub const SESSION_OUTCOMES: u64 = 1_024;
/// Idle time, on the lease clock, after which a session ends.
pub const SESSION_IDLE_MS: u64 = 10 * 60_000;
/// Sessions at one time.
pub const SESSIONS: u64 = 100_000;
/// Queues at one time: each costs a record and a metric series.
pub const QUEUES: u64 = 100_000;
/// The largest page of a listing or a peek.
pub const PAGE: usize = 1_000;

/// A timer that is due within this time is never deleted early: it fires and finds nothing to do.
pub const TIMER_LAZY_MS: u64 = 10 * 60_000;

/// Retry-After where the queue has no drain rate to reckon with.
pub const RETRY_AFTER_MS: u64 = 1_000;
/// The shortest Retry-After.
pub const RETRY_AFTER_MIN_MS: u64 = 100;
/// The longest Retry-After.
pub const RETRY_AFTER_MAX_MS: u64 = 60_000;

/// One hour in milliseconds.
pub const HOUR_MS: u64 = 3_600_000;
/// One day in milliseconds.
pub const DAY_MS: u64 = 24 * HOUR_MS;
