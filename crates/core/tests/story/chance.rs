//! What chance may bring: strategies for settings, messages, acts and whole stories.

use proptest::prelude::*;
use ticketrail_core::command::{
    Ack, Extend, Failure, QueueSettings, Release, Retry, RetryPolicy, Shed, ShedRule, Verdict,
};

use super::{Act, Aim, ClockMove, NewMessage, NewTime, Scene, Seq, Settling, Which};

const DAY: u64 = 86_400_000;

/// Limits small enough to be met, and now and then one that is refused.
fn settings() -> impl Strategy<Value = QueueSettings> {
    let small = (
        proptest::option::weighted(0.4, 0u64..8),
        proptest::option::weighted(0.2, 0u64..400),
        proptest::option::weighted(0.4, prop_oneof![Just(1_000u64), 1_000u64..30_000]),
        proptest::option::weighted(0.6, 0u32..4),
    );
    let slow = (
        proptest::option::weighted(0.4, prop_oneof![Just(1_000u64), 1_000u64..100_000]),
        proptest::option::weighted(0.3, prop_oneof![Just(1u64), 1u64..5_000]),
        proptest::option::weighted(0.3, 5_000u64..50_000),
        proptest::option::weighted(
            0.3,
            prop_oneof![Just(String::new()), Just("graves".into()), Just("mail".into()), Just("a b".into())],
        ),
    );
    let rules = proptest::collection::vec((0u32..100, 1u32..10), 0..3).prop_map(|rules| {
        let rule = |(above_percent, below_priority)| ShedRule { above_percent, below_priority };
        Shed { rules: rules.into_iter().map(rule).collect() }
    });
    let crowd = (
        proptest::option::weighted(0.3, prop_oneof![1 => Just(0u64), 4 => 1u64..5_000]),
        proptest::option::weighted(0.5, prop_oneof![1 => Just(0u64), 4 => 100u64..5_000]),
        proptest::option::weighted(0.2, rules),
        proptest::option::weighted(0.5, 0i32..3),
    );
    let time = (
        proptest::option::weighted(0.2, prop_oneof![2 => Just(0u64), 1 => 1u64..20_000]),
        proptest::option::weighted(0.3, prop_oneof![Just(0u64), 1u64..50_000]),
        proptest::option::weighted(0.4, 1_000u64..30_000),
        proptest::option::weighted(0.4, 0i32..2),
        proptest::option::weighted(0.3, 0i32..2),
    );
    (small, slow, crowd, time, 0u8..80).prop_map(|(small, slow, crowd, time, odd)| {
        let (max_depth, max_bytes, lease_ms, max_attempts) = small;
        let (failure_window_ms, backoff_base_ms, backoff_cap_ms, dead_letter_queue) = slow;
        let (max_wait_ms, expected_rate_milli, shed, on_group_failure) = crowd;
        let (ttl_ms, retain_done_ms, dedup_window_ms, on_expired, on_exhausted) = time;
        let mut settings = QueueSettings {
            max_depth,
            max_bytes,
            lease_ms,
            max_attempts,
            failure_window_ms,
            backoff_base_ms,
            backoff_cap_ms,
            dead_letter_queue,
            max_wait_ms,
            expected_rate_milli,
            on_group_failure,
            shed,
            ttl_ms,
            retain_done_ms,
            dedup_window_ms,
            on_expired,
            on_exhausted,
            ..QueueSettings::default()
        };
        match odd {
            0 => settings.lease_ms = Some(999),
            1 => settings.lease_ms = Some(43_200_001),
            2 => settings.max_attempts = Some(101),
            3 => settings.failure_window_ms = Some(999),
            4 => settings.backoff_base_ms = Some(0),
            5 => settings.backoff_cap_ms = Some(DAY + 1),
            6 => settings.max_wait_ms = Some(366 * DAY + 1),
            7 => settings.expected_rate_milli = Some(1_000_000_001),
            8 => settings.on_group_failure = Some(3),
            9 => settings.shed = Some(Shed { rules: vec![ShedRule { above_percent: 100, below_priority: 5 }] }),
            10 => settings.shed = Some(Shed { rules: vec![ShedRule { above_percent: 50, below_priority: 0 }] }),
            11 => settings.ttl_ms = Some(366 * DAY + 1),
            12 => settings.retain_done_ms = Some(7 * DAY + 1),
            13 => settings.dedup_window_ms = Some(999),
            14 => settings.on_expired = Some(2),
            15 => settings.on_exhausted = Some(-1),
            16 => settings.owner = Some("ann".into()),
            17 => settings.age_slo_ms = Some(5_000),
            18 => settings.runbook_url = Some("https://example.org/orders".into()),
            _ => {}
        }
        // One thing wrong at a time.
        if odd < 16 {
            settings.dead_letter_queue = None;
        }
        settings
    })
}

fn retry() -> impl Strategy<Value = RetryPolicy> {
    prop_oneof![
        (0u32..4).prop_map(|attempts| RetryPolicy { max_attempts: Some(attempts), ..RetryPolicy::default() }),
        (1u64..500, 500u64..5_000).prop_map(|(base, cap)| RetryPolicy {
            max_attempts: Some(3),
            backoff_base_ms: Some(base),
            backoff_cap_ms: Some(cap),
        }),
    ]
}

fn message() -> impl Strategy<Value = NewMessage> {
    let size = prop_oneof![8 => 0usize..60, 1 => Just(4_097usize), 1 => 4_000usize..9_000];
    let when = (
        prop_oneof![14 => Just(0u64), 5 => 1u64..20_000, 1 => Just(3_600_000u64)],
        prop_oneof![16 => Just(None), 3 => (-5_000i64..20_000).prop_map(Some)],
    );
    let keys = (
        prop_oneof![2 => Just(0u8), 4 => 1u8..4],
        proptest::option::weighted(0.4, prop_oneof![2 => 3u32..6, 1 => 0u32..10]),
        prop_oneof![4 => Just(0u8), 2 => 1u8..5],
    );
    let end = (
        prop_oneof![6 => Just(0u64), 1 => 1u64..20_000],
        prop_oneof![12 => Just(None), 1 => (20_000i64..40_000).prop_map(Some), 1 => (-5_000i64..20_000).prop_map(Some)],
        proptest::option::weighted(0.1, retry()),
        prop_oneof![20 => Just(""), 1 => Just("graves"), 1 => Just("mail")],
    );
    (pick(), size, when, any::<bool>(), keys, end, 0u8..60).prop_map(
        |(queue, size, (delay_ms, deliver_in_ms), tagged, (group, priority, dedup), end, odd)| {
            let (ttl_ms, expires_in_ms, retry, grave) = end;
            let mut message = NewMessage {
                queue,
                size,
                delay_ms,
                deliver_in_ms,
                tagged,
                group,
                priority,
                dedup,
                ttl_ms,
                expires_in_ms,
                retry,
                grave,
            };
            // One thing wrong at a time.
            if odd < 7 {
                message = NewMessage { expires_in_ms: None, delay_ms: 0, deliver_in_ms: None, grave: "", ..message };
            }
            match odd {
                0 => message.delay_ms = 366 * DAY + 1,
                1 => message.deliver_in_ms = Some(400 * 86_400_000),
                2 => message.priority = Some(10),
                3 => message.ttl_ms = 366 * DAY + 1,
                4 => message.grave = "a b",
                5 => message.retry = Some(RetryPolicy { max_attempts: Some(101), ..RetryPolicy::default() }),
                6 => message.retry = Some(RetryPolicy { backoff_base_ms: Some(0), ..RetryPolicy::default() }),
                _ => {}
            }
            message
        },
    )
}

fn verdict() -> impl Strategy<Value = Verdict> {
    let failure = (0u8..3, 0usize..20).prop_map(|(code, text)| Failure {
        code: ["", "timeout", "declined"][code as usize].into(),
        text: "x".repeat(text),
    });
    let output = prop_oneof![20 => 0usize..30, 1 => Just((64usize << 10) + 1)];
    let delay = prop_oneof![Just(0u64), 1u64..20_000, Just(400 * DAY)];
    let extend = prop_oneof![Just(0u64), Just(1_000u64), 1_000u64..60_000, Just(12 * 3_600_000), Just(500u64)];
    prop_oneof![
        5 => output.prop_map(|size| Verdict::Ack(Ack { output: vec![b'o'; size].into() })),
        5 => (proptest::option::weighted(0.5, failure.clone()), proptest::option::weighted(0.3, delay))
            .prop_map(|(failure, delay_ms)| Verdict::Retry(Retry { failure, delay_ms })),
        4 => failure.prop_map(Verdict::Reject),
        2 => Just(Verdict::Release(Release {})),
        2 => extend.prop_map(|lease_ms| Verdict::Extend(Extend { lease_ms })),
    ]
}

fn settling() -> impl Strategy<Value = Settling> {
    let which = prop_oneof![
        12 => any::<u8>().prop_map(Which::Live),
        3 => any::<u16>().prop_map(Which::Any),
        1 => any::<u8>().prop_map(Which::Forged),
        1 => any::<u8>().prop_map(Which::Nonsense),
        1 => any::<u8>().prop_map(Which::Malformed),
    ];
    (which, verdict()).prop_map(|(which, verdict)| Settling { which, verdict })
}

fn aim() -> impl Strategy<Value = Aim> {
    prop_oneof![
        8 => any::<u8>().prop_map(Aim::Here),
        2 => any::<u16>().prop_map(Aim::Any),
        6 => (pick(), 1u8..5).prop_map(|(queue, id)| Aim::Dedup(queue, id)),
        1 => any::<u8>().prop_map(Aim::Nonsense),
    ]
}

fn new_time() -> impl Strategy<Value = NewTime> {
    let delay = prop_oneof![3 => Just(0u64), 6 => 1u64..20_000, 1 => Just(366 * DAY + 1)];
    let deliver = prop_oneof![6 => Just(None), 3 => (-5_000i64..20_000).prop_map(Some)];
    (aim(), delay, deliver).prop_map(|(aim, delay_ms, deliver_in_ms)| NewTime { aim, delay_ms, deliver_in_ms })
}

/// Mostly `orders` and its dead letters.
fn pick() -> impl Strategy<Value = u8> {
    prop_oneof![6 => Just(0u8), 3 => Just(1u8), 2 => 2u8..6]
}

/// One queue, or several of a namespace, or now and then what no receive may ask for.
fn picks() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        8 => pick().prop_map(|pick| vec![pick]),
        6 => proptest::collection::vec(0u8..5, 2..5),
        1 => proptest::collection::vec(0u8..6, 0..20),
    ]
}

/// Enqueues, settlements, cancels and reschedules together.
pub(crate) fn commit() -> impl Strategy<Value = Act> {
    let messages = proptest::collection::vec(message(), 0..5);
    let settlings = proptest::collection::vec(settling(), 0..3);
    let cancels = prop_oneof![2 => Just(Vec::new()), 1 => proptest::collection::vec(aim(), 0..3)];
    let reschedules = prop_oneof![2 => Just(Vec::new()), 1 => proptest::collection::vec(new_time(), 0..3)];
    (messages, settlings, cancels, reschedules, proptest::bool::weighted(0.9), any::<bool>()).prop_map(
        |(messages, settlings, cancels, reschedules, auto_create, atomic)| Act::Commit {
            messages,
            settlings,
            cancels,
            reschedules,
            auto_create,
            atomic,
        },
    )
}

/// Cancels and reschedules alone, or settlements alone.
fn narrow_commit() -> impl Strategy<Value = Act> {
    let settles = (proptest::collection::vec(settling(), 1..5), Just(Vec::new()), Just(Vec::new()));
    let aims = (Just(Vec::new()), proptest::collection::vec(aim(), 0..3), proptest::collection::vec(new_time(), 0..3));
    (prop_oneof![2 => settles.boxed(), 1 => aims.boxed()], proptest::bool::weighted(0.2)).prop_map(
        |((settlings, cancels, reschedules), atomic)| Act::Commit {
            messages: Vec::new(),
            settlings,
            cancels,
            reschedules,
            auto_create: false,
            atomic,
        },
    )
}

fn receive() -> impl Strategy<Value = Act> {
    let max = prop_oneof![30 => 1u32..6, 1 => Just(0u32), 2 => Just(1_000u32), 1 => Just(1_001u32)];
    let max_bytes = prop_oneof![4 => Just(0u64), 1 => 1u64..200];
    let lease = prop_oneof![12 => Just(0u64), 10 => 1_000u64..20_000, 1 => Just(999u64)];
    (picks(), max, max_bytes, lease, 0u8..3, proptest::bool::weighted(0.15)).prop_map(
        |(mut queues, mut max, max_bytes, lease_ms, worker, auto_ack)| {
            // One thing wrong at a time.
            if lease_ms == 999 {
                (queues, max) = (vec![0], 1);
            } else if max == 0 || max > 1_000 {
                queues = vec![0];
            }
            Act::Receive { queues, max, max_bytes, lease_ms, worker, auto_ack }
        },
    )
}

/// A request that is no wrapper.
pub(crate) fn plain_act() -> impl Strategy<Value = Act> {
    prop_oneof![
        2 => (pick(), settings()).prop_map(|(queue, settings)| Act::Create(queue, settings)),
        4 => (pick(), settings()).prop_map(|(queue, settings)| Act::Update(queue, settings)),
        1 => pick().prop_map(Act::Delete),
        1 => pick().prop_map(Act::Purge),
        1 => (pick(), proptest::option::of(0u64..20_000)).prop_map(|(queue, until)| Act::Pause(queue, until)),
        4 => pick().prop_map(Act::Resume),
        2 => (pick(), proptest::bool::weighted(0.2)).prop_map(|(queue, closed)| Act::Close(queue, closed)),
        1 => (pick(), settings(), proptest::option::weighted(0.5, proptest::bool::weighted(0.7)))
            .prop_map(|(queue, settings, auto_create)| Act::SetNamespace(queue, settings, auto_create)),
        1 => pick().prop_map(Act::DeleteNamespace),
        18 => commit(),
        24 => narrow_commit(),
        30 => receive(),
        8 => any::<u8>().prop_map(|others| Act::Expire { others }),
        1 => Just(Act::OpenSession),
        1 => any::<u8>().prop_map(Act::RenewSession),
    ]
}

fn act() -> impl Strategy<Value = Act> {
    let seq = prop_oneof![
        5 => (0u8..3).prop_map(Seq::Next),
        5 => any::<u8>().prop_map(Seq::Repeat),
        1 => any::<u8>().prop_map(Seq::Reuse),
        1 => Just(Seq::Zero),
    ];
    prop_oneof![
        30 => plain_act(),
        12 => (any::<u8>(), seq, prop_oneof![4 => 4u8..20, 1 => 0u8..4], plain_act())
            .prop_map(|(session, seq, acked_below, act)| Act::Request { session, seq, acked_below, act: Box::new(act) }),
        6 => (0u8..6, proptest::bool::weighted(0.9), plain_act())
            .prop_map(|(token, again, act)| Act::Token { token, again, act: Box::new(act) }),
        1 => Just(Act::Init),
    ]
}

fn clock_move() -> impl Strategy<Value = ClockMove> {
    prop_oneof![
        6 => (0u64..2_000).prop_map(ClockMove::By),
        2 => (0u64..15_000).prop_map(ClockMove::By),
        1 => Just(ClockMove::By(3_600_000)),
        1 => (0u64..100_000).prop_map(ClockMove::Back),
        3 => (-1i64..2).prop_map(ClockMove::ToDue),
        3 => (-1i64..2).prop_map(ClockMove::ToDeadline),
        1 => prop_oneof![Just(0u64), 0u64..100_000, Just(600_000u64)].prop_map(ClockMove::NewTerm),
    ]
}

/// Timers fire in entries of their own, as do batches; so does an expiry, whose jitter is heard only after its entry.
pub(crate) fn scene() -> impl Strategy<Value = Scene> {
    let acts = proptest::collection::vec(act(), 1..6);
    prop_oneof![
        1 => clock_move().prop_map(|clock| Scene { clock, acts: vec![Act::Tick] }),
        4 => (-1i64..2).prop_map(|ms| Scene { clock: ClockMove::ToDue(ms), acts: vec![Act::Tick] }),
        4 => ((-1i64..2), any::<u8>())
            .prop_map(|(ms, others)| Scene { clock: ClockMove::ToDeadline(ms), acts: vec![Act::Expire { others }] }),
        14 => (clock_move(), acts).prop_map(|(clock, acts)| Scene { clock, acts }),
    ]
}

/// A whole story.
pub(crate) fn story(scenes: usize) -> impl Strategy<Value = Vec<Scene>> {
    proptest::collection::vec(scene(), 1..scenes).prop_map(|mut scenes| {
        let acts = vec![Act::OpenSession, Act::Create(0, QueueSettings::default())];
        scenes.insert(0, Scene { clock: ClockMove::By(0), acts });
        scenes
    })
}
