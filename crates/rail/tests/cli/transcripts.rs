//! The pages with transcripts are true: each of their commands is run, in order, against a server of its own, and prints
//! what the page says. `UPDATE_GOLDENFILES=1` writes down what is printed.

use std::path::Path;

use regex::Regex;

use crate::server::Server;

/// What differs from run to run, and what stands for it in a comparison.
const VOLATILE: [(&str, &str); 6] = [
    (TOKEN, "TOKEN"),
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", "TIME"),
    // What is left of a lease, and other times that go on.
    (r"\b\d+s +TOKEN", "LEFT TOKEN"),
    (r"\b(\d+s )?\d+ms\b", "LEFT"),
    (r"oldest=[0-9.]+s", "oldest=LEFT"),
    // The width of a column.
    (r" {2,}", "  "),
];

/// A lease token.
const TOKEN: &str = r"\bAQ[A-Za-z0-9_-]{40,}";

/// What stands at the beginning of a line with a command.
const PROMPT: &str = "$ ";

/// A page with what its commands print now.
fn replayed(page: &str, server: &Server) -> String {
    let token = Regex::new(TOKEN).expect("an expression");
    let dir = tempfile::tempdir().expect("a directory");
    let (mut new, mut last_token) = (String::new(), String::new());
    let (mut in_transcript, mut commands) = (false, 0);
    for line in page.lines() {
        let ends = in_transcript && line == "```";
        if !in_transcript || ends {
            in_transcript = !ends && line == "```console";
            new += &format!("{line}\n");
            continue;
        }
        let Some(command) = line.strip_prefix(PROMPT) else { continue };
        commands += 1;
        let printed = run(command, server, dir.path(), &last_token);
        if let Some(found) = token.find_iter(&printed).last() {
            found.as_str().clone_into(&mut last_token);
        }
        new += &format!("{line}\n{printed}");
    }
    assert!(commands > 0, "a page without a command");
    new
}

/// What a command prints, and its exit code where that is not 0.
fn run(command: &str, server: &Server, dir: &Path, token: &str) -> String {
    let rail = Path::new(env!("CARGO_BIN_EXE_rail")).parent().expect("a directory");
    let path = std::env::var("PATH").unwrap_or_default();
    let output = server
        .command("bash")
        .args(["-c", &format!("exec 2>&1\n{command}")])
        .current_dir(dir)
        .env("PATH", format!("{}:{path}", rail.display()))
        .env("TOKEN", token)
        .output()
        .expect("ran");
    let mut printed = String::from_utf8(output.stdout).expect("UTF-8");
    if let Some(code) = output.status.code().filter(|code| *code != 0) {
        printed += &format!("(exit code {code})\n");
    }
    printed
}

/// A page without what differs from run to run.
fn lasting(page: &str) -> String {
    let mut lasting = page.to_owned();
    for (volatile, stands) in VOLATILE {
        let volatile = Regex::new(volatile).expect("an expression");
        lasting = volatile.replace_all(&lasting, stands).into_owned();
    }
    lasting
}

fn is_true(name: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    let page = std::fs::read_to_string(&path).expect("the page");
    let server = Server::start(&[]);
    let now = replayed(&page, &server);
    if std::env::var("UPDATE_GOLDENFILES").is_ok_and(|update| update == "1") {
        std::fs::write(&path, now).expect("written");
        return;
    }
    similar_asserts::assert_eq!(lasting(&page), lasting(&now), "docs/{name}");
}

#[test]
fn the_rules_by_hand() {
    is_true("rules-by-hand.md");
}
