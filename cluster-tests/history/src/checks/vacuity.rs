//! A run counts only if it has shown something: faults took effect, and clients got on with their work.

use std::collections::BTreeMap;

use super::{After, Check, Findings};
use crate::case::Case;
use crate::format::{Kind, Phase};

pub(super) struct Vacuity;

impl Check for Vacuity {
    fn name(&self) -> &'static str {
        "not vacuous: faults took effect and work was done"
    }

    fn end(&mut self, case: &Case, _: &After<'_>, out: &mut Findings) {
        let expect = &case.meta.expect;
        let mut succeeded: BTreeMap<Kind, u64> = BTreeMap::new();
        for op in case.story.ops.iter().filter(|op| op.is_ok()) {
            *succeeded.entry(op.kind).or_default() += 1;
        }
        out.looked += 1;
        if succeeded.is_empty() {
            out.invalid.push("no operation succeeded".to_owned());
        }
        for (kind, least) in &expect.ok {
            out.looked += 1;
            let got = succeeded.get(kind).copied().unwrap_or(0);
            if got < *least {
                out.invalid
                    .push(format!("expected {least} or more {} operations to succeed, but {got} did", kind.name()));
            }
        }
        let mut faults: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        for line in &case.nemesis {
            let counts = faults.entry(&line.fault).or_default();
            match line.phase {
                Phase::Begin => counts.0 += 1,
                Phase::Effect => counts.1 += 1,
                Phase::End => {}
            }
        }
        for (fault, (begun, effects)) in &faults {
            out.looked += 1;
            if *effects == 0 {
                out.invalid.push(format!("the fault {fault} began {begun} times, but was never seen to take effect"));
            }
        }
        for (fault, least) in &expect.faults {
            out.looked += 1;
            let (begun, effects) = faults.get(fault.as_str()).copied().unwrap_or_default();
            if begun < *least || effects < *least {
                out.invalid.push(format!(
                    "expected the fault {fault} {least} times or more, but it began {begun} times and took effect {effects} times"
                ));
            }
        }
        let share = calm_share(case);
        out.looked += 1;
        if let Some((share, ops)) = share.filter(|(share, _)| *share < expect.success) {
            out.invalid.push(format!(
                "expected {:.1} % of the operations outside of faults to succeed, but of {ops} only {:.1} % did",
                expect.success * 100.0,
                share * 100.0
            ));
        }
    }
}

/// The share of operations that succeeded of those that began and ended outside of any fault, and how many they are.
fn calm_share(case: &Case) -> Option<(f64, u64)> {
    let mut under_way: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    let mut stormy: Vec<(u64, u64)> = Vec::new();
    for line in &case.nemesis {
        let key = (line.fault.as_str(), line.target.as_str());
        match line.phase {
            Phase::Begin => {
                under_way.entry(key).or_insert(line.t);
            }
            Phase::Effect => {}
            Phase::End => {
                if let Some(begin) = under_way.remove(&key) {
                    stormy.push((begin, line.t));
                }
            }
        }
    }
    stormy.extend(under_way.into_values().map(|begin| (begin, u64::MAX)));
    stormy.sort_unstable();
    // Joined where they overlap, so that the one before a time tells.
    let mut joined: Vec<(u64, u64)> = Vec::new();
    for (begin, end) in stormy {
        match joined.last_mut() {
            Some(last) if begin <= last.1 => last.1 = last.1.max(end),
            Some(_) | None => joined.push((begin, end)),
        }
    }
    let calm = |t0: u64, t1: u64| {
        let at = joined.partition_point(|(begin, _)| *begin <= t1);
        joined[..at].last().is_none_or(|(_, end)| *end < t0)
    };
    let (mut all, mut good) = (0u64, 0u64);
    for op in &case.story.ops {
        // An operation without an end was under way when the history ended, or is unknown: it counts by its begin.
        let end = if op.t1 == u64::MAX { op.t0 } else { op.t1 };
        if calm(op.t0, end) {
            all += 1;
            good += u64::from(op.is_ok());
        }
    }
    (all > 0).then(|| (good as f64 / all as f64, all))
}
