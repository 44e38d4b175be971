//! Rules that stop traffic at a node (nftables), with counters that prove that they did.

use std::net::Ipv4Addr;

use anyhow::Context as _;
use serde_json::Value;

use crate::program::{feed, run};
use crate::switch::Host;

/// The table that all rules stand in.
const TABLE: &str = "chaos";

/// Which packets of a node's are concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Those that come.
    In,
    /// Those that go.
    Out,
    /// All.
    Both,
}

/// What is lost at a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Which way.
    pub way: Way,
    /// From and to whom.
    pub others: Vec<Ipv4Addr>,
    /// How many of a hundred packets, chosen at random.
    pub percent: u8,
    /// Only packets of more bytes than this are concerned.
    pub longer_than: u16,
}

impl Rule {
    /// Nothing comes from or goes to `others`.
    pub fn all(way: Way, others: impl IntoIterator<Item = Ipv4Addr>) -> Self {
        Self { way, others: others.into_iter().collect(), percent: 100, longer_than: 0 }
    }

    /// So many of a hundred packets from and to `others` are lost.
    pub fn some(percent: u8, others: impl IntoIterator<Item = Ipv4Addr>) -> Self {
        Self { percent, ..Self::all(Way::Both, others) }
    }
}

/// The rules at one node, and nothing else: what was there before is gone.
///
/// # Errors
/// Where nft does not take them.
pub fn set(host: &Host, rules: &[Rule]) -> anyhow::Result<()> {
    nft(host, &script(rules)).with_context(|| format!("cut at {}", host.name))
}

/// Ends all rules at a node; returns how many packets they stopped.
///
/// # Errors
/// Where nft fails.
pub fn heal(host: &Host) -> anyhow::Result<u64> {
    let stopped = stopped(host)?;
    nft(host, &format!("add table inet {TABLE}\ndelete table inet {TABLE}\n"))?;
    Ok(stopped)
}

/// How many packets the rules at a node have stopped so far; 0 where there are none.
///
/// # Errors
/// Where nft fails.
pub fn stopped(host: &Host) -> anyhow::Result<u64> {
    let words = inside(host, &["nft", "-j", "list", "ruleset"]);
    let text = run(&words.iter().map(String::as_str).collect::<Vec<_>>())?;
    Ok(packets(&serde_json::from_str(&text).with_context(|| format!("read what nft lists: {text}"))?))
}

fn nft(host: &Host, script: &str) -> anyhow::Result<()> {
    let words = inside(host, &["nft", "-f", "-"]);
    feed(&words.iter().map(String::as_str).collect::<Vec<_>>(), script)?;
    Ok(())
}

fn inside(host: &Host, words: &[&str]) -> Vec<String> {
    let mut all = host.through();
    all.extend(words.iter().map(|word| (*word).to_owned()));
    all
}

/// One statement a line: nft takes no other form of a chain.
fn script(rules: &[Rule]) -> String {
    let mut text = format!("add table inet {TABLE}\ndelete table inet {TABLE}\ntable inet {TABLE} {{\n");
    for (way, hook, side) in [(Way::In, "input", "saddr"), (Way::Out, "output", "daddr")] {
        text.push_str(&format!("chain {hook} {{\ntype filter hook {hook} priority 0;\npolicy accept;\n"));
        for rule in rules.iter().filter(|rule| rule.way == way || rule.way == Way::Both) {
            let others: Vec<String> = rule.others.iter().map(Ipv4Addr::to_string).collect();
            let chance = match rule.percent {
                100.. => String::new(),
                percent => format!("numgen random mod 100 < {percent} "),
            };
            let size = match rule.longer_than {
                0 => String::new(),
                bytes => format!("meta length > {bytes} "),
            };
            text.push_str(&format!("ip {side} {{ {} }} {size}{chance}counter drop\n", others.join(", ")));
        }
        text.push_str("}\n");
    }
    text.push_str("}\n");
    text
}

/// The sum of all counters in what nft lists.
fn packets(listed: &Value) -> u64 {
    match listed {
        Value::Object(fields) => fields
            .iter()
            .map(|(key, value)| match key.as_str() {
                "counter" => value.get("packets").and_then(Value::as_u64).unwrap_or(0),
                _ => packets(value),
            })
            .sum(),
        Value::Array(values) => values.iter().map(packets).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_stands_at_each_way_that_it_stops() {
        let other = Ipv4Addr::new(10, 83, 0, 12);
        let large = Rule { longer_than: 500, ..Rule::all(Way::Out, [other]) };
        let text = script(&[Rule::all(Way::In, [other]), Rule::some(30, [other]), large]);
        let drops: Vec<&str> = text.lines().filter(|line| line.ends_with("drop")).collect();
        assert_eq!(
            drops,
            [
                "ip saddr { 10.83.0.12 } counter drop",
                "ip saddr { 10.83.0.12 } numgen random mod 100 < 30 counter drop",
                "ip daddr { 10.83.0.12 } numgen random mod 100 < 30 counter drop",
                "ip daddr { 10.83.0.12 } meta length > 500 counter drop",
            ]
        );
    }

    #[test]
    fn counters_are_summed() {
        let listed = serde_json::json!({"nftables": [
            {"table": {"name": "chaos"}},
            {"rule": {"expr": [{"match": {}}, {"counter": {"packets": 3, "bytes": 180}}, {"drop": null}]}},
            {"rule": {"expr": [{"counter": {"packets": 4, "bytes": 60}}]}},
        ]});
        assert_eq!(packets(&listed), 7);
    }
}
