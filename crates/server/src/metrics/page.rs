//! Families of figures, as Prometheus reads them.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, prometheus_text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;
use prometheus_client::registry::Registry;
use ticketrail_storage::histogram::Reading;

/// The content type of a page.
pub(crate) const CONTENT_TYPE: &str = prometheus_text::CONTENT_TYPE;

const NO_EXEMPLAR: Option<&Exemplar<NoLabelSet, f64>> = None;

/// The labels of one sample.
pub(crate) type Labels = Vec<(&'static str, String)>;

/// One family: figures with one name and one meaning, told apart by their labels.
#[derive(Debug, Clone)]
pub(crate) struct Family {
    /// With its unit; a counter without `_total`, which is added.
    name: &'static str,
    help: &'static str,
    samples: Samples,
}

#[derive(Debug, Clone)]
enum Samples {
    Counters(Vec<(Labels, Value)>),
    Gauges(Vec<(Labels, Value)>),
    /// Readings, and how many of their units make one of the family's.
    Histograms(Vec<(Labels, Reading)>, f64),
    Info(Labels),
}

/// A number, written without a fraction where it has none.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Value {
    Whole(u64),
    Real(f64),
}

/// A figure, or that it is not known.
pub(crate) trait Figure {
    fn known(self) -> Option<Value>;
}

impl Figure for u64 {
    fn known(self) -> Option<Value> {
        Some(Value::Whole(self))
    }
}

impl Figure for usize {
    fn known(self) -> Option<Value> {
        Some(Value::Whole(self as u64))
    }
}

impl Figure for bool {
    fn known(self) -> Option<Value> {
        Some(Value::Whole(u64::from(self)))
    }
}

impl Figure for f64 {
    fn known(self) -> Option<Value> {
        Some(Value::Real(self))
    }
}

impl<T: Figure> Figure for Option<T> {
    fn known(self) -> Option<Value> {
        self.and_then(T::known)
    }
}

/// The samples of what is known.
fn known<T: Figure>(samples: impl IntoIterator<Item = (Labels, T)>) -> Vec<(Labels, Value)> {
    samples.into_iter().filter_map(|(labels, value)| Some((labels, value.known()?))).collect()
}

impl Family {
    /// Figures that only grow, until the process restarts.
    pub(crate) fn counters<T: Figure>(
        name: &'static str,
        help: &'static str,
        samples: impl IntoIterator<Item = (Labels, T)>,
    ) -> Self {
        Self { name, help, samples: Samples::Counters(known(samples)) }
    }

    /// Figures that go up and down.
    pub(crate) fn gauges<T: Figure>(
        name: &'static str,
        help: &'static str,
        samples: impl IntoIterator<Item = (Labels, T)>,
    ) -> Self {
        Self { name, help, samples: Samples::Gauges(known(samples)) }
    }

    /// One figure that only grows.
    pub(crate) fn counter(name: &'static str, help: &'static str, value: impl Figure) -> Self {
        Self::counters(name, help, [(Labels::new(), value)])
    }

    /// One figure that goes up and down.
    pub(crate) fn gauge(name: &'static str, help: &'static str, value: impl Figure) -> Self {
        Self::gauges(name, help, [(Labels::new(), value)])
    }

    /// Distributions; `per` units of the readings make one of the family's.
    pub(crate) fn histograms(
        name: &'static str,
        help: &'static str,
        per: f64,
        samples: impl IntoIterator<Item = (Labels, Reading)>,
    ) -> Self {
        Self { name, help, samples: Samples::Histograms(samples.into_iter().collect(), per) }
    }

    /// What does not change, as labels; the name gets `_info`.
    pub(crate) fn info(name: &'static str, help: &'static str, labels: Labels) -> Self {
        Self { name, help, samples: Samples::Info(labels) }
    }

    fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let (kind, empty) = match &self.samples {
            Samples::Counters(samples) => (MetricType::Counter, samples.is_empty()),
            Samples::Gauges(samples) => (MetricType::Gauge, samples.is_empty()),
            Samples::Histograms(samples, _) => (MetricType::Histogram, samples.is_empty()),
            Samples::Info(_) => (MetricType::Info, false),
        };
        if empty {
            return Ok(());
        }
        let mut family = encoder.encode_descriptor(self.name, self.help, None, kind)?;
        match &self.samples {
            Samples::Counters(samples) => samples.iter().try_for_each(|(labels, value)| {
                let mut sample = family.encode_family(labels)?;
                match value {
                    Value::Whole(value) => sample.encode_counter(value, NO_EXEMPLAR),
                    Value::Real(value) => sample.encode_counter(value, NO_EXEMPLAR),
                }
            }),
            Samples::Gauges(samples) => samples.iter().try_for_each(|(labels, value)| {
                let mut sample = family.encode_family(labels)?;
                match value {
                    Value::Whole(value) => sample.encode_gauge(value),
                    Value::Real(value) => sample.encode_gauge(value),
                }
            }),
            Samples::Histograms(samples, per) => samples
                .iter()
                .try_for_each(|(labels, reading)| encode_reading(&mut family.encode_family(labels)?, reading, *per)),
            Samples::Info(labels) => family.encode_info(&labels.as_slice()),
        }
    }
}

fn encode_reading(sample: &mut MetricEncoder<'_>, reading: &Reading, per: f64) -> fmt::Result {
    let bounds = reading.bounds.iter().map(|bound| *bound as f64 / per);
    let buckets: Vec<(f64, u64)> = bounds.zip(reading.counts.iter().copied()).collect();
    sample.encode_histogram::<NoLabelSet>(reading.sum as f64 / per, reading.count(), &buckets, None)
}

/// All families of one page.
#[derive(Debug)]
struct Page(Vec<Family>);

impl Collector for Page {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|family| family.encode(&mut encoder))
    }
}

/// A page of `families`, in their order. Those without a sample are left out.
pub(crate) fn write(families: Vec<Family>) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Page(families)));
    let mut text = String::new();
    prometheus_text::encode(&mut text, &registry)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use ticketrail_storage::histogram::Histogram;

    use super::*;

    #[test]
    fn families_are_written_as_prometheus_reads_them() {
        let histogram = Histogram::new(&[1_000, 2_500]);
        [900, 1_000, 2_000, 9_000].into_iter().for_each(|micros| histogram.record(micros));
        let families = vec![
            Family::counters("t_sent", "Sent.", [(vec![("queue", "a\"b\\c".to_owned())], 7u64)]),
            Family::gauge("t_up", "Up.", true),
            Family::gauge("t_absent", "Not known.", None::<u64>),
            Family::histograms("t_sync_seconds", "Syncs.", 1e6, [(Labels::new(), histogram.read())]),
            Family::info("t_build", "Build.", vec![("version", "1.2.3".to_owned())]),
        ];
        let expected = "# HELP t_sent_total Sent.\n# TYPE t_sent_total counter\nt_sent_total{queue=\"a\\\"b\\\\c\"} 7\n\
                        # HELP t_up Up.\n# TYPE t_up gauge\nt_up 1\n\
                        # HELP t_sync_seconds Syncs.\n# TYPE t_sync_seconds histogram\n\
                        t_sync_seconds_bucket{le=\"0.001\"} 2\nt_sync_seconds_bucket{le=\"0.0025\"} 3\n\
                        t_sync_seconds_bucket{le=\"+Inf\"} 4\nt_sync_seconds_sum 0.0129\nt_sync_seconds_count 4\n\
                        # HELP t_build_info Build.\n# TYPE t_build_info gauge\nt_build_info{version=\"1.2.3\"} 1\n";
        assert_eq!(write(families).expect("a page"), expected);
    }
}
