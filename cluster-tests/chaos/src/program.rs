//! Runs a program and reads what it says.

use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};

/// Runs `words`, a program and its arguments, and returns what it printed.
///
/// # Errors
/// With what it said, where it can't be started or fails.
pub fn run(words: &[&str]) -> anyhow::Result<String> {
    feed(words, "")
}

/// The same with `input` on its stdin.
///
/// # Errors
/// As [`run`].
pub fn feed(words: &[&str], input: &str) -> anyhow::Result<String> {
    use std::io::Write as _;
    let (program, args) = words.split_first().context("expected a program, but there is none")?;
    let mut child = Command::new(program)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("start {program}"))?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(input.as_bytes()).with_context(|| format!("tell {program} what to do"))?;
    }
    let output = child.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "expected `{}` to succeed, but {}: {}",
        words.join(" "),
        output.status,
        said.trim()
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_it_says_is_read_and_what_fails_is_told() {
        assert_eq!(feed(&["cat"], "a word").expect("cat"), "a word");
        let error = run(&["sh", "-c", "echo no room >&2; exit 3"]).expect_err("it fails").to_string();
        assert!(error.contains("no room") && error.contains('3'), "{error}");
    }
}
