//! The figures of each run, side by side, and their ratios.

use std::fmt;

use crate::load::{Both, Paced};

/// What one freshly started cluster did.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Run {
    /// Under as much load as it takes.
    pub(crate) both: Both,
    /// At a fixed rate.
    pub(crate) paced: Paced,
}

/// Whose run it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Ours,
    Theirs,
}

/// All runs, in pairs: the first of ours with the first of theirs.
#[derive(Debug, Default)]
pub(crate) struct Table {
    ours: Vec<Run>,
    theirs: Vec<Run>,
}

/// What is judged: the medians over all pairs of ours by theirs.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Ratios {
    both: f64,
    confirm_p50: f64,
}

/// At least so much throughput, ours by theirs.
const BOTH_AT_LEAST: f64 = 1.0;
/// At most so long until a confirm, ours by theirs.
const CONFIRM_AT_MOST: f64 = 1.1;

impl Table {
    /// Adds a run.
    pub(crate) fn push(&mut self, side: Side, run: Run) {
        match side {
            Side::Ours => self.ours.push(run),
            Side::Theirs => self.theirs.push(run),
        }
    }

    /// How many runs have their counterpart.
    fn pairs(&self) -> usize {
        self.ours.len().min(self.theirs.len())
    }

    /// `None` where there is no pair.
    fn ratios(&self) -> Option<Ratios> {
        let of = |figure: fn(&Run) -> f64| {
            median(self.ours.iter().zip(&self.theirs).map(|(ours, theirs)| figure(ours) / figure(theirs)).collect())
        };
        Some(Ratios { both: of(|run| run.both.through())?, confirm_p50: of(|run| run.paced.confirm_ms[0])? })
    }
}

/// The middle one; of an even number, the mean of the middle two.
fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        count if count % 2 == 1 => values.get(middle).copied(),
        _ => Some((values.get(middle - 1)? + values.get(middle)?) / 2.0),
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Side::Ours => "ticketrail",
            Side::Theirs => "nats jetstream",
        })
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Run { both, paced: Paced { confirm_ms, deliver_ms } } = self;
        write!(
            f,
            "{:.0}/s ({:.0} confirmed, {:.0} consumed); confirm {:.2} / {:.2} ms, deliver {:.2} / {:.2} ms",
            both.through(),
            both.confirmed,
            both.consumed,
            confirm_ms[0],
            confirm_ms[1],
            deliver_ms[0],
            deliver_ms[1]
        )
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<5} {:<15} {:>10} {:>12} {:>12} {:>9} {:>9} {:>9} {:>9}",
            "pair", "", "both/s", "confirmed/s", "consumed/s", "confirm", "ms p99", "deliver", "ms p99"
        )?;
        for number in 0..self.ours.len().max(self.theirs.len()) {
            for (side, runs) in [(Side::Ours, &self.ours), (Side::Theirs, &self.theirs)] {
                let Some(Run { both, paced: Paced { confirm_ms, deliver_ms } }) = runs.get(number) else { continue };
                writeln!(
                    f,
                    "{:<5} {side:<15} {:>10.0} {:>12.0} {:>12.0} {:>9.2} {:>9.2} {:>9.2} {:>9.2}",
                    number + 1,
                    both.through(),
                    both.confirmed,
                    both.consumed,
                    confirm_ms[0],
                    confirm_ms[1],
                    deliver_ms[0],
                    deliver_ms[1]
                )?;
            }
        }
        let Some(Ratios { both, confirm_p50 }) = self.ratios() else { return write!(f, "no pair, no ratio") };
        let verdict = |met: bool| if met { "met" } else { "missed" };
        writeln!(f)?;
        writeln!(
            f,
            "both at once, ours by theirs:  {both:.2}, the median of {} (at least {BOTH_AT_LEAST:.1}: {})",
            self.pairs(),
            verdict(both >= BOTH_AT_LEAST)
        )?;
        write!(
            f,
            "confirm p50, ours by theirs:   {confirm_p50:.2}, the median of {} (at most {CONFIRM_AT_MOST:.1}: {})",
            self.pairs(),
            verdict(confirm_p50 <= CONFIRM_AT_MOST)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(confirmed: f64, consumed: f64, confirm: f64) -> Run {
        let paced = Paced { confirm_ms: [confirm, 2.0 * confirm], deliver_ms: [confirm + 1.0, 9.0] };
        Run { both: Both { confirmed, consumed }, paced }
    }

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![3.0]), Some(3.0));
        assert_eq!(median(vec![9.0, 1.0, 5.0]), Some(5.0));
        assert_eq!(median(vec![4.0, 1.0, 2.0, 9.0]), Some(3.0));
    }

    #[test]
    fn ratios_are_of_pairs_and_a_backlog_is_no_throughput() {
        let mut table = Table::default();
        assert_eq!(table.ratios(), None);
        // 12,000 confirmed, but only 9,000 came through.
        for ours in [run(12_000.0, 9_000.0, 3.0), run(12_000.0, 12_000.0, 2.0), run(20_000.0, 20_000.0, 1.0)] {
            table.push(Side::Ours, ours);
            table.push(Side::Theirs, run(10_000.0, 10_000.0, 2.0));
        }
        // One without its counterpart does not count.
        table.push(Side::Ours, run(90_000.0, 90_000.0, 1.0));
        assert_eq!(table.ratios(), Some(Ratios { both: 1.2, confirm_p50: 1.0 }));
    }

    #[test]
    fn the_table_has_a_line_a_run_and_says_what_was_met() {
        let mut table = Table::default();
        table.push(Side::Ours, run(8_000.0, 9_000.0, 2.5));
        assert!(table.to_string().ends_with("no pair, no ratio"));
        table.push(Side::Theirs, run(10_000.0, 11_000.0, 2.5));
        let text = table.to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[1].starts_with("1     ticketrail ") && lines[1].contains(" 8000 "), "{text}");
        assert!(lines[2].starts_with("1     nats jetstream ") && lines[2].contains(" 10000 "), "{text}");
        assert!(text.contains("both at once, ours by theirs:  0.80, the median of 1 (at least 1.0: missed)"), "{text}");
        assert!(text.contains("confirm p50, ours by theirs:   1.00, the median of 1 (at most 1.1: met)"), "{text}");
    }
}
