//! What a run says of itself: to people, and to the process that began it.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::run::Verdict;

/// For people.
pub fn in_words(seed: u64, verdict: &Verdict) -> String {
    let mut text = String::new();
    for (what, count) in &verdict.counts {
        // Writing to a string does not fail.
        let _ = writeln!(text, "  {what}: {count}");
    }
    let _ = writeln!(text, "  simulated: {:.3} s; trace {}", verdict.simulated.as_secs_f64(), verdict.digest);
    for breach in &verdict.breaches {
        let _ = writeln!(text, "seed {seed} broke: {breach}");
    }
    let outcome = if verdict.breaches.is_empty() { "1 passed, 0 failed" } else { "0 passed, 1 failed" };
    let _ = writeln!(text, "{outcome}");
    text
}

/// For the process that began it.
pub fn to_lines(verdict: &Verdict) -> String {
    let mut text = String::new();
    for (what, count) in &verdict.counts {
        // As above.
        let _ = writeln!(text, "count\t{count}\t{what}");
    }
    let _ = writeln!(text, "simulated\t{}", verdict.simulated.as_millis());
    let _ = writeln!(text, "trace\t{}", verdict.digest);
    for breach in &verdict.breaches {
        let _ = writeln!(text, "broke\t{}", breach.replace('\n', " "));
    }
    text
}

/// What a run said.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Said {
    /// How often what happened.
    pub counts: BTreeMap<String, u64>,
    /// What does not hold.
    pub broke: Vec<String>,
    /// How long it was, in simulated milliseconds.
    pub simulated_ms: u64,
    /// What its trace tells; empty: it was not over.
    pub trace: String,
}

/// Reads what `to_lines` wrote.
pub fn from_lines(text: &str) -> Said {
    let mut said = Said::default();
    for line in text.lines() {
        let words: Vec<&str> = line.splitn(3, '\t').collect();
        match words.as_slice() {
            ["count", count, what] => {
                said.counts.insert((*what).to_owned(), count.parse().unwrap_or(0));
            }
            ["simulated", ms] => said.simulated_ms = ms.parse().unwrap_or(0),
            ["trace", digest] => said.trace = (*digest).to_owned(),
            ["broke", why] => said.broke.push((*why).to_owned()),
            _ => {}
        }
    }
    said
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::trace::Digest;

    #[test]
    fn what_is_said_is_understood() {
        let verdict = Verdict {
            breaches: vec!["one\nthing".into()],
            counts: BTreeMap::from([("told: settled".to_owned(), 3)]),
            simulated: Duration::from_millis(1_234),
            digest: Digest { lines: 5, hash: 255 },
        };
        let said = from_lines(&to_lines(&verdict));
        let expected = Said {
            counts: verdict.counts.clone(),
            broke: vec!["one thing".into()],
            simulated_ms: 1_234,
            trace: "00000000000000ff of 5 lines".into(),
        };
        assert_eq!(said, expected);
        assert!(in_words(4, &verdict).ends_with("0 passed, 1 failed\n"));
    }
}
