//! Counters, gauges and histograms of the running process, by Prometheus' conventions. Handles are taken when a
//! part is built; counting is an atomic add.

use std::sync::LazyLock;

use prometheus::{CounterVec, GaugeVec, HistogramOpts, HistogramVec, IntCounterVec, IntGaugeVec, Opts, Registry, TextEncoder};

mod latency;

pub use latency::{Latencies, Latency, Percentiles, Recent};

/// Everything that `/metrics` shows.
pub static REGISTRY: LazyLock<Registry> = LazyLock::new(Registry::new);

fn register<C: prometheus::core::Collector + Clone + 'static>(metric: prometheus::Result<C>) -> C {
    match metric.and_then(|m| REGISTRY.register(Box::new(m.clone())).map(|()| m)) {
        Ok(metric) => metric,
        // Names and labels are constants of this file, and each is registered once: a test of this module holds that.
        Err(error) => unreachable!("metric defined wrongly: {error}"),
    }
}

fn counter(name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
    register(IntCounterVec::new(Opts::new(name, help), labels))
}

fn gauge(name: &str, help: &str, labels: &[&str]) -> IntGaugeVec {
    register(IntGaugeVec::new(Opts::new(name, help), labels))
}

fn moment(name: &str, help: &str, labels: &[&str]) -> GaugeVec {
    register(GaugeVec::new(Opts::new(name, help), labels))
}

fn spent(name: &str, help: &str, labels: &[&str]) -> CounterVec {
    register(CounterVec::new(Opts::new(name, help), labels))
}

fn latencies(name: &str, help: &str, [label]: &[&str; 1]) -> Latencies {
    register(Latencies::new(name, help, label))
}

fn seconds(name: &str, help: &str, labels: &[&str]) -> HistogramVec {
    let buckets = vec![0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0];
    register(HistogramVec::new(HistogramOpts::new(name, help).buckets(buckets), labels))
}

macro_rules! metrics {
    ($($name:ident: $kind:ident = $make:ident($text:literal, $help:literal, $labels:expr);)*) => {
        $(#[doc = $help] pub static $name: LazyLock<$kind> = LazyLock::new(|| $make($text, $help, &$labels));)*
        /// Makes every metric show up at once, so that a scrape before the first message is complete.
        pub fn register_all() { $(LazyLock::force(&$name);)* }
    };
}

metrics! {
    SOURCE_EVENTS: IntCounterVec = counter("weir_source_events_total", "Messages read.", ["source"]);
    SOURCE_BYTES: IntCounterVec = counter("weir_source_bytes_total", "Bytes of keys and values read.", ["source"]);
    SOURCE_REJECTED: IntCounterVec = counter("weir_source_rejected_events_total", "Rows read that can be no messages.", ["source"]);
    SOURCE_LAG: IntGaugeVec = gauge("weir_source_lag_events", "Messages that wait behind the position.", ["source", "partition"]);
    SOURCE_DUPLICATES: IntCounterVec = counter("weir_source_duplicate_events_total", "Messages that came again and were dropped.", ["source"]);
    SOURCE_ACKS: IntCounterVec = counter("weir_source_acks_total", "Acknowledgements by outcome: confirmed, retried, lost.", ["source", "outcome"]);
    SOURCE_LEASES: IntCounterVec = counter("weir_source_leases_total", "Leases of messages by outcome: extended, failed.", ["source", "outcome"]);
    SOURCE_STREAMS: IntCounterVec = counter("weir_source_streams_reopened_total", "Streams opened again, by cause: error, stalled.", ["source", "cause"]);
    SOURCE_UNACKED: IntGaugeVec = gauge("weir_source_unacked_events", "Messages delivered and not acknowledged.", ["source"]);
    SOURCE_REMEMBERED: IntGaugeVec = gauge("weir_source_remembered_events", "Ids of messages in memory.", ["source"]);
    STEP_EVENTS_IN: IntCounterVec = counter("weir_step_events_in_total", "Messages that went into the step.", ["step"]);
    STEP_EVENTS_OUT: IntCounterVec = counter("weir_step_events_out_total", "Messages that came out of the step.", ["step"]);
    STEP_REJECTED: IntCounterVec = counter("weir_step_rejected_events_total", "Messages that the step rejected.", ["step", "cause"]);
    STEP_FILTERED: IntCounterVec = counter("weir_step_filtered_events_total", "Messages that the step dropped on purpose.", ["step"]);
    STEP_LATE: IntCounterVec = counter("weir_step_late_events_total", "Messages that came after their windows were closed.", ["step"]);
    STEP_SWAPS: IntCounterVec = counter("weir_step_swaps_total", "Times that another module took over.", ["step"]);
    STEP_ROLLBACKS: IntCounterVec = counter("weir_step_rollbacks_total", "Times that a module was rolled back by itself, by cause.", ["step", "cause"]);
    SHADOW_EVENTS: IntCounterVec = counter("weir_shadow_events_total", "Messages that a module was tried on beside the running one, compared and differing.", ["step", "outcome"]);
    STEP_PANES: IntCounterVec = counter("weir_step_panes_total", "Firings of windows.", ["step"]);
    STEP_WATERMARK: GaugeVec = moment("weir_step_watermark_seconds", "Up to where windows have fired: seconds since the Unix epoch.", ["step", "worker"]);
    STATE_BYTES: IntGaugeVec = gauge("weir_step_state_bytes", "Memory of the step's state.", ["step", "worker"]);
    STATE_KEYS: IntGaugeVec = gauge("weir_step_state_keys", "Keys with their windows in memory.", ["step", "worker"]);
    STATE_RUN_BYTES: IntCounterVec = counter("weir_step_state_written_bytes_total", "Bytes of state that checkpoints wrote.", ["step"]);
    GUEST_SECONDS: HistogramVec = seconds("weir_guest_call_seconds", "Time of one call into the guest.", ["step"]);
    GUEST_INSTANCES: IntCounterVec = counter("weir_guest_instances_total", "Instances made, by cause.", ["step", "cause"]);
    GUEST_MEMORY: IntGaugeVec = gauge("weir_guest_memory_bytes", "Linear memory of the step's newest instance.", ["step"]);
    SINK_EVENTS: IntCounterVec = counter("weir_sink_events_total", "Messages written, visible or not.", ["sink"]);
    SINK_BYTES: IntCounterVec = counter("weir_sink_bytes_total", "Bytes of keys and values handed to the sink.", ["sink"]);
    SINK_REJECTED: IntCounterVec = counter("weir_sink_rejected_events_total", "Messages that the sink rejected.", ["sink"]);
    SINK_UNKNOWN_FIELDS: IntCounterVec = counter("weir_sink_unknown_fields_total", "Fields of messages that the schema doesn't name.", ["sink"]);
    SINK_COMMITTED: IntCounterVec = counter("weir_sink_committed_events_total", "Rows made visible.", ["sink"]);
    SINK_FILES: IntCounterVec = counter("weir_sink_files_total", "Files made visible.", ["sink"]);
    SINK_FILE_BYTES: IntCounterVec = counter("weir_sink_file_bytes_total", "Bytes of files made visible.", ["sink"]);
    SINK_SNAPSHOTS: IntGaugeVec = gauge("weir_sink_table_snapshots", "Snapshots that the Iceberg table keeps.", ["sink"]);
    SINK_MANIFESTS: IntGaugeVec = gauge("weir_sink_table_manifests", "Manifests of the Iceberg table's newest snapshot.", ["sink"]);
    COMMIT_SECONDS: HistogramVec = seconds("weir_sink_commit_seconds", "Time of one commit.", ["sink"]);
    COMMIT_RETRIES: IntCounterVec = counter("weir_sink_commit_retries_total", "Commits tried again after a conflict or an unknown outcome.", ["sink"]);
    LATENCY_SECONDS: Latencies = latencies("weir_sink_latency_seconds", "From the message's publish time to its row being visible, since the start.", ["sink"]);
    CHECKPOINTS: IntCounterVec = counter("weir_checkpoint_epochs_total", "Epochs whose manifest was written.", ["pipeline"]);
    CHECKPOINT_SECONDS: HistogramVec = seconds("weir_checkpoint_seconds", "From the barrier to the last commit of an epoch.", ["pipeline"]);
    CHECKPOINT_EPOCH: IntGaugeVec = gauge("weir_checkpoint_epoch", "The newest committed epoch.", ["pipeline"]);
    RESTARTS: IntCounterVec = counter("weir_pipeline_restarts_total", "Restarts from the checkpoint, by the kind of error.", ["pipeline", "kind"]);
    WORKER_BUSY: CounterVec = spent("weir_worker_busy_seconds_total", "Time that a worker spent computing.", ["worker"]);
}

/// All metrics in Prometheus' text format.
pub fn render() -> String {
    TextEncoder::new().encode_to_string(&REGISTRY.gather()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_registers_and_follows_the_naming_rule() {
        register_all();
        CHECKPOINTS.with_label_values(&["p"]).inc();
        for family in REGISTRY.gather() {
            assert!(family.name().starts_with("weir_"), "{}", family.name());
        }
        assert!(render().contains("weir_checkpoint_epochs_total{pipeline=\"p\"} 1"));
    }
}
