//! How the clerk words what the machine shows of clocks, queues, leases, outcomes and namespaces.

use std::fmt::Write as _;

use ticketrail_core::command::{OnExhausted, OnExpired, OnGroupFailure, QueueRef, Shed, ShedRule};
use ticketrail_core::{Answer, MessageId, Query};

use super::say::{body, short};
use super::{Clerk, Said, at, span};
use crate::model::queue::defaults as usual_settings;

impl Clerk {
    pub(super) fn clock(&self) -> Said {
        let Answer::Clock(clock) = self.machine.ask(&Query::Clock)? else { return Err("expected the clock".into()) };
        Ok(format!("cluster {} lease {} term {}", at(clock.cluster.0), span(clock.lease.0), clock.term))
    }

    pub(super) fn stats(&self, queue: &QueueRef) -> Said {
        let Answer::Queue(found) = self.machine.ask(&Query::Queue(queue.clone()))? else {
            return Err("expected a queue".into());
        };
        let Some(info) = found else { return Ok("no such queue".into()) };
        let stats = info.stats;
        crate::harness::conserved(&stats)?;
        let mut said =
            format!("ready {} delayed {} leased {} bytes {}", stats.ready, stats.delayed, stats.leased, stats.bytes);
        // The rest only where there is something to tell.
        for (name, count) in [
            ("blocked", stats.blocked),
            ("dedup ids", stats.dedup_ids),
            ("retained", stats.retained),
            ("groups blocked", stats.groups_blocked),
        ] {
            if count > 0 {
                let _ = write!(said, " {name} {count}");
            }
        }
        if let Some(rate) = stats.rate_milli {
            let _ = write!(said, " rate {}.{:03}/s", rate / 1_000, rate % 1_000);
        }
        if let Some(parked) = stats.oldest_parked_at {
            let _ = write!(said, " oldest parked since {}", at(parked.0));
        }
        if let Some(oldest) = stats.oldest_ready_at {
            let _ = write!(said, " oldest ready since {}", at(oldest.0));
        }
        said.push('\n');
        // Only what ever happened.
        let counters = [
            ("enqueued", stats.enqueued),
            ("moved_in", stats.moved_in),
            ("acked", stats.acked),
            ("moved_out", stats.moved_out),
            ("expired_dropped", stats.expired_dropped),
            ("cancelled", stats.cancelled),
            ("purged", stats.purged),
            ("dropped", stats.dropped),
            ("received", stats.received),
            ("redelivered", stats.redelivered),
            ("failed", stats.failed),
            ("lease_expired", stats.lease_expired),
            ("over_bound", stats.over_bound),
            ("duplicates", stats.duplicates),
            ("outcomes_dropped", stats.outcomes_dropped),
        ];
        let counted: Vec<String> =
            counters.iter().filter(|(_, count)| *count > 0).map(|(name, count)| format!("{name} {count}")).collect();
        let _ = writeln!(said, "ever: {}", if counted.is_empty() { "nothing".into() } else { counted.join(" ") });
        Ok(said)
    }

    pub(super) fn queues(&self) -> Said {
        let query = Query::Queues { namespace: "default".into(), after: String::new(), limit: 100 };
        let Answer::Queues(found) = self.machine.ask(&query)? else { return Err("expected queues".into()) };
        let mut said = String::new();
        for info in &found {
            let _ = writeln!(said, "{} depth {}", short(&info.name), info.stats.depth());
        }
        Ok(if said.is_empty() { "none".into() } else { said })
    }

    pub(super) fn queue_settings(&self, queue: &QueueRef) -> Said {
        let Answer::Queue(found) = self.machine.ask(&Query::Queue(queue.clone()))? else {
            return Err("expected a queue".into());
        };
        let Some(info) = found else { return Ok("no such queue".into()) };
        let settings = info.settings;
        let usual = usual_settings();
        let number = |value: Option<u64>| value.map_or("absent".into(), |value| value.to_string());
        let time = |value: Option<u64>| value.map_or("absent".into(), span);
        let mut said = format!("queue {} since {}\n", info.id.0, at(info.created_at.0));
        let _ = writeln!(
            said,
            "max_depth {} max_bytes {} lease {} max_attempts {} failure_window {}",
            number(settings.max_depth),
            number(settings.max_bytes),
            time(settings.lease_ms),
            number(settings.max_attempts.map(u64::from)),
            time(settings.failure_window_ms)
        );
        let _ = writeln!(
            said,
            "backoff from {} to {}, dead letters to {:?}",
            time(settings.backoff_base_ms),
            time(settings.backoff_cap_ms),
            settings.dead_letter_queue.clone().unwrap_or_else(|| "absent".into())
        );
        let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "absent".into());
        let rules = |shed: &Option<Shed>| {
            let shed = shed.clone().unwrap_or_default();
            let rule = |rule: &ShedRule| format!("{}%:{}", rule.above_percent, rule.below_priority);
            shed.rules.iter().map(rule).collect::<Vec<_>>().join(",")
        };
        let policy =
            settings.on_group_failure.and_then(|policy| OnGroupFailure::try_from(policy).ok()).unwrap_or_default();
        let on_expired = settings.on_expired.and_then(|what| OnExpired::try_from(what).ok()).unwrap_or_default();
        let on_exhausted = settings.on_exhausted.and_then(|what| OnExhausted::try_from(what).ok()).unwrap_or_default();
        // Of the rest only what differs from the defaults.
        for (differs, words) in [
            (settings.max_wait_ms != usual.max_wait_ms, format!("max_wait {}", time(settings.max_wait_ms))),
            (
                settings.expected_rate_milli != usual.expected_rate_milli,
                format!("expected_rate {}", number(settings.expected_rate_milli)),
            ),
            (settings.on_group_failure != usual.on_group_failure, format!("on_group_failure {policy:?}")),
            (settings.shed != usual.shed, format!("shed {}", rules(&settings.shed))),
            (settings.ttl_ms != usual.ttl_ms, format!("ttl {}", time(settings.ttl_ms))),
            (settings.retain_done_ms != usual.retain_done_ms, format!("retain_done {}", time(settings.retain_done_ms))),
            (settings.owner != usual.owner, format!("owner {}", text(&settings.owner))),
            (settings.runbook_url != usual.runbook_url, format!("runbook {}", text(&settings.runbook_url))),
            (settings.age_slo_ms != usual.age_slo_ms, format!("age_slo {}", time(settings.age_slo_ms))),
            (
                settings.dedup_window_ms != usual.dedup_window_ms,
                format!("dedup_window {}", time(settings.dedup_window_ms)),
            ),
            (settings.on_expired != usual.on_expired, format!("on_expired {on_expired:?}")),
            (settings.on_exhausted != usual.on_exhausted, format!("on_exhausted {on_exhausted:?}")),
        ] {
            if differs {
                let _ = writeln!(said, "{words}");
            }
        }
        if let Some(pause) = info.paused {
            let until = if pause.until_ms == 0 { "resumed".into() } else { at(pause.until_ms) };
            let _ = writeln!(said, "paused until {until} by {:?}: {:?}", pause.author, pause.reason);
        }
        if info.closed {
            said.push_str("closed\n");
        }
        Ok(said)
    }

    pub(super) fn say_leases(&self) -> Said {
        let Answer::Leases(leases) = self.machine.ask(&Query::Leases { after: None, limit: 100 })? else {
            return Err("expected leases".into());
        };
        let mut said = String::new();
        for lease in &leases {
            let left = lease.deadline.0.saturating_sub(self.machine.model.clock.lease);
            let _ = writeln!(
                said,
                "{} sequence {} with {:?} for {}",
                self.queue_name(lease.queue.0),
                lease.sequence,
                lease.worker,
                span(left)
            );
        }
        Ok(if said.is_empty() { "none".into() } else { said })
    }

    pub(super) fn outcome(&self, id: MessageId) -> Said {
        let Answer::Outcome(found) = self.machine.ask(&Query::Outcome(id))? else {
            return Err("expected an outcome".into());
        };
        Ok(found.map_or("no outcome".into(), |done| {
            format!(
                "{} acked in {} at {} by {:?}, received {} times, output {}, kept until {}",
                self.name(done.id),
                short(&done.queue),
                at(done.finished_at.0),
                done.worker,
                done.receive_count,
                body(&done.output),
                at(done.kept_until.0)
            )
        }))
    }

    pub(super) fn namespaces(&self) -> Said {
        let query = Query::Namespaces { after: String::new(), limit: 100 };
        let Answer::Namespaces(found) = self.machine.ask(&query)? else { return Err("expected namespaces".into()) };
        let mut said = String::new();
        for info in &found {
            let creates = if info.auto_create { "makes queues" } else { "makes no queues" };
            let _ = writeln!(said, "{} {creates}", info.name);
        }
        Ok(if said.is_empty() { "none".into() } else { said })
    }
}
