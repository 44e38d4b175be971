//! Runs the commands of a golden script and writes down the answers.
//!
//! Messages are named `m1`, `m2`, ... in order of their enqueue, leases `m1` (the latest) or `m1@2` (the second),
//! sessions `s1`, `s2`, .... Times are written from the morning on which each script begins: `+1.5s`.

mod say;

use std::error::Error;
use std::fmt::Write as _;

use bytes::Bytes;
use goldenscript::{ArgumentConsumer, Context};
use ticketrail_core::command::{
    Ack, CloseQueue, Command, Commit, Content, CreateQueue, DeleteQueue, Enqueue, Expire, ExpiredLease, Extend,
    Failure, InitCluster, OpenSession, Pause, PauseQueue, PurgeQueue, QueueRef, QueueSettings, Receive, Release, Retry,
    Settle, Tick, UpdateQueue, Verdict,
};
use ticketrail_core::query::MessageState;
use ticketrail_core::{Answer, MessageId, Query, Request, RequestId};

use crate::harness::{MORNING, Machine};

type Said = Result<String, Box<dyn Error>>;

/// The longest pause between two entries of a leader: without work it proposes an empty tick.
const HEARTBEAT_MS: u64 = 5_000;

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
            "get" => {
                let id = self.message(need(args, "a message")?)?;
                let answer = self.machine.ask(&Query::Get(id))?;
                let Answer::Message(found) = answer else { return Err("expected a message".into()) };
                Ok(found.map_or("no such message".into(), |info| self.say_message(&info)))
            }
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
                let session = self.session(need(args, "a session")?)?;
                let seq = need(args, "a number")?.parse()?;
                let Answer::Seen(seen) = self.machine.ask(&Query::RequestSeen { session, seq })? else {
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

    /// The request that a command of the script stands for.
    fn request(&mut self, name: &str, args: &mut ArgumentConsumer<'_>) -> Result<Request, Box<dyn Error>> {
        if name != "request" {
            return Ok(Request::anonymous(self.command(name, args)?));
        }
        let session = match need(args, "a session")? {
            "s0" => 4_711,
            name => self.session(name)?,
        };
        let seq = need(args, "a request number")?.parse()?;
        let acked_below = args.take_key("acked_below").unwrap_or("0").parse()?;
        let name = need(args, "a command")?;
        let command = self.command(name, args)?;
        Ok(Request::of(RequestId { session, seq, acked_below, ..RequestId::default() }, command))
    }

    fn command(&mut self, name: &str, args: &mut ArgumentConsumer<'_>) -> Result<Command, Box<dyn Error>> {
        Ok(match name {
            "init" => {
                let seed = args.next_pos().unwrap_or("7").parse()?;
                Command::InitCluster(InitCluster { secret: vec![seed; 32].into() })
            }
            "tick" => Command::Tick(Tick {}),
            "session" => Command::OpenSession(OpenSession { renew: 0 }),
            "renew" => Command::OpenSession(OpenSession { renew: self.session(need(args, "a session")?)? }),
            "create" => Command::CreateQueue(CreateQueue {
                queue: Some(queue(need(args, "a queue")?)),
                settings: Some(settings(args)?),
            }),
            "update" => Command::UpdateQueue(UpdateQueue {
                queue: Some(queue(need(args, "a queue")?)),
                settings: Some(settings(args)?),
            }),
            "delete" => Command::DeleteQueue(DeleteQueue { queue: Some(queue(need(args, "a queue")?)) }),
            "purge" => Command::PurgeQueue(PurgeQueue { queue: Some(queue(need(args, "a queue")?)) }),
            "pause" => Command::PauseQueue(PauseQueue {
                queue: Some(queue(need(args, "a queue")?)),
                pause: Some(Pause {
                    reason: args.take_key("reason").unwrap_or_default().into(),
                    author: args.take_key("author").unwrap_or_default().into(),
                    until_ms: args.take_key("until").map_or(Ok(0), |until| millis(until).map(|ms| MORNING + ms))?,
                }),
            }),
            "resume" => Command::PauseQueue(PauseQueue { queue: Some(queue(need(args, "a queue")?)), pause: None }),
            "close" => Command::CloseQueue(CloseQueue { queue: Some(queue(need(args, "a queue")?)), closed: true }),
            "reopen" => Command::CloseQueue(CloseQueue { queue: Some(queue(need(args, "a queue")?)), closed: false }),
            "enqueue" => self.enqueue(args)?,
            "receive" => Command::Receive(Receive {
                queues: vec![queue(need(args, "a queue")?)],
                max: args.take_key("max").unwrap_or("1").parse()?,
                max_bytes: args.take_key("bytes").unwrap_or("0").parse()?,
                lease_ms: args.take_key("lease").map_or(Ok(0), millis)?,
                worker: args.take_key("worker").unwrap_or_default().into(),
            }),
            "expire" => {
                let named = self.named_leases(args)?;
                Command::Expire(Expire { leases: if named.is_empty() { self.run_out()? } else { named } })
            }
            "ack" | "retry" | "reject" | "release" | "extend" => self.settle(name, args)?,
            "commit" => self.commit(args)?,
            _ => return Err(format!("no command {name:?}").into()),
        })
    }

    fn enqueue(&mut self, args: &mut ArgumentConsumer<'_>) -> Result<Command, Box<dyn Error>> {
        let queues: Vec<QueueRef> = need(args, "a queue")?.split(',').map(queue).collect();
        let delay_ms = args.take_key("delay").map_or(Ok(0), millis)?;
        let deliver_at_ms = args.take_key("at").map_or(Ok(0), |at| millis(at).map(|ms| MORNING + ms))?;
        let size: usize = args.take_key("size").unwrap_or("0").parse()?;
        let auto_create = args.take_key("auto_create") != Some("no");
        let mut content = Content {
            content_type: args.take_key("content_type").unwrap_or_default().into(),
            r#type: args.take_key("type").unwrap_or_default().into(),
            correlation_id: args.take_key("correlation_id").unwrap_or_default().into(),
            reply_to: args.take_key("reply_to").unwrap_or_default().into(),
            ..Content::default()
        };
        let many_tags: usize = args.take_key("tags").unwrap_or("0").parse()?;
        content.tags = (0..many_tags).map(|n| (format!("tag{n}"), String::new())).collect();
        if let Some(tag) = args.take_key("shop") {
            content.tags.insert("shop".into(), repeated(tag));
        }
        let header: usize = args.take_key("header").unwrap_or("0").parse()?;
        if header > 0 {
            content.headers.insert("trace".into(), "x".repeat(header));
        }
        let mut enqueue = Vec::new();
        while let Some(body) = args.next_pos() {
            let mut body = body.as_bytes().to_vec();
            body.resize(body.len().max(size), b'.');
            let message = Some(Content { body: body.into(), ..content.clone() });
            for queue in 0..queues.len() {
                enqueue.push(Enqueue { queue: queue as u32, message: message.clone(), delay_ms, deliver_at_ms });
            }
        }
        Ok(Command::Commit(Commit { queues, enqueue, auto_create, ..Commit::default() }))
    }

    fn settle(&mut self, name: &str, args: &mut ArgumentConsumer<'_>) -> Result<Command, Box<dyn Error>> {
        let failure = Failure {
            code: args.take_key("code").unwrap_or_default().into(),
            text: match args.take_key("text_bytes") {
                Some(count) => "x".repeat(count.parse()?),
                None => args.take_key("text").unwrap_or_default().into(),
            },
        };
        let verdict = match name {
            "ack" => Verdict::Ack(Ack {}),
            "retry" => {
                let delay_ms = args.take_key("delay").map(millis).transpose()?;
                Verdict::Retry(Retry { failure: Some(failure), delay_ms })
            }
            "reject" => Verdict::Reject(failure),
            "release" => Verdict::Release(Release {}),
            _ => Verdict::Extend(Extend { lease_ms: args.take_key("lease").map_or(Ok(0), millis)? }),
        };
        let mut settle = Vec::new();
        while let Some(lease) = args.next_pos() {
            settle.push(Settle { token: self.token(lease)?, verdict: Some(verdict.clone()) });
        }
        Ok(Command::Commit(Commit { settle, ..Commit::default() }))
    }

    /// A word for each part, and what it needs: `commit ack m1 enqueue payment "a body"`.
    fn commit(&self, args: &mut ArgumentConsumer<'_>) -> Result<Command, Box<dyn Error>> {
        let atomic = args.take_key("atomic") != Some("no");
        let auto_create = args.take_key("auto_create") != Some("no");
        let size: usize = args.take_key("size").unwrap_or("0").parse()?;
        let mut commit = Commit { atomic, auto_create, ..Commit::default() };
        while let Some(word) = args.next_pos() {
            let verdict = match word {
                "enqueue" => {
                    let name = queue(need(args, "a queue")?);
                    let known = commit.queues.iter().position(|known| *known == name);
                    let queue = known.unwrap_or(commit.queues.len()) as u32;
                    if known.is_none() {
                        commit.queues.push(name);
                    }
                    let mut body = need(args, "a body")?.as_bytes().to_vec();
                    body.resize(body.len().max(size), b'.');
                    let message = Some(Content { body: body.into(), ..Content::default() });
                    commit.enqueue.push(Enqueue { queue, message, ..Enqueue::default() });
                    continue;
                }
                "ack" => Verdict::Ack(Ack {}),
                "retry" => Verdict::Retry(Retry::default()),
                "reject" => Verdict::Reject(Failure::default()),
                "release" => Verdict::Release(Release {}),
                "extend" => Verdict::Extend(Extend::default()),
                _ => return Err(format!("a commit has no {word:?}").into()),
            };
            let token = self.token(need(args, "a lease")?)?;
            commit.settle.push(Settle { token, verdict: Some(verdict) });
        }
        Ok(Command::Commit(commit))
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
        let mut said = String::new();
        match args.take_key("limit") {
            None => {
                for info in self.machine.peek(&queue, state, 2)? {
                    writeln!(said, "{}", self.say_peeked(&info))?;
                }
            }
            Some(limit) => {
                let query = Query::Peek { queue, state, after: Bytes::new(), limit: limit.parse()? };
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

fn settings(args: &mut ArgumentConsumer<'_>) -> Result<QueueSettings, Box<dyn Error>> {
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
            _ => return Err(format!("no setting {key:?}").into()),
        }
    }
    Ok(settings)
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
