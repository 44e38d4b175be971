//! Ports that a process finds free again when it is started anew.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering};

use anyhow::Context as _;

/// Below the ports that a system gives to outgoing connections: one of those could take the port of a server that is
/// down for a moment. Above those that services are known by.
const FIRST: u16 = 20_000;
const COUNT: u16 = 12_000;

/// How many have been handed out.
static TAKEN: AtomicU16 = AtomicU16::new(0);

/// A port of 127.0.0.1 that nobody listens on, and that this process hands out once.
pub fn free() -> anyhow::Result<u16> {
    // Tests that run side by side begin at different places.
    let begin = u16::try_from(u64::from(std::process::id()) * 127 % u64::from(COUNT))?;
    (0..COUNT)
        .map(|_| FIRST + (begin + TAKEN.fetch_add(1, Ordering::Relaxed) % COUNT) % COUNT)
        .find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .context("expected a free port from 20000 to 31999, but there is none")
}
