//! The requests that the words of a script stand for.

use std::error::Error;

use goldenscript::ArgumentConsumer;
use ticketrail_core::command::{
    Ack, CloseQueue, Command, Commit, Content, CreateQueue, DeleteNamespace, DeleteQueue, Enqueue, Expire, Extend,
    Failure, InitCluster, OpenSession, Pause, PauseQueue, PurgeQueue, QueueRef, Receive, Release, Reschedule, Retry,
    RetryPolicy, SetNamespace, Settle, Target, Tick, UpdateQueue, Verdict,
};
use ticketrail_core::reply::PlaceRecord;
use ticketrail_core::{Request, RequestId};

use super::settings::settings;
use super::{Clerk, TOKEN_HIGH, millis, moment, need, queue, repeated, token_number};
use crate::harness::MORNING;

impl Clerk {
    /// The request that a command of the script stands for.
    pub(super) fn request(&mut self, name: &str, args: &mut ArgumentConsumer<'_>) -> Result<Request, Box<dyn Error>> {
        if name == "token" {
            let token = need(args, "a token")?;
            let token_low = token_number(token).ok_or_else(|| format!("no token {token:?}"))?;
            let name = need(args, "a command")?;
            let id = RequestId { token_high: TOKEN_HIGH, token_low, ..RequestId::default() };
            return Ok(Request::of(id, self.command(name, args)?));
        }
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
                queues: need(args, "a queue")?.split(',').map(queue).collect(),
                max: args.take_key("max").unwrap_or("1").parse()?,
                max_bytes: args.take_key("bytes").unwrap_or("0").parse()?,
                lease_ms: args.take_key("lease").map_or(Ok(0), millis)?,
                worker: args.take_key("worker").unwrap_or_default().into(),
                auto_ack: args.take_key("auto_ack") == Some("yes"),
            }),
            "set_namespace" => Command::SetNamespace(SetNamespace {
                namespace: need(args, "a namespace")?.into(),
                auto_create: args.take_key("auto_create").map(|word| word == "yes"),
                defaults: Some(settings(args)?),
            }),
            "delete_namespace" => {
                Command::DeleteNamespace(DeleteNamespace { namespace: need(args, "a namespace")?.into() })
            }
            "cancel" | "reschedule" => self.targets(name, args)?,
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
        let blank = blank(args)?;
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
                enqueue.push(Enqueue { queue: queue as u32, message: message.clone(), ..blank.clone() });
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
            "ack" => {
                let mut output = args.take_key("output").unwrap_or_default().as_bytes().to_vec();
                let size: usize = args.take_key("output_bytes").unwrap_or("0").parse()?;
                output.resize(output.len().max(size), b'.');
                Verdict::Ack(Ack { output: output.into() })
            }
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

    /// `m1`, or `orders/key`.
    fn target(&self, name: &str) -> Result<Target, Box<dyn Error>> {
        Ok(match name.split_once('/') {
            Some((name, dedup_id)) => Target { queue: Some(queue(name)), dedup_id: dedup_id.into(), id: None },
            None => Target { id: Some(PlaceRecord::from(self.message(name)?.origin)), ..Target::default() },
        })
    }

    fn targets(&self, name: &str, args: &mut ArgumentConsumer<'_>) -> Result<Command, Box<dyn Error>> {
        let delay_ms = args.take_key("delay").map_or(Ok(0), millis)?;
        let deliver_at_ms = args.take_key("at").map_or(Ok(0), moment)?;
        let mut commit = Commit { atomic: args.take_key("atomic") == Some("yes"), ..Commit::default() };
        while let Some(target) = args.next_pos() {
            let target = self.target(target)?;
            if name == "cancel" {
                commit.cancel.push(target);
            } else {
                commit.reschedule.push(Reschedule { target: Some(target), delay_ms, deliver_at_ms });
            }
        }
        Ok(Command::Commit(commit))
    }

    /// A word for each part, and what it needs: `commit ack m1 enqueue payment "a body"`.
    fn commit(&self, args: &mut ArgumentConsumer<'_>) -> Result<Command, Box<dyn Error>> {
        let atomic = args.take_key("atomic") != Some("no");
        let auto_create = args.take_key("auto_create") != Some("no");
        let size: usize = args.take_key("size").unwrap_or("0").parse()?;
        let blank = blank(args)?;
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
                    commit.enqueue.push(Enqueue { queue, message, ..blank.clone() });
                    continue;
                }
                "cancel" => {
                    commit.cancel.push(self.target(need(args, "a message")?)?);
                    continue;
                }
                "reschedule" => {
                    let target = Some(self.target(need(args, "a message")?)?);
                    let delay_ms = millis(need(args, "a delay")?)?;
                    commit.reschedule.push(Reschedule { target, delay_ms, deliver_at_ms: 0 });
                    continue;
                }
                "ack" => Verdict::Ack(Ack::default()),
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
}

/// What an enqueue says of its message, but the message.
fn blank(args: &mut ArgumentConsumer<'_>) -> Result<Enqueue, Box<dyn Error>> {
    let retry = RetryPolicy {
        max_attempts: args.take_key("max_attempts").map(str::parse).transpose()?,
        backoff_base_ms: args.take_key("backoff_base").map(millis).transpose()?,
        backoff_cap_ms: args.take_key("backoff_cap").map(millis).transpose()?,
    };
    Ok(Enqueue {
        delay_ms: args.take_key("delay").map_or(Ok(0), millis)?,
        deliver_at_ms: args.take_key("at").map_or(Ok(0), moment)?,
        group: repeated(args.take_key("group").unwrap_or_default()),
        priority: args.take_key("priority").map(str::parse).transpose()?,
        dedup_id: repeated(args.take_key("dedup").unwrap_or_default()),
        ttl_ms: args.take_key("ttl").map_or(Ok(0), millis)?,
        expires_at_ms: args.take_key("expires").map_or(Ok(0), moment)?,
        retry: (retry != RetryPolicy::default()).then_some(retry),
        dead_letter_queue: args.take_key("dead_letter_queue").unwrap_or_default().into(),
        ..Enqueue::default()
    })
}
