//! The operator: asks the cluster for changes of its membership, as a person would.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use ticketrail_proto::v1;
use ticketrail_proto::v1::cluster_service_client::ClusterServiceClient;
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::net::Dialer;
use crate::place::CLIENT_PORT;
use crate::trace::Trace;

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Order {
    /// Has a node lead, or whoever is best.
    Transfer(u64),
    /// Removes a member.
    Remove(u64),
}

/// An operator at work.
pub struct Operator {
    orders: Mutex<VecDeque<(Order, Vec<String>)>>,
    came: Notify,
    done: Mutex<Vec<(Order, Result<(), String>)>>,
    trace: Trace,
}

/// How long one answer may take.
const PATIENCE: Duration = Duration::from_secs(3);

impl Operator {
    /// One with nothing to do.
    pub fn new(trace: &Trace) -> Self {
        Self { orders: Mutex::default(), came: Notify::new(), done: Mutex::default(), trace: trace.clone() }
    }

    /// Has `order` carried out, asked of the first of `hosts` that does it.
    pub fn order(&self, order: Order, hosts: Vec<String>) {
        self.orders.lock().push_back((order, hosts));
        self.came.notify_one();
    }

    /// What has come of the orders.
    pub fn take_done(&self) -> Vec<(Order, Result<(), String>)> {
        std::mem::take(&mut *self.done.lock())
    }

    /// Works until the run ends.
    pub async fn run(self: Arc<Self>, dialer: Dialer) -> turmoil::Result {
        loop {
            let next = self.orders.lock().pop_front();
            let Some((order, hosts)) = next else {
                self.came.notified().await;
                continue;
            };
            let mut result = Err("no node was asked".to_owned());
            for host in &hosts {
                let asked = timeout(PATIENCE, ask(&dialer, host, &order)).await;
                result = asked.unwrap_or_else(|_| Err(format!("{host} has not answered within {PATIENCE:?}")));
                if result.is_ok() {
                    break;
                }
            }
            self.trace.tell("operator", format_args!("{order:?}: {result:?}"));
            self.done.lock().push((order, result));
        }
    }
}

async fn ask(dialer: &Dialer, host: &str, order: &Order) -> Result<(), String> {
    let mut client = ClusterServiceClient::new(dialer.client(&format!("{host}:{CLIENT_PORT}")));
    let asked = match order {
        Order::Transfer(node) => client.transfer_leader(v1::TransferLeaderRequest { node: *node }).await.map(drop),
        Order::Remove(node) => client.remove_member(v1::RemoveMemberRequest { node: *node }).await.map(drop),
    };
    asked.map_err(|status| format!("{host}: {}", status.message()))
}
