//! What a measurement prints.

use serde::Serialize;

use super::load::{Figures, Measured};
use super::{BenchArgs, What};
use crate::output::{Card, millis};

/// A measurement, with what was asked for.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    what: &'static str,
    over: &'static str,
    producers: usize,
    consumers: usize,
    unconfirmed: usize,
    prefetch: usize,
    outstanding: usize,
    size_bytes: u64,
    rate: Option<u32>,
    batch: usize,
    receive_batch: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    enqueue: Option<Line>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delivery: Option<Line>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ack: Option<Line>,
    errors: u64,
}

/// One kind of step.
#[derive(Debug, Serialize)]
struct Line {
    messages: u64,
    took_ms: u64,
    messages_per_second: u64,
    p50_us: u64,
    p90_us: u64,
    p99_us: u64,
    p99_9_us: u64,
    max_us: u64,
}

impl Line {
    fn new(measured: &Measured) -> Self {
        let at = |quantile| measured.latency_us.value_at_quantile(quantile);
        let took_ms = millis(measured.took);
        Self {
            messages: measured.messages,
            took_ms,
            messages_per_second: measured.messages.saturating_mul(1_000).checked_div(took_ms).unwrap_or(0),
            p50_us: at(0.5),
            p90_us: at(0.9),
            p99_us: at(0.99),
            p99_9_us: at(0.999),
            max_us: measured.latency_us.max(),
        }
    }

    fn text(&self) -> String {
        let ms = |us: u64| format!("{}.{:02}", us / 1_000, us % 1_000 / 10);
        format!(
            "{} messages in {}.{} s, {}/s; ms: p50 {} p90 {} p99 {} p99.9 {} max {}",
            self.messages,
            self.took_ms / 1_000,
            self.took_ms % 1_000 / 100,
            self.messages_per_second,
            ms(self.p50_us),
            ms(self.p90_us),
            ms(self.p99_us),
            ms(self.p99_9_us),
            ms(self.max_us)
        )
    }
}

impl Report {
    pub(crate) fn new(args: &BenchArgs, figures: &Figures) -> Self {
        let what = match args.what {
            What::Enqueue => "enqueue",
            What::Receive => "receive",
            What::Both => "both",
        };
        Self {
            what,
            over: if args.unary { "calls" } else { "streams" },
            producers: args.producers,
            consumers: args.consumers,
            unconfirmed: args.unconfirmed,
            prefetch: args.prefetch,
            outstanding: args.outstanding,
            size_bytes: args.size,
            rate: args.rate,
            batch: args.batch,
            receive_batch: args.receive_batch,
            enqueue: args.what.produces().then(|| Line::new(&figures.enqueue)),
            // Messages put there first waited for the measurement to begin: their age says nothing.
            delivery: (args.what == What::Both).then(|| Line::new(&figures.delivery)),
            ack: args.what.consumes().then(|| Line::new(&figures.ack)),
            errors: figures.errors,
        }
    }
}

impl Card for Report {
    fn fields(&self) -> Vec<(&'static str, String)> {
        let rate = self.rate.map_or_else(|| "as fast as it goes".to_owned(), |rate| format!("{rate}/s, open loop"));
        let in_flight = match self.over {
            "streams" => format!("{} unconfirmed and {} prefetched each", self.unconfirmed, self.prefetch),
            _ => format!("{} outstanding", self.outstanding),
        };
        let mut fields = vec![
            ("measured", format!("{} over {}, {rate}", self.what, self.over)),
            (
                "load",
                format!(
                    "{} producers, {} consumers, {in_flight}, {} bytes",
                    self.producers, self.consumers, self.size_bytes
                ),
            ),
        ];
        let lines = [("enqueue", &self.enqueue), ("until delivered", &self.delivery), ("ack", &self.ack)];
        fields.extend(lines.into_iter().filter_map(|(name, line)| Some((name, line.as_ref()?.text()))));
        fields.push(("errors", self.errors.to_string()));
        fields
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use hdrhistogram::Histogram;

    use super::*;

    #[test]
    fn a_line_holds_rate_and_percentiles() {
        let mut latency_us = Histogram::new_with_bounds(1, 1_000_000, 3).expect("a histogram");
        for us in 1..=1_000 {
            latency_us.record(us).expect("recorded");
        }
        let line = Line::new(&Measured { latency_us, messages: 1_000, took: Duration::from_millis(500) });
        assert_eq!((line.messages_per_second, line.p50_us, line.p99_us, line.max_us), (2_000, 500, 990, 1_000));
        assert!(line.text().contains("2000/s; ms: p50 0.50"), "{}", line.text());
    }
}
