//! Where the server is: flags, each with its environment variable.

use std::time::Duration;

use clap::Args;
use ticketrail_client::{Client, Error, RetryPolicy};

use crate::parse;

/// Which server, which namespace, how long.
#[derive(Debug, Clone, Args)]
pub(crate) struct Connection {
    /// The server's address
    #[arg(
        long,
        env = "TICKETRAIL_ADDR",
        default_value = "http://127.0.0.1:50000",
        value_name = "URL",
        global = true,
        help_heading = "Connection"
    )]
    pub(crate) address: String,
    /// The namespace of the queues
    #[arg(
        long,
        short = 'n',
        env = "TICKETRAIL_NAMESPACE",
        default_value = "default",
        value_name = "NAME",
        global = true,
        help_heading = "Connection"
    )]
    pub(crate) namespace: String,
    /// How long a call is tried, all its attempts together
    #[arg(
        long,
        env = "TICKETRAIL_TIMEOUT",
        default_value = "5s",
        value_parser = parse::duration,
        value_name = "DURATION",
        global = true,
        help_heading = "Connection"
    )]
    pub(crate) timeout: Duration,
}

impl Connection {
    /// A client for a person or a script: a full queue is said at once and not waited for.
    pub(crate) fn client(&self) -> Result<Client, Error> {
        let policy = RetryPolicy { timeout: self.timeout, wait_for_room: false, ..RetryPolicy::default() };
        Client::builder().address(&self.address).namespace(&self.namespace).retry(policy).connect()
    }
}
