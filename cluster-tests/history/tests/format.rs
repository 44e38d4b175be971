//! What is written reads back; what is torn or unknown is refused with its line.

use std::time::Duration;

use ticketrail_history::format::{
    Answer, AuditLine, Call, Delivery, Event, Hash, Meta, NewMessage, Op, Phase, Position, QueueName, Refusal, Rid,
    Token, Told, What, body, fingerprint,
};
use ticketrail_history::{Recorder, RunDir};

fn enqueue(v: u64) -> Call {
    let bytes = body::make(v, 32);
    assert_eq!(body::value(&bytes), v);
    Call::Enqueue {
        q: QueueName::new("", "orders"),
        m: vec![NewMessage::plain(v, fingerprint(&bytes), 32)],
        all: false,
    }
}

#[test]
fn a_recorded_run_reads_back() -> anyhow::Result<()> {
    let dir = tempfile::tempdir()?;
    let recorder = Recorder::create(dir.path(), || Duration::from_nanos(7))?;
    let rid = Some(Rid::of(1024, 1));
    let op = recorder.invoke(3, rid, enqueue(1));
    let told = Told {
        cp: Some(Position { index: 5, ordinal: 2 }),
        ts: 9,
        node: 1,
        term: 2,
        replayed: false,
        answer: Answer::Received {
            d: vec![Delivery {
                id: "1.17.m4.1043".parse()?,
                v: 1,
                h: Hash(0xab),
                tok: Token::of(b"secret"),
                left: 100,
                rc: 1,
                f: 0,
                dead: None,
                q: None,
                g: None,
            }],
        },
    };
    recorder.ok(3, op, told.clone());
    let other = recorder.invoke(4, None, Call::Stats { q: QueueName::new("shop", "orders") });
    recorder.info(4, other, Refusal::new("DEADLINE"));
    recorder.nemesis("kill", "node 2", Phase::Begin, "");
    assert_eq!(recorder.finish()?.events, 4);
    let run = RunDir::new(dir.path());
    let events = run.history()?.collect::<Result<Vec<_>, _>>()?;
    assert_eq!(events[0], Event { i: 0, t: 7, p: 3, op: Op(0), what: What::Invoke { rid, call: enqueue(1) } });
    assert_eq!(events[1].what, What::Ok(told));
    assert_eq!(events[3].what, What::Info(Refusal::new("DEADLINE")));
    assert_eq!(run.nemesis()?[0].fault, "kill");
    assert_eq!(run.meta()?, Meta::default());
    Ok(())
}

#[test]
fn a_torn_line_is_refused_with_its_number() -> anyhow::Result<()> {
    let dir = tempfile::tempdir()?;
    let whole = r#"{"i":0,"t":0,"p":1,"op":0,"k":"invoke","f":{"stats":{"q":"a"}}}"#;
    std::fs::write(dir.path().join("history.jsonl"), format!("{whole}\n{}", &whole[..20]))?;
    let read: Vec<_> = RunDir::new(dir.path()).history()?.collect();
    assert_eq!(read.len(), 2);
    let text = read[1].as_ref().unwrap_err().to_string();
    assert!(text.contains("line 2") && text.contains("in the middle of it"), "{text}");
    Ok(())
}

#[test]
fn unknown_fields_are_refused() {
    let unknown = [
        r#"{"i":0,"t":0,"p":1,"op":0,"k":"invoke","f":{"stats":{"q":"a"}},"x":1}"#,
        r#"{"i":0,"t":0,"p":1,"op":0,"k":"invoke","f":{"stats":{"q":"a","x":1}}}"#,
        r#"{"i":0,"t":0,"p":1,"op":0,"k":"invoke","f":{"dance":{}}}"#,
        r#"{"i":0,"t":0,"p":1,"op":0,"k":"ok"}"#,
        r#"{"i":0,"t":0,"p":1,"op":0,"k":"fail"}"#,
    ];
    for text in unknown {
        assert!(serde_json::from_str::<Event>(text).is_err(), "{text}");
    }
    assert!(serde_json::from_str::<Meta>(r#"{"sed":1}"#).is_err());
    assert!(serde_json::from_str::<Meta>(r#"{"seed":1,"expect":{"ok":{"enqueue":100}}}"#).is_ok());
}

#[test]
fn audit_lines_have_their_text() -> anyhow::Result<()> {
    let text = r#"{"cp":[7,0],"term":2,"st":5,"ts":6,"lc":4,"c":"tick","r":{"ticked":{"n":1}}}"#;
    let line: AuditLine = serde_json::from_str(text)?;
    assert_eq!(serde_json::to_string(&line)?, text);
    let text = r#"{"cp":[8,0],"term":2,"st":5,"ts":6,"lc":4,"rid":[1024,3],"c":{"receive":{"q":"a","max":1,"bytes":0,"lease":0}},"r":{"granted":{"g":[{"q":1,"seq":2,"tok":["1.1.m4.2","0000000000000000000000000000000f"],"rc":1,"f":0,"end":60004}]}}}"#;
    let line: AuditLine = serde_json::from_str(text)?;
    assert_eq!(serde_json::to_string(&line)?, text);
    Ok(())
}
