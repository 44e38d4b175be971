//! What the values must fulfil, alone and together.

use ticketrail_core::limits;

use super::load::ConfigError;
use super::peers::{is_address, is_name};
use super::{Age, Config, Size};

/// What the disk's state is left by only: recovery is recognised with this much more than the mark.
pub(crate) const DISK_SLACK: Size = Size::mib(64);
/// The longest drain: the rest of the 20 s of a stop is for flushing.
const DRAIN_MAX: Age = Age::secs(15);
/// The smallest proposal queue: one request of the largest size must fit.
const PROPOSAL_QUEUE_MIN: Size = Size::mib(8);

impl Config {
    /// Refuses values that cannot be, alone or together.
    pub fn check(&self) -> Result<(), ConfigError> {
        let most = Size(limits::BODY_BYTES_CONFIGURABLE as u64);
        require(self.max_body_bytes >= Size(1) && self.max_body_bytes <= most, "max_body_bytes", || {
            format!("1 B to {most}, but it is {}", self.max_body_bytes)
        })?;
        let low = self.disk_critical_bytes.0.saturating_add(self.ballast_bytes.0).saturating_add(DISK_SLACK.0);
        require(self.disk_low_bytes.0 >= low, "disk_low_bytes", || {
            format!(
                "at least disk_critical_bytes + ballast_bytes + {DISK_SLACK} = {}, but it is {}",
                Size(low),
                self.disk_low_bytes
            )
        })?;
        require(self.proposal_queue_bytes >= PROPOSAL_QUEUE_MIN, "proposal_queue_bytes", || {
            format!("at least {PROPOSAL_QUEUE_MIN}, but it is {}", self.proposal_queue_bytes)
        })?;
        require(is_name(&self.name), "name", || format!("1 to 128 of A-Z a-z 0-9 . _ -, but it is {:?}", self.name))?;
        for (key, address) in [("advertise_peer", &self.advertise_peer), ("advertise_client", &self.advertise_client)] {
            require(address.is_empty() || is_address(address), key, || format!("HOST:PORT, but it is {address:?}"))?;
        }
        require(self.peers.0.is_empty() || is_address(&self.peer_address()), "advertise_peer", || {
            format!(
                "an address where the peers reach this node, since peers does not name {}; peers is {}",
                self.name, self.peers
            )
        })?;
        require(self.snapshot_rate >= Size::mib(1), "snapshot_rate", || {
            format!("at least 1 MiB a second, but it is {}", self.snapshot_rate)
        })?;
        require(self.parked_receives > 0, "parked_receives", || "at least 1, but it is 0".to_owned())?;
        require(self.heartbeat.as_ms() > 0, "heartbeat", || "at least 1ms, but it is 0s".to_owned())?;
        require(self.election_timeout_min > self.heartbeat, "election_timeout_min", || {
            format!("more than heartbeat, {}, but it is {}", self.heartbeat, self.election_timeout_min)
        })?;
        require(self.election_timeout_max > self.election_timeout_min, "election_timeout_max", || {
            format!(
                "more than election_timeout_min, {}, but it is {}",
                self.election_timeout_min, self.election_timeout_max
            )
        })?;
        require(self.drain_timeout <= DRAIN_MAX, "drain_timeout", || {
            format!("at most {DRAIN_MAX}, but it is {}", self.drain_timeout)
        })?;
        crate::telemetry::filter(&self.log_level).map(drop).map_err(|reason| ConfigError::Value {
            key: "log_level".to_owned(),
            origin: "the configuration".to_owned(),
            reason,
        })
    }
}

fn require(holds: bool, key: &str, expected: impl FnOnce() -> String) -> Result<(), ConfigError> {
    if holds {
        return Ok(());
    }
    let reason = format!("expected {}", expected());
    Err(ConfigError::Value { key: key.to_owned(), origin: "the configuration".to_owned(), reason })
}

#[cfg(test)]
mod tests {
    use super::super::Mode;
    use super::*;

    #[test]
    fn the_defaults_hold_together() {
        for mode in [Mode::Dev, Mode::Serve] {
            assert_eq!(Config::defaults(mode).check(), Ok(()));
        }
    }

    #[test]
    fn each_rule_names_its_key() {
        let base = || Config::defaults(Mode::Dev);
        let rows = [
            (Config { max_body_bytes: Size(0), ..base() }, "max_body_bytes"),
            (Config { max_body_bytes: Size((4 << 20) + 1), ..base() }, "max_body_bytes"),
            (Config { disk_low_bytes: Size::mib(575), ..base() }, "disk_low_bytes"),
            (Config { proposal_queue_bytes: Size::mib(7), ..base() }, "proposal_queue_bytes"),
            (Config { parked_receives: 0, ..base() }, "parked_receives"),
            (Config { heartbeat: Age::millis(0), ..base() }, "heartbeat"),
            (Config { election_timeout_min: Age::millis(150), ..base() }, "election_timeout_min"),
            (Config { election_timeout_max: Age::millis(400), ..base() }, "election_timeout_max"),
            (Config { drain_timeout: Age::secs(16), ..base() }, "drain_timeout"),
            (Config { name: "a b".into(), ..base() }, "name"),
            (Config { advertise_client: "host".into(), ..base() }, "advertise_client"),
            (Config { advertise_peer: ":1".into(), ..base() }, "advertise_peer"),
            (Config { name: "c".into(), peers: "a=b:1".parse().unwrap_or_default(), ..base() }, "advertise_peer"),
            (Config { snapshot_rate: Size(0), ..base() }, "snapshot_rate"),
            (Config { log_level: "info,=".into(), ..base() }, "log_level"),
        ];
        for (config, expected) in rows {
            let Err(ConfigError::Value { key, .. }) = config.check() else { panic!("{expected} was let through") };
            assert_eq!(key, expected);
        }
    }
}
