//! The Pub/Sub server of `tests/peers/pubsub`: Google's own fake behind a StreamingPull of ours, with faults on request.

use serde_json::Value;

use super::http;
use super::service::{Service, free_port};
use super::weir::wait_for;

/// A running server with no topic yet. Each test has one of its own: faults hold for all of a server.
pub struct PubSub {
    service: Service,
    control: String,
}

/// What has become of all messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stats {
    pub messages: u64,
    /// Acknowledged at least once.
    pub acked: u64,
    /// Times that messages were sent out.
    pub deliveries: u64,
}

impl PubSub {
    pub fn start() -> PubSub {
        let control = free_port().to_string();
        let service = Service::start("pubsub/start", &[&control]);
        PubSub { service, control: format!("http://127.0.0.1:{control}") }
    }

    /// What PUBSUB_EMULATOR_HOST is set to.
    pub fn host(&self) -> String {
        self.service.address()
    }

    /// Publishes messages numbered from `from` on, with `keys` ordering keys (0: none).
    pub fn publish(&self, from: u64, count: u64, keys: u64) {
        let query = format!("/publish?topic=projects/p/topics/t&from={from}&count={count}&bytes=100&keys={keys}");
        http::ask(&self.control, "POST", &query, "");
    }

    /// Sets a fault: see `faults.go`.
    pub fn fault(&self, fault: &str) {
        http::ask(&self.control, "POST", &format!("/fault?{fault}"), "");
    }

    pub fn stats(&self) -> Stats {
        let found: Value = serde_json::from_str(&http::ask(&self.control, "GET", "/stats", "")).unwrap();
        let number = |name: &str| found[name].as_u64().unwrap();
        Stats { messages: number("messages"), acked: number("acked"), deliveries: number("deliveries") }
    }

    /// The messages of a topic in the order in which they were published: `Data`, `Key` and `Attributes` of each.
    pub fn published(&self, topic: &str) -> Vec<Value> {
        serde_json::from_str(&http::ask(&self.control, "GET", &format!("/messages?topic={topic}"), "")).unwrap()
    }

    /// Waits until so many messages are acknowledged.
    pub fn wait_for_acks(&self, count: u64) {
        wait_for("acknowledgements", || self.stats().acked >= count);
    }
}
