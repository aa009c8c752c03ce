//! Exact latencies, for the summary and for `/metrics`: each row counts once, at its commit, and the answer is
//! percentiles to three digits, not the borders of buckets.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hdrhistogram::Histogram;
use prometheus::core::{Collector, Desc};
use prometheus::proto::{LabelPair, Metric, MetricFamily, MetricType, Quantile, Summary};

/// Exact latencies, in milliseconds, with three significant digits: up to ten hours.
pub struct Latency(Mutex<Counted>);

struct Counted {
    histogram: Histogram<u64>,
    sum: Duration,
}

/// Percentiles of a [`Latency`], in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, schemars::JsonSchema)]
pub struct Percentiles {
    /// How many were counted.
    pub count: u64,
    /// The least.
    pub min_ms: u64,
    /// The median.
    pub p50_ms: u64,
    /// 90 % are at most this.
    pub p90_ms: u64,
    /// 95 % are at most this.
    pub p95_ms: u64,
    /// 99 % are at most this.
    pub p99_ms: u64,
    /// The greatest.
    pub max_ms: u64,
}

const LATENCY_MAX_MS: u64 = 36_000_000;

fn histogram() -> Histogram<u64> {
    match Histogram::new_with_bounds(1, LATENCY_MAX_MS, 3) {
        Ok(histogram) => histogram,
        Err(error) => unreachable!("constant bounds of the latency histogram: {error}"),
    }
}

impl From<&Histogram<u64>> for Percentiles {
    fn from(h: &Histogram<u64>) -> Percentiles {
        if h.is_empty() {
            return Percentiles::default();
        }
        Percentiles {
            count: h.len(),
            min_ms: h.min(),
            p50_ms: h.value_at_quantile(0.5),
            p90_ms: h.value_at_quantile(0.9),
            p95_ms: h.value_at_quantile(0.95),
            p99_ms: h.value_at_quantile(0.99),
            max_ms: h.max(),
        }
    }
}

impl Default for Latency {
    fn default() -> Self {
        Latency(Mutex::new(Counted { histogram: histogram(), sum: Duration::ZERO }))
    }
}

impl Latency {
    /// Counts `count` messages that took `latency`. Longer than ten hours counts as ten hours.
    pub fn record(&self, latency: Duration, count: u64) {
        let ms = (latency.as_millis() as u64).clamp(1, LATENCY_MAX_MS);
        let mut counted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counted.histogram.saturating_record_n(ms, count);
        counted.sum = counted.sum.saturating_add(Duration::from_millis(ms.saturating_mul(count)));
    }

    /// All latencies added up.
    pub fn sum(&self) -> Duration {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).sum
    }

    /// The percentiles so far.
    pub fn percentiles(&self) -> Percentiles {
        (&self.0.lock().unwrap_or_else(PoisonError::into_inner).histogram).into()
    }
}

/// Half of the time that [`Recent`] looks back, at most.
const HALF: Duration = Duration::from_secs(5);

/// Latencies of the last five to ten seconds: for whoever looks now.
pub struct Recent {
    current: Histogram<u64>,
    before: Histogram<u64>,
    since: Duration,
}

impl Default for Recent {
    fn default() -> Self {
        Recent { current: histogram(), before: histogram(), since: Duration::ZERO }
    }
}

impl Recent {
    /// Counts `count` messages that took `latency`, at `now` on any clock that goes on.
    pub fn record(&mut self, now: Duration, latency: Duration, count: u64) {
        self.forget(now);
        self.current.saturating_record_n((latency.as_millis() as u64).clamp(1, LATENCY_MAX_MS), count);
    }

    /// The percentiles at `now`.
    pub fn percentiles(&mut self, now: Duration) -> Percentiles {
        self.forget(now);
        let mut both = self.before.clone();
        // Both have the same bounds.
        let _ = both.add(&self.current);
        (&both).into()
    }

    fn forget(&mut self, now: Duration) {
        let age = now.saturating_sub(self.since);
        if age < HALF {
            return;
        }
        std::mem::swap(&mut self.current, &mut self.before);
        self.current.reset();
        if age >= 2 * HALF {
            self.before.reset();
        }
        self.since = now;
    }
}

/// A Prometheus summary of latencies, one for each value of its label.
#[derive(Clone)]
pub struct Latencies {
    description: Desc,
    label: String,
    values: Arc<Mutex<BTreeMap<String, Arc<Latency>>>>,
}

impl Latencies {
    /// A summary by name.
    pub fn new(name: &str, help: &str, label: &str) -> prometheus::Result<Latencies> {
        let description = Desc::new(name.into(), help.into(), vec![label.into()], Default::default())?;
        Ok(Latencies { description, label: label.to_string(), values: Arc::default() })
    }

    /// Shows `latency` under a value of the label, and whatever it counts from here on.
    pub fn show(&self, value: &str, latency: &Arc<Latency>) {
        self.values.lock().unwrap_or_else(PoisonError::into_inner).insert(value.to_string(), latency.clone());
    }

    fn metric(&self, value: &str, latency: &Latency) -> Metric {
        let mut label = LabelPair::default();
        label.set_name(self.label.clone());
        label.set_value(value.to_string());
        let p = latency.percentiles();
        let quantile = |(at, ms): (f64, u64)| {
            let mut quantile = Quantile::default();
            quantile.set_quantile(at);
            quantile.set_value(ms as f64 / 1000.0);
            quantile
        };
        let mut summary = Summary::default();
        summary.set_quantile([(0.5, p.p50_ms), (0.95, p.p95_ms), (0.99, p.p99_ms)].map(quantile).to_vec());
        summary.set_sample_count(p.count);
        summary.set_sample_sum(latency.sum().as_secs_f64());
        let mut metric = Metric::default();
        metric.set_label(vec![label]);
        metric.set_summary(summary);
        metric
    }
}

impl Collector for Latencies {
    fn desc(&self) -> Vec<&Desc> {
        vec![&self.description]
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let values = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        let mut family = MetricFamily::default();
        family.set_name(self.description.fq_name.clone());
        family.set_help(self.description.help.clone());
        family.set_field_type(MetricType::SUMMARY);
        family.set_metric(values.iter().map(|(value, latency)| self.metric(value, latency)).collect());
        vec![family]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_count_each_message_once() {
        let latency = Latency::default();
        latency.record(Duration::from_millis(10), 99);
        latency.record(Duration::from_millis(1000), 1);
        let p = latency.percentiles();
        assert_eq!((p.count, p.p50_ms, p.p99_ms), (100, 10, 10));
        assert_eq!(p.max_ms, 1000);
    }

    #[test]
    fn a_summary_shows_quantiles_count_and_sum_of_each_value() {
        let latencies = Latencies::new("x_seconds", "Help.", "sink").unwrap();
        let latency = Arc::new(Latency::default());
        latencies.show("a", &latency);
        latency.record(Duration::from_millis(500), 3);
        let text = prometheus::TextEncoder::new().encode_to_string(&latencies.collect()).unwrap();
        for line in [
            "# TYPE x_seconds summary",
            "x_seconds{sink=\"a\",quantile=\"0.5\"} 0.5",
            "x_seconds_sum{sink=\"a\"} 1.5",
            "x_seconds_count{sink=\"a\"} 3",
        ] {
            assert!(text.contains(line), "{line} is not in {text}");
        }
    }

    #[test]
    fn what_is_longer_ago_than_ten_seconds_is_forgotten_and_what_is_less_than_five_is_not() {
        let seconds = Duration::from_secs;
        let mut recent = Recent::default();
        recent.record(seconds(100), seconds(9), 1);
        recent.record(seconds(104), seconds(1), 1);
        assert_eq!((recent.percentiles(seconds(104)).count, recent.percentiles(seconds(104)).max_ms / 100), (2, 90));
        recent.record(seconds(106), seconds(1), 1);
        assert_eq!(recent.percentiles(seconds(109)).count, 3);
        assert_eq!(recent.percentiles(seconds(112)).count, 1, "only the one of 106");
        assert_eq!(recent.percentiles(seconds(130)), Percentiles::default());
    }
}
