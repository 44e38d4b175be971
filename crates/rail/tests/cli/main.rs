//! `rail` against a server of its own: what commands print, and how they end.

mod server;
mod transcripts;

use std::process::Command;

use serde_json::Value;

use self::server::{Ran, Server};

/// Receives one message, and gives back its token.
fn token(server: &Server, queue: &str) -> String {
    let received = server.rail(&["msg", "receive", queue, "--wait", "5s", "-o", "json"]).ends(0).json();
    received[0]["lease_token"].as_str().expect("a token").to_owned()
}

#[test]
fn a_messages_life() {
    let server = Server::start(&[]);
    let empty = server.rail(&["queue", "ls"]).ends(0).says("no queues yet");
    assert_eq!(empty.stdout, "NAME  READY  LEASED  DELAYED  BLOCKED  OLDEST  DEAD\n");
    let send = ["msg", "send", "orders", "hello", "--tag", "table=7", "-H", "traceparent=00", "--type", "order.placed"];
    let sent = server.rail(&[&send[..], &["-o", "json"]].concat()).ends(0).json();
    let id = sent[0]["id"].as_str().expect("an id").to_owned();
    let peeked = server.rail(&["msg", "peek", "orders", "-o", "jsonl"]).ends(0).json();
    assert_eq!((peeked["id"].as_str(), peeked["body"].as_str()), (Some(id.as_str()), Some("hello")));
    assert_eq!((peeked["tags"]["table"].as_str(), peeked["headers"]["traceparent"].as_str()), (Some("7"), Some("00")));

    let token = token(&server, "orders");
    let listed = server.rail(&["queue", "ls", "-o", "json"]).ends(0).json();
    assert_eq!((listed[0]["ready"].as_u64(), listed[0]["leased"].as_u64()), (Some(0), Some(1)));
    server.rail(&["msg", "extend", &token, "--lease", "30s"]).ends(0);
    let acked = server.rail(&["msg", "ack", &token, "-o", "json"]).ends(0).json();
    assert_eq!(acked[0]["outcome"], "acked");
    server.rail(&["msg", "ack", &token]).ends(5).says("the message is gone");
    server.rail(&["msg", "get", &id]).ends(4).says(" next: ");
    server.rail(&["msg", "receive", "orders", "--wait", "0s"]).ends(0).says("nothing ready");
}

#[test]
fn failures_lead_to_the_dead_letter_queue_with_their_history() {
    let server = Server::start(&[]);
    server.rail(&["queue", "create", "jobs", "--max-attempts", "2", "--backoff-base", "1ms"]).ends(0);
    server.rail(&["msg", "send", "jobs", "fails"]).ends(0);
    for (attempt, outcome) in [(1, "delayed"), (2, "dead_lettered")] {
        let token = token(&server, "jobs");
        let nack = ["msg", "nack", &token, "--code", "E42", "--text", "no luck", "--delay", "1ms", "-o", "json"];
        assert_eq!(server.rail(&nack).ends(0).json()[0]["outcome"], outcome, "attempt {attempt}");
    }
    server.rail(&["msg", "send", "jobs", "rejected"]).ends(0);
    let token = token(&server, "jobs");
    server.rail(&["msg", "nack", &token, "--permanent", "--code", "BAD", "--text", "worse"]).ends(0);

    let dead = server.rail(&["dlq", "show", "jobs", "-o", "json"]).ends(0).json();
    let reasons: Vec<_> = dead.as_array().expect("a list").iter().map(|d| d["dead_letter"]["reason"].clone()).collect();
    assert_eq!(reasons, ["attempts", "rejected"]);
    assert_eq!(dead[0]["history"].as_array().map(Vec::len), Some(2));
    assert_eq!(
        (dead[1]["history"][0]["code"].as_str(), dead[1]["history"][0]["text"].as_str()),
        (Some("BAD"), Some("worse"))
    );
    let queues = server.rail(&["dlq", "ls", "-o", "json"]).ends(0).json();
    assert_eq!((queues[0]["name"].as_str(), queues[0]["messages"].as_u64()), (Some("jobs.dlq"), Some(2)));
    assert!(
        server
            .rail(&["queue", "ls"])
            .ends(0)
            .stdout
            .lines()
            .any(|line| line.starts_with("jobs ") && line.ends_with('2'))
    );
}

#[test]
fn a_bound_refuses_with_its_name_and_a_list_is_partly_done() {
    let server = Server::start(&[]);
    server.rail(&["queue", "create", "small", "--max-depth", "2"]).ends(0);
    let lines =
        server.rail_with(&["msg", "send", "small", "--lines", "-o", "json"], "a\nb\nc\n").ends(3).says("item 3: ");
    assert_eq!(lines.json().as_array().map(Vec::len), Some(2));
    server.rail(&["msg", "send", "small", "d"]).ends(9).says("max_depth").says("try again in 1s");
    server.rail(&["queue", "update", "small", "--max-depth", "3"]).ends(0);
    server.rail(&["msg", "send", "small", "d"]).ends(0);

    server.rail(&["queue", "purge", "small"]).ends(2).says("remove 3 messages").says("--yes");
    let purged = server.rail(&["queue", "purge", "small", "--yes", "-o", "json"]).ends(0).json();
    assert_eq!(purged["messages"].as_u64(), Some(3));
    server.rail(&["queue", "delete", "small", "--yes"]).ends(0);
    server.rail(&["queue", "show", "small"]).ends(4).says("rail queue create");
    server.rail(&["queue", "delete", "small", "--yes", "--if-exists"]).ends(0);
}

#[test]
fn verbs_of_operators_do_what_they_say() {
    let server = Server::start(&[]);
    server.rail(&["queue", "create", "q"]).ends(0);
    server.rail(&["queue", "create", "q"]).ends(5).says("rail queue update q");
    server.rail(&["queue", "create", "q", "--if-not-exists"]).ends(0);
    server.rail(&["queue", "update", "q"]).ends(2).says("expected a setting");
    server.rail(&["msg", "send", "q", "x"]).ends(0);

    let paused = server.rail(&["queue", "pause", "q", "--reason", "INC-42", "-o", "json"]).ends(0).json();
    assert_eq!(paused["pause"]["reason"], "INC-42");
    server.rail(&["msg", "receive", "q", "--wait", "0s"]).ends(0).says("nothing ready");
    server.rail(&["queue", "resume", "q"]).ends(0);
    let token = token(&server, "q");
    let released = server.rail(&["msg", "release", &token, "-o", "json"]).ends(0).json();
    assert_eq!(released[0]["outcome"], "ready");

    server.rail(&["queue", "close", "q"]).ends(0);
    server.rail(&["msg", "send", "q", "y"]).ends(5).says("rail queue reopen q");
    server.rail(&["queue", "reopen", "q"]).ends(0);
    server.rail(&["msg", "send", "q", "y", "--delay", "1h"]).ends(0);
    let delayed = server.rail(&["msg", "peek", "q", "--state", "delayed", "-o", "json"]).ends(0).json();
    assert_eq!(delayed[0]["state"], "delayed");
    let queue = server.rail(&["queue", "show", "q", "-o", "json"]).ends(0).json();
    assert_eq!((queue["stats"]["ready"].as_u64(), queue["stats"]["delayed"].as_u64()), (Some(1), Some(1)));
}

#[test]
fn what_a_message_says_of_its_life_is_heeded_and_shown() {
    let server = Server::start(&[]);
    server.rail(&["queue", "create", "orders", "--retain-done", "1h", "--dedup-window", "1d"]).ends(0);
    let send =
        ["msg", "send", "orders", "open", "--group", "table-7", "--priority", "9", "--dedup", "o-17", "--ttl", "1h"];
    let sent = server.rail(&[&send[..], &["--max-attempts", "2", "-o", "json"]].concat()).ends(0).json();
    assert_eq!(sent[0]["duplicate"], false);
    let again = server.rail(&[&send[..], &["-o", "json"]].concat()).ends(0).says("nothing was added").json();
    assert_eq!((&again[0]["id"], &again[0]["duplicate"]), (&sent[0]["id"], &Value::Bool(true)));
    server.rail(&["msg", "send", "orders", "close", "--group", "table-7"]).ends(0);
    let blocked = server.rail(&["msg", "peek", "orders", "--state", "blocked", "--group", "table-7", "-o", "json"]);
    assert_eq!(blocked.ends(0).json()[0]["body"], "close");
    let none = server.rail(&["msg", "peek", "orders", "--priority", "3", "-o", "json"]).ends(0).json();
    assert_eq!(none.as_array().map(Vec::len), Some(0));
    let shown = server.rail(&["msg", "get", "--queue", "orders", "--dedup", "o-17", "-o", "json"]).ends(0).json();
    assert_eq!((shown["group"].as_str(), shown["priority"].as_u64()), (Some("table-7"), Some(9)));
    assert_eq!((shown["dedup_id"].as_str(), shown["retry"]["max_attempts"].as_u64()), (Some("o-17"), Some(2)));
    assert!(shown["expires_at"].is_string() && shown["line"].as_u64() > Some(0), "{shown}");

    let token = token(&server, "orders");
    server.rail(&["msg", "cancel", "--queue", "orders", "--dedup", "o-17"]).ends(5).says("rail msg get");
    server.rail(&["msg", "ack", &token, "--result", "paid"]).ends(0);
    let done = server.rail(&["msg", "get", "--queue", "orders", "--dedup", "o-17", "-o", "json"]).ends(0).json();
    assert_eq!((done["state"].as_str(), done["output"].as_str()), (Some("done"), Some("paid")));
    let taken =
        server.rail(&["msg", "receive", "urgent", "orders", "--auto-ack", "--wait", "5s", "-o", "json"]).ends(0);
    let taken = taken.json();
    assert_eq!((taken[0]["body"].as_str(), &taken[0]["lease_token"]), (Some("close"), &Value::Null));
}

#[test]
fn messages_are_cancelled_and_rescheduled() {
    let server = Server::start(&[]);
    let sent = server.rail(&["msg", "send", "mail", "later", "--delay", "1h", "-o", "json"]).ends(0).json();
    let id = sent[0]["id"].as_str().expect("an id").to_owned();
    let moved = server.rail(&["msg", "reschedule", &id, "--now", "-o", "json"]).ends(0).json();
    assert_eq!((moved[0]["outcome"].as_str(), moved[0]["id"].as_str()), (Some("rescheduled"), Some(id.as_str())));
    let cancelled = server.rail(&["msg", "cancel", &id, &id, "-o", "json"]).ends(0).json();
    assert_eq!((cancelled[0]["outcome"].as_str(), cancelled[1]["outcome"].as_str()), (Some("cancelled"), Some("gone")));
    server.rail(&["msg", "reschedule", &id, "--delay", "5s"]).ends(4);
    let lines =
        server.rail_with(&["msg", "send", "mail", "--lines", "--all-or-nothing", "-o", "json"], "a\nb\n").ends(0);
    assert_eq!(lines.json().as_array().map(Vec::len), Some(2));
}

#[test]
fn a_file_is_applied_compared_and_exported() {
    let server = Server::start(&[]);
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("queues.toml");
    let text = "[queues.orders]\nmax_depth = 2400\nlease = \"30s\"\n[namespaces.shop]\nauto_create = false\n\
                defaults = { owner = \"shop\" }\n[namespaces.shop.queues.mail]\nttl = \"1h\"\n";
    std::fs::write(&file, text).expect("written");
    let file = file.to_str().expect("UTF-8");
    let plan = server.rail(&["apply", "-f", file, "--dry-run", "-o", "json"]).ends(0).json();
    assert_eq!(plan.as_array().map(Vec::len), Some(3));
    server.rail(&["queue", "show", "orders"]).ends(4);
    server.rail(&["diff", "-f", file]).ends(1);
    server.rail(&["apply", "-f", file]).ends(2).says("--yes");
    server.rail(&["apply", "-f", file, "--yes"]).ends(0).says("3 changes made");
    server.rail(&["diff", "-f", file]).ends(0).says("nothing to change");
    server.rail(&["apply", "-f", file]).ends(0).says("nothing to change");
    let shown = server.rail(&["queue", "show", "orders", "-o", "json"]).ends(0).json();
    assert_eq!(
        (shown["settings"]["max_depth"].as_u64(), shown["settings"]["lease_ms"].as_u64()),
        (Some(2_400), Some(30_000))
    );
    server.rail(&["msg", "send", "elsewhere", "x", "-n", "shop"]).ends(4).says("rail queue create");

    // What is exported is what is there.
    let exported = server.rail(&["export", "--all"]).ends(0).stdout;
    let copy = dir.path().join("copy.toml");
    std::fs::write(&copy, &exported).expect("written");
    server.rail(&["diff", "-f", copy.to_str().expect("UTF-8")]).ends(0);
    let json = server.rail(&["export", "-o", "json"]).ends(0).stdout;
    server.rail_with(&["diff", "-f", "-"], &json).ends(0);

    server.rail(&["msg", "send", "old", "x"]).ends(0);
    server.rail(&["apply", "-f", file, "--prune"]).ends(2).says("remove 1 queues with 1 messages");
    server.rail(&["apply", "-f", file, "--prune", "--yes"]).ends(0);
    server.rail(&["queue", "show", "old"]).ends(4);
    std::fs::write(&copy, "[queues.orders]\nmax_dept = 5\n").expect("written");
    server.rail(&["apply", "-f", copy.to_str().expect("UTF-8")]).ends(2).says("did you mean max_depth?");

    let namespace = server.rail(&["namespace", "set", "shop", "--ttl", "5m", "-o", "json"]).ends(0).json();
    assert_eq!(
        (namespace["defaults"]["owner"].as_str(), namespace["defaults"]["ttl"].as_str()),
        (Some("shop"), Some("5m"))
    );
    assert_eq!(namespace["auto_create"], false);
    let listed = server.rail(&["namespace", "ls", "-o", "json"]).ends(0).json();
    assert_eq!(listed[0]["name"], "shop");
    server.rail(&["namespace", "delete", "shop", "--yes"]).ends(0).says("built-in");
    server.rail(&["namespace", "delete", "shop", "--yes"]).ends(4).says("rail namespace ls");
}

#[test]
fn a_queue_is_watched_and_checked() {
    let server = Server::start(&[]);
    server.rail(&["queue", "create", "orders", "--owner", "kitchen"]).ends(0);
    server.rail(&["check", "queue", "orders"]).ends(3);
    server.rail(&["msg", "send", "orders", "x"]).ends(0);
    let check = |flags: &[&str]| server.rail(&[&["check", "queue", "orders"], flags].concat());
    assert!(check(&["--depth-warn", "5"]).ends(0).stdout.starts_with("QUEUE OK - orders: "));
    assert!(check(&["--depth-warn", "1"]).ends(1).stdout.contains("owner: kitchen"));
    assert_eq!(check(&["--depth-crit", "1", "-o", "json"]).ends(2).json()["health"], "critical");
    server.rail(&["check", "queue", "nowhere", "--depth-crit", "1"]).ends(3);
    server.rail(&["check", "queue"]).ends(3);
    server.rail(&["check", "queue", "orders", "--address", "http://127.0.0.1:9", "--timeout", "200ms"]).ends(3);
    let top = server.rail(&["top", "--interval", "200ms", "-o", "json"]).ends(0).json();
    assert_eq!((top[0]["name"].as_str(), top[0]["ready"].as_u64()), (Some("orders"), Some(1)));
    assert_eq!(top[0]["in_rate"].as_f64(), Some(0.0));
}

#[test]
fn mistakes_are_told_before_and_after_the_wire() {
    let server = Server::start(&["--auto-create", "false"]);
    server.rail(&["msg", "send", "nowhere", "x"]).ends(4).says("rail queue create");
    server.rail(&["msg", "receive", "nowhere"]).ends(4);
    server.rail(&["msg", "send", "bad name", "x"]).ends(2).says("expected only");
    server.rail(&["msg", "get", "nonsense"]).ends(2);
    server.rail(&["msg", "ack", "AAAA"]).ends(2).says("lease token");
    server.rail(&["msg", "ack", "!"]).ends(2);
    server.rail(&["msg", "send", "q", "--file", "/nonexistent/file"]).ends(4).says("/nonexistent/file");
    // Whoever listens there speaks no gRPC, or nobody does.
    server.rail(&["queue", "ls", "--address", "http://127.0.0.1:9", "--timeout", "200ms"]).ends(6).says("rail dev");
    server.rail(&["queue", "ls", "--address", "ftp://x"]).ends(2);
}

#[test]
fn a_second_server_on_one_directory_or_port_is_refused() {
    let server = Server::start(&[]);
    let port = server.address.trim_start_matches("http://").to_owned();
    let dir = tempfile::tempdir().expect("a directory");
    let other = dir.path().join("data");
    let other = other.to_str().expect("UTF-8");
    let serve = [
        "serve",
        "--stop-with-stdin",
        "--data-dir",
        other,
        "--ballast-bytes",
        "0 B",
        "--http-listen",
        "none",
        "--listen",
        &port,
    ];
    server.rail(&serve).ends(1).says("another process");
    let data = server.dir.path().join("data");
    let data = data.to_str().expect("UTF-8");
    let serve =
        ["serve", "--data-dir", data, "--ballast-bytes", "0 B", "--http-listen", "none", "--listen", "127.0.0.1:0"];
    server.rail(&serve).ends(1).says("error: ");
}

#[test]
fn the_configuration_is_printed_and_checked() {
    let run = |args: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_rail")).args(args).env_clear().output().expect("ran");
        Ran::new(args, output)
    };
    let printed = run(&["serve", "--print-config", "--flush-age", "7s"]).ends(0);
    assert!(printed.stdout.contains("flush_age = \"7s\""), "{}", printed.stdout);
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("rail.toml");
    std::fs::write(&file, "data_dri = \"x\"\n").expect("written");
    let file = file.to_str().expect("UTF-8");
    run(&["serve", "--print-config", "--config", file]).ends(2).says("data_dir");
    let script = run(&["completions", "bash"]).ends(0);
    assert!(script.stdout.contains("rail"), "a script");
}

#[test]
fn a_short_measurement_counts_what_it_sent() {
    let server = Server::start(&[]);
    let bench = ["bench", "both", "--duration", "1s", "--outstanding", "16", "--rate", "200", "-o", "json"];
    let report = server.rail(&bench).ends(0).json();
    assert_eq!(report["errors"].as_u64(), Some(0));
    assert_eq!(report["enqueue"]["messages"].as_u64(), Some(200));
    assert_eq!(report["ack"]["messages"].as_u64(), Some(200));
    let (p50, max) = (report["enqueue"]["p50_us"].as_u64(), report["enqueue"]["max_us"].as_u64());
    assert!(Some(0) < p50 && p50 <= max, "{report}");
    server.rail(&["queue", "show", "rail-bench"]).ends(4);
}
