//! Where calls go: to the node that leads, as replies tell; else to the configured addresses in turn.
//!
//! A node that was stopped, or that no packet reaches any more, tells nothing, and its connection stays. Where a call has
//! waited for a while, the others are asked who leads: once it is another one, nobody waits there any longer.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ticketrail_proto::v1::admin_service_client::AdminServiceClient;
use ticketrail_proto::{metadata, v1};
use tokio::sync::watch;
use tonic::metadata::MetadataMap;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Response, Status};

use crate::error::{Error, Reason};
use crate::retry::{self, Ended};
use crate::stream::until;

/// How long connecting may take; then it is tried anew.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// A silent connection is asked for a sign of life so often, and given up so long after.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(5);
/// A leader that could not be reached is not followed for so long: another node passes calls on to it.
const AVOID: Duration = Duration::from_secs(10);
/// A call whose answer is so late has the other nodes asked who leads: longer than a quorum and its disks mostly take.
const PATIENCE: Duration = Duration::from_secs(1);
/// They are asked so often, one at a time.
const ASK_EVERY: Duration = Duration::from_millis(300);
/// How long one may take to say who leads.
const ASK_TIMEOUT: Duration = Duration::from_millis(700);
/// Connections kept beside the configured ones.
const LEARNED: usize = 8;

/// Where one call goes.
#[derive(Debug, Clone)]
pub(crate) struct Route {
    pub(crate) channel: Channel,
    address: Arc<str>,
    since: Instant,
}

/// The ways to the servers of one cluster.
#[derive(Debug)]
pub(crate) struct Routes {
    /// In the order in which they were given; none where the channel is the user's.
    configured: Vec<Arc<str>>,
    state: Mutex<State>,
    /// Changes when a node was found not to lead any more.
    deserted: watch::Sender<()>,
}

#[derive(Debug)]
struct State {
    current: Route,
    /// Which of the configured ones is tried next.
    next: usize,
    channels: BTreeMap<Arc<str>, Channel>,
    avoided: Vec<(Arc<str>, Instant)>,
    /// When another node was found to lead than the one at this address.
    deserted: BTreeMap<Arc<str>, Instant>,
    /// Who was asked last who leads, and when.
    asked: Option<(Arc<str>, Instant)>,
    /// Whether an answer to that is awaited.
    asks: bool,
}

impl State {
    fn new(current: Route, channels: BTreeMap<Arc<str>, Channel>) -> Self {
        Self { current, next: 1, channels, avoided: Vec::new(), deserted: BTreeMap::new(), asked: None, asks: false }
    }

    fn avoids(&mut self, address: &str, now: Instant) -> bool {
        self.avoided.retain(|(_, until)| *until > now);
        self.avoided.iter().any(|(avoided, _)| **avoided == *address)
    }

    /// The address behind the last one asked, in a ring without `route`.
    fn to_ask(&self, route: &Route) -> Option<(Arc<str>, Channel)> {
        let last = self.asked.as_ref().map_or(Bound::Unbounded, |(last, _)| Bound::Excluded(Arc::clone(last)));
        let ring = self.channels.range((last, Bound::Unbounded)).chain(&self.channels);
        let mut others = ring.filter(|(address, _)| **address != route.address);
        others.next().map(|(address, channel)| (Arc::clone(address), channel.clone()))
    }
}

impl Routes {
    /// Ways to the servers at `addresses`, of which there must be one. Must be called within a Tokio runtime.
    pub(crate) fn to(addresses: &[String]) -> Result<Self, Error> {
        let mut channels = BTreeMap::new();
        let mut configured = Vec::new();
        for address in addresses {
            let endpoint = endpoint(address)?;
            let address = name(&endpoint);
            channels.entry(Arc::clone(&address)).or_insert_with(|| endpoint.connect_lazy());
            configured.push(address);
        }
        let first = configured.first().and_then(|address| {
            let channel = channels.get(address)?.clone();
            Some(Route { channel, address: Arc::clone(address), since: retry::now() })
        });
        let Some(current) = first else {
            return Err(Error::Config { expected: "at least one address of a server", got: "none".to_owned() });
        };
        Ok(Self { configured, state: Mutex::new(State::new(current, channels)), deserted: watch::Sender::default() })
    }

    /// One way, over a channel made elsewhere.
    pub(crate) fn over(channel: Channel) -> Self {
        let current = Route { channel, address: "".into(), since: retry::now() };
        let state = State::new(current, BTreeMap::new());
        Self { configured: Vec::new(), state: Mutex::new(state), deserted: watch::Sender::default() }
    }

    /// Where the next call goes.
    pub(crate) fn route(&self) -> Route {
        Route { since: retry::now(), ..self.lock().current.clone() }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads a reply's metadata; whether the next call goes elsewhere.
    pub(crate) fn answered(&self, metadata: &MetadataMap) -> bool {
        self.follow(metadata, retry::now())
    }

    /// A call over `route` has failed; the next one may go elsewhere.
    pub(crate) fn failed(&self, route: &Route, ended: &Ended, metadata: &MetadataMap) {
        let now = retry::now();
        let unreachable = matches!(ended, Ended::NotSent(_));
        if let Ended::Refused(refusal) = ended {
            let elsewhere = matches!(refusal.reason, Reason::NotLeader | Reason::NoQuorum | Reason::Draining);
            if !elsewhere || self.follow(metadata, now) {
                return;
            }
        }
        let mut state = self.lock();
        if unreachable {
            state.avoided.retain(|(address, until)| *until > now && *address != route.address);
            state.avoided.push((Arc::clone(&route.address), now + AVOID));
        }
        if state.current.address != route.address || self.configured.is_empty() {
            return;
        }
        for _ in 0..self.configured.len() {
            let address = &self.configured[state.next % self.configured.len()];
            state.next = state.next.wrapping_add(1);
            if let Some(channel) = state.channels.get(address).filter(|_| *address != route.address) {
                state.current = Route { channel: channel.clone(), address: Arc::clone(address), since: now };
                return;
            }
        }
    }

    /// Goes to the leader that a reply names. Whether that is elsewhere.
    fn follow(&self, metadata: &MetadataMap, now: Instant) -> bool {
        let Some(leader) = leader_named(metadata) else { return false };
        let mut state = self.lock();
        if state.current.address == name(&leader) {
            return false;
        }
        self.go_to(&mut state, &leader, now)
    }

    /// Sends the next calls to `leader`. Not where it was not reached a moment ago.
    fn go_to(&self, state: &mut State, leader: &Endpoint, now: Instant) -> bool {
        let address = name(leader);
        // With a channel of the user's there is no telling how to reach another server.
        if self.configured.is_empty() || state.avoids(&address, now) {
            return false;
        }
        if !state.channels.contains_key(&address) && state.channels.len() >= self.configured.len() + LEARNED {
            state.channels.retain(|known, _| self.configured.contains(known));
        }
        let channel = state.channels.entry(Arc::clone(&address)).or_insert_with(|| leader.connect_lazy()).clone();
        tracing::debug!(%address, "follows the leader");
        state.current = Route { channel, address, since: now };
        true
    }

    /// Waits for `attempt` over `route`, an answer to which may take `wait`; not for longer than until another node is
    /// found to lead.
    pub(crate) async fn attend<T>(
        self: &Arc<Self>,
        route: &Route,
        wait: Duration,
        attempt: impl Future<Output = Result<T, Status>>,
    ) -> Result<T, Status> {
        tokio::select! {
            biased;
            ended = attempt => ended,
            () = self.left(route, Some(route.since + wait)) => Err(elsewhere()),
        }
    }

    /// Waits until another node is found to lead than that of `route`. The others are asked once nothing has been heard
    /// over it for long since `heard`; `None`: nothing is to be heard.
    pub(crate) async fn left(self: &Arc<Self>, route: &Route, heard: Option<Instant>) {
        let mut told = self.deserted.subscribe();
        let mut next = heard.map(|heard| heard + PATIENCE);
        loop {
            if self.lock().deserted.get(&route.address).is_some_and(|at| *at >= route.since) {
                return;
            }
            tokio::select! {
                // The sender is in `self`.
                _ = told.changed() => {}
                () = until(next) => {
                    self.ask(route);
                    next = Some(retry::now() + ASK_EVERY);
                }
            }
        }
    }

    /// Asks another node who leads, unless one is being asked.
    fn ask(self: &Arc<Self>, route: &Route) {
        let now = retry::now();
        let mut state = self.lock();
        if state.asks || state.asked.as_ref().is_some_and(|(_, at)| now < *at + ASK_EVERY) {
            return;
        }
        let Some((address, channel)) = state.to_ask(route) else { return };
        state.asked = Some((Arc::clone(&address), now));
        state.asks = true;
        drop(state);
        let (routes, route) = (Arc::clone(self), route.clone());
        tokio::spawn(async move {
            let answer = tokio::time::timeout(ASK_TIMEOUT, status(channel)).await;
            routes.lock().asks = false;
            let leader = match answer {
                Ok(Ok(answer)) if leads(answer.get_ref()) => endpoint(&address).ok(),
                Ok(Ok(answer)) => leader_named(answer.metadata()),
                Ok(Err(_)) | Err(_) => None,
            };
            if let Some(leader) = leader {
                routes.found(&route, &leader, retry::now());
            }
        });
    }

    /// The one at `leader` leads, while a call over `route` waits.
    fn found(&self, route: &Route, leader: &Endpoint, now: Instant) {
        if name(leader) == route.address {
            return;
        }
        let mut state = self.lock();
        if self.go_to(&mut state, leader, now) {
            let State { deserted, channels, .. } = &mut *state;
            deserted.retain(|address, _| channels.contains_key(address));
            deserted.insert(Arc::clone(&route.address), now);
            drop(state);
            self.deserted.send_replace(());
        }
    }
}

/// What a call is told that waited at a node while another one leads.
pub(crate) fn elsewhere() -> Status {
    Status::unavailable("the server did not answer, and another one leads")
}

async fn status(channel: Channel) -> Result<Response<v1::GetStatusResponse>, Status> {
    let mut request = Request::new(v1::GetStatusRequest {});
    request.set_timeout(ASK_TIMEOUT);
    AdminServiceClient::new(channel).get_status(request).await
}

/// Whether the node that tells this of itself leads, and serves.
fn leads(status: &v1::GetStatusResponse) -> bool {
    status.role() == v1::NodeRole::Leader && status.serving
}

/// The leader that a reply's metadata name.
fn leader_named(metadata: &MetadataMap) -> Option<Endpoint> {
    let leader = metadata.get(metadata::LEADER)?.to_str().ok()?;
    let endpoint = endpoint(leader);
    if endpoint.is_err() {
        tracing::debug!(leader, "expected a leader's address, but it is none");
    }
    endpoint.ok()
}

/// An endpoint's name: its address without a trailing slash.
fn name(endpoint: &Endpoint) -> Arc<str> {
    endpoint.uri().to_string().trim_end_matches('/').into()
}

/// The endpoint of an address, with the client's timeouts.
fn endpoint(address: &str) -> Result<Endpoint, Error> {
    let wrong =
        || Error::Config { expected: "a server's address such as http://127.0.0.1:50000", got: format!("{address:?}") };
    let uri = if address.contains("://") { address.to_owned() } else { format!("http://{address}") };
    let endpoint = Endpoint::from_shared(uri).map_err(|_| wrong())?;
    let uri = endpoint.uri();
    if uri.scheme_str() != Some("http") || uri.host().is_none_or(str::is_empty) {
        return Err(wrong());
    }
    Ok(endpoint
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
        .keep_alive_while_idle(true)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW))
}

/// Bytes that a reply may send ahead; a receive of 4 MiB should not stop and go.
const STREAM_WINDOW: u32 = 2 << 20;
/// Bytes that all replies of a connection may send ahead.
const CONNECTION_WINDOW: u32 = 8 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Refusal;

    fn routes(addresses: &[&str]) -> Routes {
        Routes::to(&addresses.iter().map(|address| (*address).to_owned()).collect::<Vec<_>>()).expect("addresses")
    }

    fn leader(address: &str) -> MetadataMap {
        let mut metadata = MetadataMap::new();
        metadata.insert(metadata::LEADER, address.parse().expect("a value"));
        metadata
    }

    fn not_leader() -> Ended {
        Ended::Refused(Refusal {
            code: tonic::Code::Unavailable,
            reason: Reason::NotLeader,
            text: String::new(),
            metadata: BTreeMap::new(),
            retry_after: None,
        })
    }

    fn current(routes: &Routes) -> String {
        routes.route().address.to_string()
    }

    #[tokio::test]
    async fn a_failed_address_gives_way_to_the_next_in_turn() {
        let routes = routes(&["a:1", "http://b:2/", "c:3"]);
        let mut seen = vec![current(&routes)];
        for _ in 0..3 {
            routes.failed(&routes.route(), &Ended::NotSent("refused".to_owned()), &MetadataMap::new());
            seen.push(current(&routes));
        }
        assert_eq!(seen, ["http://a:1", "http://b:2", "http://c:3", "http://a:1"]);
        // A call that set out before somebody else moved on changes nothing.
        let before = routes.route();
        routes.failed(&before, &Ended::Unknown("reset".to_owned()), &MetadataMap::new());
        let moved = current(&routes);
        routes.failed(&before, &Ended::Unknown("reset".to_owned()), &MetadataMap::new());
        assert_eq!(current(&routes), moved);
    }

    #[tokio::test]
    async fn the_leader_is_followed_unless_it_cannot_be_reached() {
        let routes = routes(&["a:1", "b:2"]);
        assert!(!routes.answered(&MetadataMap::new()));
        assert!(routes.answered(&leader("d:4")));
        assert_eq!(current(&routes), "http://d:4");
        assert!(!routes.answered(&leader("d:4")), "it is there already");
        routes.failed(&routes.route(), &Ended::NotSent("refused".to_owned()), &MetadataMap::new());
        let other = current(&routes);
        assert_ne!(other, "http://d:4");
        assert!(!routes.answered(&leader("d:4")), "it was not reached a moment ago");
        assert_eq!(current(&routes), other);
        routes.failed(&routes.route(), &not_leader(), &leader("e:5"));
        assert_eq!(current(&routes), "http://e:5");
        routes.failed(&routes.route(), &not_leader(), &MetadataMap::new());
        assert_eq!(current(&routes), "http://a:1", "without a hint the next one is asked");
        assert!(!routes.answered(&leader("not an address")));
    }

    #[tokio::test]
    async fn one_address_is_kept_and_learned_ones_are_bounded() {
        let routes = routes(&["a:1"]);
        routes.failed(&routes.route(), &Ended::NotSent("refused".to_owned()), &MetadataMap::new());
        assert_eq!(current(&routes), "http://a:1");
        for port in 10..100 {
            assert!(routes.answered(&leader(&format!("d:{port}"))));
            assert!(routes.lock().channels.len() <= 1 + LEARNED);
        }
        routes.failed(&routes.route(), &Ended::NotSent("refused".to_owned()), &MetadataMap::new());
        assert_eq!(current(&routes), "http://a:1");
    }
}
