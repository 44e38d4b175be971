//! Runs the commands of a golden script and writes down the answers.
//!
//! Messages are named `m1`, `m2`, ... in order of their enqueue, leases `m1` (the latest) or `m1@2` (the second),
//! sessions `s1`, `s2`, ..., dedup ids of a queue `orders/key`. Times are written from the morning on which each script
//! begins: `+1.5s`.

mod request;
mod say;
mod say_queue;
mod settings;

use std::error::Error;
use std::fmt::Write as _;

use bytes::Bytes;
use goldenscript::{ArgumentConsumer, Context};
use ticketrail_core::command::{Command, Commit, Content, Enqueue, ExpiredLease, QueueRef, Tick};
use ticketrail_core::query::{Filter, MessageState};
use ticketrail_core::{Answer, Effect, MessageId, Query, Request, RequestId, Timestamp};

use crate::harness::{MORNING, Machine};

type Said = Result<String, Box<dyn Error>>;

/// The longest pause between two entries of a leader: without work it proposes an empty tick.
const HEARTBEAT_MS: u64 = 5_000;

/// The first half of every token of a script.
const TOKEN_HIGH: u64 = 0x7e57;

pub(crate) struct Clerk {
    machine: Machine,
    /// `m1`, `m2`, ...
    messages: Vec<MessageId>,
    /// Every lease of a message, in order.
    leases: Vec<(MessageId, Bytes)>,
    /// `s1`, `s2`, ...
    sessions: Vec<u64>,
    /// Requests held back for one entry.
    batch: Option<Vec<Request>>,
}

impl Default for Clerk {
    fn default() -> Self {
        Self { machine: Machine::bare(), messages: Vec::new(), leases: Vec::new(), sessions: Vec::new(), batch: None }
    }
}

impl goldenscript::Runner for Clerk {
    type Command = goldenscript::Command;

    fn start_script(&mut self) -> Result<(), Box<dyn Error>> {
        self.machine = Machine::new()?;
        Ok(())
    }

    fn run(&mut self, command: &goldenscript::Command, _context: &Context) -> Said {
        let mut args = command.consume_args();
        let said = self.carry_out(&command.name, &mut args)?;
        args.reject_next()?;
        Ok(said)
    }

    /// Whatever a script does, its log replayed gives its state.
    fn end_script(&mut self) -> Result<(), Box<dyn Error>> {
        if self.batch.is_some() {
            return Err("a batch without its apply".into());
        }
        self.machine.compare_pages(2)?;
        if self.machine.replay()? == self.machine.view { Ok(()) } else { Err("replay(log) is not the state".into()) }
    }
}

impl Clerk {
    fn carry_out(&mut self, name: &str, args: &mut ArgumentConsumer<'_>) -> Said {
        match name {
            // Where nothing has happened yet, not even the cluster's secret.
            "bare" => {
                *self = Self::default();
                Ok(String::new())
            }
            "advance" => self.advance(millis(need(args, "a duration")?)?),
            // Ticks follow each other until nothing is left to do, as a leader's do.
            "ticks" => self.ticks(),
            // Time passes, but nobody ticks: the next entry carries the clock.
            "later" => {
                self.machine.stamp += millis(need(args, "a duration")?)?;
                Ok(String::new())
            }
            "leap" => {
                self.machine.stamp = self.machine.stamp.saturating_add_signed(signed(need(args, "a duration")?)?);
                self.propose(vec![Request::anonymous(Command::Tick(Tick {}))])
            }
            "term" => {
                self.machine.term += 1;
                if let Some(later) = args.next_pos() {
                    self.machine.stamp = self.machine.stamp.saturating_add_signed(signed(later)?);
                }
                self.propose(vec![Request::anonymous(Command::Tick(Tick {}))])
            }
            "clock" => self.clock(),
            "fill" => self.fill(args),
            "batch" => {
                self.batch = Some(Vec::new());
                Ok(String::new())
            }
            "apply" => {
                let requests = self.batch.take().ok_or("apply without a batch")?;
                self.propose(requests)
            }
            "peek" => self.peek(args),
            "get" => self.get(need(args, "a message")?),
            "outcome" => self.outcome(self.message(need(args, "a message")?)?),
            "namespaces" => self.namespaces(),
            "stats" => self.stats(&queue(need(args, "a queue")?)),
            "queues" => self.queues(),
            "queue" => self.queue_settings(&queue(need(args, "a queue")?)),
            "next_due" => {
                let due = ticketrail_core::next_due(&self.machine.view)?;
                Ok(due.map_or("nothing".into(), |due| at(due.0)))
            }
            "replay" => {
                let same = self.machine.replay()? == self.machine.view;
                Ok(if same { "the log gives this state" } else { "the log gives another state" }.into())
            }
            "leases" => self.say_leases(),
            "seen" => {
                let name = need(args, "a session, a token, or a queue and a dedup id")?;
                let query = match (name.split_once('/'), token_number(name)) {
                    (Some((name, dedup_id)), _) => Query::DedupIdSeen { queue: queue(name), dedup_id: dedup_id.into() },
                    (None, Some(low)) => Query::TokenSeen { high: TOKEN_HIGH, low },
                    (None, None) => {
                        let (session, seq) = (self.session(name)?, need(args, "a number")?.parse()?);
                        Query::RequestSeen { session, seq }
                    }
                };
                let Answer::Seen(seen) = self.machine.ask(&query)? else {
                    return Err("expected whether it was seen".into());
                };
                Ok(if seen { "seen" } else { "never seen" }.into())
            }
            _ => {
                let times: u32 = args.take_key("times").unwrap_or("1").parse()?;
                let request = self.request(name, args)?;
                if let Some(batch) = &mut self.batch {
                    batch.push(request);
                    return Ok(String::new());
                }
                let mut said = String::new();
                for _ in 0..times {
                    said = self.propose(vec![request.clone()])?;
                }
                Ok(said)
            }
        }
    }

    /// Time passes under one leader, which ticks in between.
    fn advance(&mut self, by: u64) -> Said {
        let mut left = by;
        loop {
            let step = left.min(HEARTBEAT_MS);
            self.machine.stamp += step;
            left -= step;
            self.machine.propose(vec![Request::anonymous(Command::Tick(Tick {}))])?;
            if left == 0 {
                return Ok(String::new());
            }
        }
    }

    fn ticks(&mut self) -> Said {
        for _ in 0..1_000 {
            self.machine.propose(vec![Request::anonymous(Command::Tick(Tick {}))])?;
            if !self.machine.effects.contains(&Effect::TickAgain) {
                return Ok(String::new());
            }
        }
        Err("a thousand ticks, and still something is left".into())
    }

    /// Many small requests of one session, each an enqueue.
    fn fill(&mut self, args: &mut ArgumentConsumer<'_>) -> Said {
        let session = self.session(need(args, "a session")?)?;
        let first: u64 = need(args, "the first number")?.parse()?;
        let count: u64 = need(args, "how many")?.parse()?;
        let queue = queue(need(args, "a queue")?);
        let mut done = 0;
        let seqs: Vec<u64> = (first..first + count).collect();
        for chunk in seqs.chunks(200) {
            let mut requests = Vec::new();
            for seq in chunk {
                let message = Some(Content::default());
                let enqueue = vec![Enqueue { message, ..Enqueue::default() }];
                let commit = Commit { queues: vec![queue.clone()], enqueue, ..Commit::default() };
                let id = RequestId { session, seq: *seq, ..RequestId::default() };
                requests.push(Request::of(id, Command::Commit(commit)));
            }
            done += self.machine.propose(requests)?.iter().flatten().count();
        }
        Ok(format!("{done} of {count} done"))
    }

    fn propose(&mut self, requests: Vec<Request>) -> Said {
        let (replies, deliveries) = self.machine.propose_seen(requests)?;
        for reply in replies.iter().flatten() {
            self.name_newcomers(reply);
        }
        for delivery in &deliveries {
            let lease = (delivery.id, delivery.token.clone());
            if !self.leases.contains(&lease) {
                self.leases.push(lease);
            }
        }
        let mut deliveries = deliveries.into_iter();
        let mut said = String::new();
        for reply in &replies {
            said.push_str(&self.say_reply(reply, &mut deliveries));
        }
        Ok(said)
    }

    /// `m1`: its latest lease; `m1@2`: its second; `m1@forged`: its latest, forged; `garbage`: no token at all.
    fn token(&self, name: &str) -> Result<Bytes, Box<dyn Error>> {
        if name == "garbage" {
            return Ok(Bytes::from_static(b"garbage"));
        }
        let (name, forged) = name.strip_suffix("@forged").map_or((name, false), |name| (name, true));
        let (name, number) = match name.split_once('@') {
            Some((name, number)) => (name, Some(number.parse::<usize>()?)),
            None => (name, None),
        };
        let id = self.message(name)?;
        let mut tokens = self.leases.iter().filter(|(of, _)| *of == id).map(|(_, token)| token);
        let token = match number {
            Some(number) => tokens.nth(number.saturating_sub(1)),
            None => tokens.next_back(),
        };
        let mut token = token.ok_or_else(|| format!("{name} has no such lease"))?.to_vec();
        if forged && let Some(last) = token.last_mut() {
            *last ^= 1;
        }
        Ok(token.into())
    }

    fn message(&self, name: &str) -> Result<MessageId, Box<dyn Error>> {
        let number: Option<usize> = name.strip_prefix('m').and_then(|number| number.parse().ok());
        let id = number.and_then(|number| self.messages.get(number.checked_sub(1)?));
        Ok(*id.ok_or_else(|| format!("no message {name:?}"))?)
    }

    fn session(&self, name: &str) -> Result<u64, Box<dyn Error>> {
        let number: Option<usize> = name.strip_prefix('s').and_then(|number| number.parse().ok());
        let id = number.and_then(|number| self.sessions.get(number.checked_sub(1)?));
        Ok(*id.ok_or_else(|| format!("no session {name:?}"))?)
    }

    /// The leases whose end has come, as the leader's heap would say.
    fn run_out(&self) -> Result<Vec<ExpiredLease>, Box<dyn Error>> {
        let Answer::Leases(leases) = self.machine.ask(&Query::Leases { after: None, limit: 1_000 })? else {
            return Err("expected leases".into());
        };
        let now = self.machine.model.clock.lease;
        Ok(leases
            .into_iter()
            .filter(|lease| lease.deadline.0 <= now)
            .map(|lease| ExpiredLease {
                queue: lease.queue.0,
                sequence: lease.sequence,
                granted_index: lease.granted_index,
            })
            .collect())
    }

    /// Leases named by their messages, whether or not their end has come.
    fn named_leases(&self, args: &mut ArgumentConsumer<'_>) -> Result<Vec<ExpiredLease>, Box<dyn Error>> {
        let grant: u64 = args.take_key("grant").unwrap_or("0").parse()?;
        let mut leases = Vec::new();
        while let Some(name) = args.next_pos() {
            let Answer::Message(Some(info)) = self.machine.ask(&Query::Get(self.message(name)?))? else {
                return Err(format!("{name} is gone").into());
            };
            let current = info.lease.map_or(0, |lease| lease.granted_index);
            leases.push(ExpiredLease {
                queue: info.place.queue.0,
                sequence: info.place.sequence,
                granted_index: if grant == 0 { current } else { grant },
            });
        }
        Ok(leases)
    }

    fn peek(&self, args: &mut ArgumentConsumer<'_>) -> Said {
        let queue = queue(need(args, "a queue")?);
        let state = match need(args, "a state")? {
            "delayed" => MessageState::Delayed,
            "ready" => MessageState::Ready,
            "blocked" => MessageState::Blocked,
            "leased" => MessageState::Leased,
            other => return Err(format!("no state {other:?}").into()),
        };
        let mut filter = Filter {
            group: args.take_key("group").unwrap_or_default().into(),
            r#type: args.take_key("type").unwrap_or_default().into(),
            priority: args.take_key("priority").map(str::parse).transpose()?,
            enqueued_until: args.take_key("until").map(moment).transpose()?.map(Timestamp),
            min_failures: args.take_key("failures").unwrap_or("0").parse()?,
            ..Filter::default()
        };
        if let Some(shop) = args.take_key("shop") {
            filter.tags.insert("shop".into(), shop.into());
        }
        let mut said = String::new();
        match args.take_key("limit") {
            None => {
                for info in self.machine.peek(&queue, state, &filter, 2)? {
                    writeln!(said, "{}", self.say_peeked(&info))?;
                }
            }
            Some(limit) => {
                let query = Query::Peek { queue, state, after: Bytes::new(), limit: limit.parse()?, filter };
                let Answer::Messages(page) = self.machine.ask(&query)? else { return Err("expected a page".into()) };
                let Some(page) = page else { return Ok("no such queue".into()) };
                for info in &page.messages {
                    writeln!(said, "{}", self.say_peeked(info))?;
                }
                writeln!(said, "{}", if page.next.is_empty() { "the last page" } else { "there is more" })?;
            }
        }
        Ok(if said.is_empty() { "nothing".into() } else { said })
    }

    /// A message by its name, or by the dedup id that a queue remembers.
    fn get(&self, name: &str) -> Said {
        let query = match name.split_once('/') {
            Some((name, dedup_id)) => Query::GetByDedupId { queue: queue(name), dedup_id: dedup_id.into() },
            None => Query::Get(self.message(name)?),
        };
        let Answer::Message(found) = self.machine.ask(&query)? else { return Err("expected a message".into()) };
        Ok(found.map_or("no such message".into(), |info| self.say_message(&info)))
    }
}

fn need<'a>(args: &mut ArgumentConsumer<'a>, what: &str) -> Result<&'a str, Box<dyn Error>> {
    args.next_pos().ok_or_else(|| format!("expected {what}, but there is nothing").into())
}

fn queue(name: &str) -> QueueRef {
    match name.split_once('@') {
        Some((namespace, name)) => QueueRef { namespace: repeated(namespace), name: repeated(name) },
        None => QueueRef { namespace: "default".into(), name: repeated(name) },
    }
}

/// `x*197` is a long text.
fn repeated(text: &str) -> String {
    match text.split_once('*') {
        Some((text, times)) => text.repeat(times.parse().unwrap_or(1)),
        None => text.into(),
    }
}

/// `250ms`, `5s`, `2m`, `12h`, `7d`.
fn millis(text: &str) -> Result<u64, Box<dyn Error>> {
    let text = text.trim_start_matches('+');
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(format!("expected a duration such as 5s, but got {text:?}").into()),
    };
    Ok(number.parse::<u64>()? * unit)
}

fn signed(text: &str) -> Result<i64, Box<dyn Error>> {
    Ok(match text.strip_prefix('-') {
        Some(back) => -i64::try_from(millis(back)?)?,
        None => i64::try_from(millis(text)?)?,
    })
}

/// A moment of a script as the machine knows it.
fn moment(text: &str) -> Result<u64, Box<dyn Error>> {
    Ok(MORNING + millis(text)?)
}

/// `t5` names the token whose last bytes are 5.
fn token_number(name: &str) -> Option<u64> {
    name.strip_prefix('t').and_then(|number| number.parse().ok())
}

/// A moment, from the script's morning.
fn at(ms: u64) -> String {
    match ms.checked_sub(MORNING) {
        Some(after) => format!("+{}", span(after)),
        None => format!("-{}", span(MORNING - ms)),
    }
}

/// A duration.
fn span(ms: u64) -> String {
    match (ms / 1_000, ms % 1_000) {
        (0, millis) if millis > 0 => format!("{millis}ms"),
        (seconds, 0) if seconds > 0 && seconds % 3_600 == 0 => format!("{}h", seconds / 3_600),
        (seconds, 0) => format!("{seconds}s"),
        (seconds, millis) => format!("{seconds}.{millis:03}s"),
    }
}
