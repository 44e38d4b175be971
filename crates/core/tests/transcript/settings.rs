//! Settings as a script writes them.

use std::error::Error;

use goldenscript::ArgumentConsumer;
use ticketrail_core::command::{QueueSettings, Shed, ShedRule};

use super::millis;

/// `max_depth=3 lease=30s shed=80%:5,90%:9`: all keys that are left.
pub(super) fn settings(args: &mut ArgumentConsumer<'_>) -> Result<QueueSettings, Box<dyn Error>> {
    let mut settings = QueueSettings::default();
    while let Some((key, value)) = args.next_key() {
        match key {
            "max_depth" => settings.max_depth = Some(value.parse()?),
            "max_bytes" => settings.max_bytes = Some(value.parse()?),
            "lease" => settings.lease_ms = Some(millis(value)?),
            "max_attempts" => settings.max_attempts = Some(value.parse()?),
            "failure_window" => settings.failure_window_ms = Some(millis(value)?),
            "backoff_base" => settings.backoff_base_ms = Some(millis(value)?),
            "backoff_cap" => settings.backoff_cap_ms = Some(millis(value)?),
            "dead_letter_queue" => settings.dead_letter_queue = Some(value.into()),
            "max_wait" => settings.max_wait_ms = Some(millis(value)?),
            "expected_rate" => settings.expected_rate_milli = Some(value.parse()?),
            "on_group_failure" => {
                let policies = ["continue", "block", "dead_letter_group"];
                settings.on_group_failure = Some(number_of(value, &policies)?);
            }
            "shed" => settings.shed = Some(shed(value)?),
            "ttl" => settings.ttl_ms = Some(millis(value)?),
            "retain_done" => settings.retain_done_ms = Some(millis(value)?),
            "owner" => settings.owner = Some(value.into()),
            "runbook" => settings.runbook_url = Some(value.into()),
            "age_slo" => settings.age_slo_ms = Some(millis(value)?),
            "dedup_window" => settings.dedup_window_ms = Some(millis(value)?),
            "on_expired" => settings.on_expired = Some(number_of(value, &["drop", "dead_letter"])?),
            "on_exhausted" => settings.on_exhausted = Some(number_of(value, &["dead_letter", "drop"])?),
            _ => return Err(format!("no setting {key:?}").into()),
        }
    }
    Ok(settings)
}

/// The number of a word; a number stands for itself.
fn number_of(value: &str, words: &[&str]) -> Result<i32, Box<dyn Error>> {
    match words.iter().position(|word| *word == value) {
        Some(number) => Ok(i32::try_from(number)?),
        None => value.parse().map_err(|_| format!("expected one of {words:?}, but got {value:?}").into()),
    }
}

/// `80%:5,90%:9`: above 80 %, those below priority 5; above 90 %, those below 9. `none`: no rule.
fn shed(text: &str) -> Result<Shed, Box<dyn Error>> {
    let mut rules = Vec::new();
    for rule in text.split(',').filter(|rule| *rule != "none") {
        let (above, below) = rule.split_once("%:").ok_or("expected a rule such as 80%:5")?;
        rules.push(ShedRule { above_percent: above.parse()?, below_priority: below.parse()? });
    }
    Ok(Shed { rules })
}
