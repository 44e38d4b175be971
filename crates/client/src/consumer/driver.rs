//! The task behind a consumer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ticketrail_proto::v1;
use ticketrail_proto::v1::queue_service_client::QueueServiceClient;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use super::outbox::{Extend, Hold, Inner, Outbox, Settle};
use crate::call::service;
use crate::position::Position;
use crate::receive::Delivery;
use crate::retry::{self, Attempts, Ended, Next};
use crate::stream::{Asked, Failed, IN_FLIGHT, Link, Requests, halves, has_room, until};
use crate::{Client, Error, settle, wire};

/// Settlements or extensions of one request.
const BATCH: usize = 1_000;
/// Bytes of settlements at which a request of them is closed.
const BATCH_BYTES: usize = 1 << 20;
/// A stream on which nothing is said is given a stamp so often at the latest: so much too early a lease may seem to end.
const STAMP_EVERY: Duration = Duration::from_secs(5);
/// And no more often than this.
const STAMP_LEAST: Duration = Duration::from_millis(100);
/// The same as a part of the lease.
const STAMPS_A_LEASE: u32 = 8;

type ConsumeLink = Link<v1::ConsumeRequest, v1::ConsumeResponse>;

/// A list on its way.
#[derive(Debug)]
enum Work {
    Settle(Vec<Settle>),
    Extend(Vec<Extend>),
}

impl Work {
    fn halves(self) -> Result<[Self; 2], Self> {
        match self {
            Work::Settle(list) => halves(list).map(|both| both.map(Work::Settle)).map_err(Work::Settle),
            Work::Extend(list) => halves(list).map(|both| both.map(Work::Extend)).map_err(Work::Extend),
        }
    }
}

/// The task behind a consumer.
pub(super) struct Driver {
    client: Client,
    start: v1::ConsumeStart,
    prefetch: usize,
    outbox: Arc<Outbox>,
    deliveries: mpsc::Sender<Result<Delivery, Error>>,
    settles: Vec<Settle>,
    extends: Vec<Extend>,
    requests: Requests<Work>,
    /// Deliveries in somebody's hands, or on the way there.
    held: usize,
    /// Those whose settlement has no answer yet.
    settling: usize,
    stopped: bool,
    /// Streams in a row that could not be opened.
    failures: u32,
    /// Stamps count from here.
    began: Instant,
    stamp_every: Duration,
}

/// What is true of one stream.
struct Open {
    link: ConsumeLink,
    /// Credits that the server has and has not used.
    credits: usize,
    /// Whether the server was told to deliver no more, and whether it has said that it does not.
    drains: bool,
    drained: bool,
    stamped_at: Instant,
}

/// Why a driver leaves a stream.
enum Left {
    Done,
    Broken(Ended),
}

impl Driver {
    pub(super) fn new(
        client: Client,
        start: v1::ConsumeStart,
        prefetch: usize,
        outbox: Arc<Outbox>,
        deliveries: mpsc::Sender<Result<Delivery, Error>>,
    ) -> Self {
        let stamp_every = stamp_every(start.lease.and_then(wire::duration));
        Self {
            client,
            start,
            prefetch,
            outbox,
            deliveries,
            settles: Vec::new(),
            extends: Vec::new(),
            requests: Requests::new(),
            held: 0,
            settling: 0,
            stopped: false,
            failures: 0,
            began: retry::now(),
            stamp_every,
        }
    }

    pub(super) async fn run(mut self) {
        let outbox = Arc::clone(&self.outbox);
        if let Err(error) = self.serve().await {
            let failed = self.requests.fail(&error);
            self.fail(failed);
            // Where nobody listens, nobody needs to know.
            let _ = self.deliveries.try_send(Err(error));
        }
        outbox.end();
    }

    /// Opens streams until all is done. Errors where the server refuses for good.
    async fn serve(&mut self) -> Result<(), Error> {
        loop {
            self.collect();
            if self.stopped && self.is_settled() {
                if self.held == 0 {
                    return Ok(());
                }
                // Nothing to do before somebody settles.
                self.outbox.filled().await;
                continue;
            }
            let ended = match self.open().await {
                Ok(open) => match self.drive(open).await {
                    Left::Done => return Ok(()),
                    Left::Broken(ended) => ended,
                },
                Err(ended) => ended,
            };
            let failed = self.requests.broken(&ended);
            self.fail(failed);
            // A table of what to do with each failure is kept in one place.
            let mut attempts = Attempts::begin(self.client.reading().policy(), false, Duration::ZERO);
            let text = ended.text().to_owned();
            if let Next::Stop(stop) = attempts.after(ended) {
                return Err(attempts.error(stop));
            }
            self.failures = self.failures.saturating_add(1);
            self.collect();
            self.ask();
            let failed = self.requests.expire(&text);
            self.fail(failed);
            tokio::time::sleep(self.client.reading().policy().backoff(self.failures)).await;
        }
    }

    async fn open(&mut self) -> Result<Open, Ended> {
        let credits = if self.stopped { 0 } else { self.free(0) };
        let first = || {
            Some(v1::ConsumeRequest {
                start: Some(self.start.clone()),
                add_credits: u32::try_from(credits).unwrap_or(u32::MAX),
                stamp: self.stamp(),
                ..Default::default()
            })
        };
        let stamped_at = retry::now();
        let call = async |route: crate::routes::Route, requests| {
            service!(QueueServiceClient, route.channel).consume(requests).await
        };
        let link = ConsumeLink::open(self.client.changing(), first, call).await?;
        Ok(Open { link, credits, drains: self.stopped, drained: self.stopped, stamped_at })
    }

    /// How many more deliveries may come, beside `credits` that the server has. Those in somebody's hands hold their places;
    /// those being settled do not, but there may be no more of them than of the others.
    fn free(&self, credits: usize) -> usize {
        let taken = self.held + credits;
        self.prefetch.saturating_sub(taken).min((2 * self.prefetch).saturating_sub(taken + self.settling))
    }

    /// A stamp of now: microseconds since the driver began, from 1.
    fn stamp(&self) -> u64 {
        let since = retry::now().saturating_duration_since(self.began);
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX).saturating_add(1)
    }

    /// When a stamp was sent.
    fn sent_at(&self, stamp: u64) -> Instant {
        self.began + Duration::from_micros(stamp.saturating_sub(1))
    }

    /// Takes what deliveries have left.
    fn collect(&mut self) {
        let Inner { settles, extends, dropped, stopped, .. } = self.outbox.take();
        self.held = self.held.saturating_sub(dropped + settles.len());
        self.settling += settles.len();
        self.settles.extend(settles);
        self.extends.extend(extends);
        self.stopped |= stopped;
    }

    /// Whether no settlement is without its answer.
    fn is_settled(&self) -> bool {
        self.settles.is_empty() && self.extends.is_empty() && self.requests.is_empty()
    }

    /// Makes requests of all that was left, so that their time begins.
    fn ask(&mut self) {
        while !self.settles.is_empty() {
            let mut bytes = 0;
            let fitting = |settle: &&Settle| {
                bytes += settle::said(&settle.settlement);
                bytes <= BATCH_BYTES
            };
            let count = self.settles.iter().take(BATCH).take_while(fitting).count().max(1);
            let rest = self.settles.split_off(count);
            let list = std::mem::replace(&mut self.settles, rest);
            self.requests.add(self.client.reading(), Work::Settle(list));
        }
        while !self.extends.is_empty() {
            let rest = self.extends.split_off(self.extends.len().min(BATCH));
            let list = std::mem::replace(&mut self.extends, rest);
            self.requests.add(self.client.reading(), Work::Extend(list));
        }
    }

    async fn drive(&mut self, mut open: Open) -> Left {
        let outgoing = open.link.outgoing.clone();
        loop {
            self.collect();
            self.requests.wake();
            if self.requests.in_flight() < IN_FLIGHT {
                self.ask();
            }
            while open.link.outgoing.capacity() > 0 && self.say(&mut open).await {}
            if self.stopped && open.drained && self.held == 0 && self.is_settled() {
                return Left::Done;
            }
            let waits_for_room = open.link.outgoing.capacity() == 0;
            let owes = self.requests.in_flight() > 0;
            tokio::select! {
                biased;
                came = open.link.hear(self.client.reading(), owes) => match came {
                    Ok(response) => {
                        self.failures = 0;
                        self.heard(&mut open, response);
                    }
                    Err(ended) => return Left::Broken(ended),
                },
                true = has_room(&outgoing), if waits_for_room => {}
                () = self.outbox.filled() => {}
                () = until(self.requests.due()) => {}
                () = until(Some(open.stamped_at + self.stamp_every)), if !self.stopped => {}
            }
        }
    }

    /// Says what is to be said, in one request. False: there is nothing.
    async fn say(&mut self, open: &mut Open) -> bool {
        let mut request = v1::ConsumeRequest::default();
        let free = self.free(open.credits);
        let has_ready = self.requests.has_ready() && self.requests.in_flight() < IN_FLIGHT;
        let drains = self.stopped && !open.drains;
        // Credits ride along with what goes out anyway; alone they go when a quarter is owed.
        let owes = !self.stopped && free > 0 && (has_ready || free >= self.prefetch.div_ceil(4));
        let stamps = !self.stopped && retry::now() >= open.stamped_at + self.stamp_every;
        if !(has_ready || drains || owes || stamps) {
            return false;
        }
        if has_ready {
            if self.requests.in_flight() == 0 {
                open.link.heard = retry::now();
            }
            match self.requests.send(self.client.reading()).await {
                Ok(Some((id, Work::Settle(list)))) => {
                    let settlements = list.iter().map(|settle| settle.settlement.clone()).collect();
                    request.settle = Some(v1::SettleRequest { request_id: Some(id), settlements });
                }
                Ok(Some((id, Work::Extend(list)))) => {
                    let extensions = list.iter().map(|extend| extend.extension.clone()).collect();
                    request.extend = Some(v1::ExtendRequest { request_id: Some(id), extensions });
                }
                Ok(None) if !(drains || owes || stamps) => return false,
                Ok(None) => {}
                Err(failed) => {
                    self.fail([failed]);
                    return true;
                }
            }
        }
        if owes {
            request.add_credits = u32::try_from(free).unwrap_or(u32::MAX);
            open.credits += free;
        }
        if drains {
            request.drain = true;
            open.drains = true;
        }
        request.stamp = self.stamp();
        open.stamped_at = retry::now();
        // Where the transport is gone, the stream has ended: then it is sent again.
        open.link.outgoing.try_send(request).is_ok()
    }

    fn heard(&mut self, open: &mut Open, response: v1::ConsumeResponse) {
        use v1::consume_response::Part;
        match response.part {
            Some(Part::Deliveries(deliveries)) => self.deliver(open, deliveries),
            Some(Part::Settled(settled)) => self.settled(settled),
            Some(Part::Extended(extended)) => self.extended(extended),
            Some(Part::Drained(v1::Drained {})) => open.drained = true,
            // Of a newer server: nothing that was asked for.
            None => {}
        }
    }

    fn deliver(&mut self, open: &mut Open, came: v1::Deliveries) {
        let sent_at = self.sent_at(came.stamp);
        for delivery in came.deliveries {
            open.credits = open.credits.saturating_sub(1);
            self.held += 1;
            if let Some(lease) = delivery.lease_remaining.and_then(wire::duration) {
                self.stamp_every = stamp_every(Some(lease));
            }
            let hold = Hold::new(&self.outbox);
            let delivery = Delivery::of_stream(&self.client, delivery, sent_at, hold);
            match self.deliveries.try_send(Ok(delivery)) {
                Ok(()) => {}
                // It is stopped, or the server sends more than was asked for.
                Err(TrySendError::Closed(delivery) | TrySendError::Full(delivery)) => {
                    if let Ok(delivery) = delivery {
                        drop(delivery.release());
                    }
                }
            }
        }
    }

    fn settled(&mut self, settled: v1::Settled) {
        use v1::settled::Outcome;
        let v1::Settled { session, seq, outcome } = settled;
        let Some(mut asked) = self.requests.answered(session, seq) else { return };
        let response = match outcome {
            Some(Outcome::Response(response)) => response,
            Some(Outcome::Error(error)) => return self.refused(asked, Ended::from_item(error)),
            None => {
                return self.fail([(asked.work, not_understood("none, or an outcome of a newer server".to_owned()))]);
            }
        };
        let Work::Settle(list) = &mut asked.work else {
            return self.fail([(asked.work, not_understood("settlements where extensions were asked for".to_owned()))]);
        };
        if response.results.len() != list.len() {
            let found = format!("{} results for {} settlements", response.results.len(), list.len());
            return self.fail([(asked.work, not_understood(found))]);
        }
        let position = Position::from_wire(response.commit);
        self.settling = self.settling.saturating_sub(list.len());
        for (settle, result) in list.drain(..).zip(response.results) {
            let result = settle::item(result, position).and_then(|result| result.map_err(Error::Refused));
            // Nobody may wait for it.
            let _ = settle.reply.send(result);
        }
    }

    fn extended(&mut self, extended: v1::LeasesExtended) {
        use v1::leases_extended::Outcome;
        let v1::LeasesExtended { session, seq, outcome } = extended;
        let Some(mut asked) = self.requests.answered(session, seq) else { return };
        let response = match outcome {
            Some(Outcome::Response(response)) => response,
            Some(Outcome::Error(error)) => return self.refused(asked, Ended::from_item(error)),
            None => {
                return self.fail([(asked.work, not_understood("none, or an outcome of a newer server".to_owned()))]);
            }
        };
        let Work::Extend(list) = &mut asked.work else {
            return self.fail([(asked.work, not_understood("extensions where settlements were asked for".to_owned()))]);
        };
        if response.results.len() != list.len() {
            let found = format!("{} results for {} extensions", response.results.len(), list.len());
            return self.fail([(asked.work, not_understood(found))]);
        }
        for (extend, result) in list.drain(..).zip(response.results) {
            let left = settle::extension_result(result).and_then(|result| result.map_err(Error::Refused));
            let _ = extend.reply.send(left.map(|left| (extend.asked_at, left)));
        }
    }

    /// A whole list was refused.
    fn refused(&mut self, asked: Asked<Work>, ended: Ended) {
        let whole = if ended.is_invalid() { self.requests.halve(asked, Work::halves) } else { Some(asked) };
        let failed = whole.and_then(|asked| self.requests.again(asked, ended).err());
        self.fail(failed);
    }

    fn fail(&mut self, failed: impl IntoIterator<Item = Failed<Work>>) {
        for (work, error) in failed {
            match work {
                Work::Settle(list) => {
                    self.settling = self.settling.saturating_sub(list.len());
                    for settle in list {
                        let _ = settle.reply.send(Err(error.clone()));
                    }
                }
                Work::Extend(list) => {
                    for extend in list {
                        let _ = extend.reply.send(Err(error.clone()));
                    }
                }
            }
        }
    }
}

/// How often stamps are sent, for leases that are so long.
fn stamp_every(lease: Option<Duration>) -> Duration {
    lease.map_or(STAMP_EVERY, |lease| STAMP_EVERY.min(lease / STAMPS_A_LEASE)).max(STAMP_LEAST)
}

fn not_understood(found: String) -> Error {
    Error::Protocol { expected: "a result for each item of the list", found }
}
