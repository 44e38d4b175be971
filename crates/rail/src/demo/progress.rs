//! What the person sees while the demo runs: bars on a terminal, lines elsewhere. All of it on stderr.

use std::fmt::Display;
use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use super::stage::Stage;
use crate::output;

/// Without a terminal a line is printed so often.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// How far the orders are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Standing {
    /// Orders to send.
    pub(crate) orders: usize,
    /// Acknowledged to a producer.
    pub(crate) acknowledged: usize,
    /// Finished at each stage.
    pub(crate) finished: [usize; Stage::ALL.len()],
    /// Rejected for good, at any stage.
    pub(crate) dead_lettered: usize,
}

impl Standing {
    /// Come to their end.
    pub(crate) fn ended(&self) -> usize {
        self.finished.last().map_or(0, |confirmed| confirmed + self.dead_lettered)
    }
}

/// The display.
#[derive(Debug)]
pub(crate) struct Progress {
    kind: Kind,
    started: Instant,
}

#[derive(Debug)]
enum Kind {
    Bars { all: MultiProgress, acknowledged: ProgressBar, finished: ProgressBar },
    Lines { last: Option<Instant> },
}

impl Progress {
    pub(crate) fn new(orders: usize) -> Self {
        let started = Instant::now();
        if !std::io::stderr().is_terminal() {
            return Self { kind: Kind::Lines { last: None }, started };
        }
        let all = MultiProgress::new();
        let bar = |name: &'static str| {
            // A template of ours that does not parse would leave the plain bar.
            let style = ProgressStyle::with_template("{prefix:>14} {wide_bar} {human_pos}/{human_len} {msg}")
                .unwrap_or_else(|_| ProgressStyle::default_bar());
            all.add(ProgressBar::new(orders as u64).with_style(style).with_prefix(name))
        };
        let (acknowledged, finished) = (bar("acknowledged"), bar("ended"));
        Self { kind: Kind::Bars { all, acknowledged, finished }, started }
    }

    /// Shows where the orders stand.
    pub(crate) fn show(&mut self, standing: Standing) {
        match &mut self.kind {
            Kind::Bars { acknowledged, finished, .. } => {
                acknowledged.set_position(standing.acknowledged as u64);
                finished.set_position(standing.ended() as u64);
                finished.set_message(format!("{} of them dead-lettered", standing.dead_lettered));
            }
            Kind::Lines { last } => {
                if last.is_some_and(|last| last.elapsed() < LINE_EVERY) {
                    return;
                }
                *last = Some(Instant::now());
                let Standing { orders, acknowledged, finished: [ordered, paid, stocked, confirmed], dead_lettered } =
                    standing;
                self.event(format_args!(
                    "acknowledged {acknowledged} of {orders}; done: orders {ordered}, payment {paid}, stock {stocked}, \
                     confirmation {confirmed}; dead-lettered {dead_lettered}"
                ));
            }
        }
    }

    /// Says what happened.
    pub(crate) fn event(&self, text: impl Display) {
        let line = format!("{:5.1}s  {text}", self.started.elapsed().as_secs_f64());
        match &self.kind {
            // A terminal that cannot be written to is not worth failing for.
            Kind::Bars { all, .. } => drop(all.println(line)),
            Kind::Lines { .. } => output::say(line),
        }
    }

    /// Takes the bars away.
    pub(crate) fn finish(&self) {
        match &self.kind {
            Kind::Bars { acknowledged, finished, .. } => {
                acknowledged.finish_and_clear();
                finished.finish_and_clear();
            }
            Kind::Lines { .. } => {}
        }
    }
}
