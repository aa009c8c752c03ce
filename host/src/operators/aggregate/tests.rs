//! The back of a keyed step from one checkpoint to the next: state that another version of the guest wrote.

use std::sync::Arc;
use std::time::Duration;

use arrow_array::BinaryArray;
use arrow_array::builder::BinaryBuilder;
use tokio::sync::oneshot;

use super::*;
use crate::batch::Batch;
use crate::checkpoint::{Log, LogStore, StepState};
use crate::error::{Error, ErrorKind};
use crate::sink::Epoch;
use crate::state::{Fragments, hash, key_group};
use crate::wasm::{Accumulated, Outcome, Panes};
use crate::window::{BEGINNING, END};

/// Adds numbers up. Version 1 keeps them as eight bytes, version 2 as text; version 3 knows neither.
struct Sum {
    version: u32,
}

impl Sum {
    fn number(&self, bytes: &[u8]) -> u64 {
        match self.version {
            1 => u64::from_le_bytes(bytes.try_into().unwrap()),
            _ => std::str::from_utf8(bytes).unwrap().parse().unwrap(),
        }
    }

    fn bytes(&self, number: u64) -> Vec<u8> {
        match self.version {
            1 => number.to_le_bytes().to_vec(),
            _ => number.to_string().into_bytes(),
        }
    }
}

impl Aggregate for Sum {
    fn accumulate(&mut self, _: &Batch, _: &[u32], _: &[u32], _: Duration) -> Result<Accumulated> {
        unreachable!("fragments are made by the test")
    }

    fn merge(&mut self, fragments: &BinaryArray, ends: &[u32]) -> Result<BinaryArray> {
        let (mut merged, mut start) = (BinaryBuilder::new(), 0);
        for end in ends {
            let sum = (start..*end as usize).map(|i| self.number(fragments.value(i))).sum();
            merged.append_value(self.bytes(sum));
            start = *end as usize;
        }
        Ok(merged.finish())
    }

    fn emit(&mut self, panes: &Panes, _: Duration) -> Result<Outcome> {
        let values = panes.rows.values.iter().map(|bytes| bytes.map(|bytes| self.number(bytes).to_string()));
        let values: BinaryArray = values.map(|text| text.map(String::into_bytes)).collect();
        let rows = Batch { values, ..panes.rows.clone() };
        Ok(Outcome { rows, routes: None, rejected: Vec::new(), filtered: 0 })
    }

    fn migrate(&mut self, version: u32, accumulators: &BinaryArray) -> Result<BinaryArray> {
        if (version, self.version) != (1, 2) {
            return Err(Error::guest("no such version"));
        }
        let old = Sum { version };
        Ok(accumulators.iter().map(|bytes| bytes.map(|bytes| self.bytes(old.number(bytes)))).collect())
    }

    fn state_version(&self) -> u32 {
        self.version
    }

    fn memory_bytes(&self) -> u64 {
        0
    }
}

fn settings(version: u32) -> Settings {
    Settings {
        state_version: 1,
        step: "sum".into(),
        digest: "none".into(),
        make: Arc::new(move || Ok(Box::new(Sum { version }))),
        limits: Limits::default(),
        routes: Vec::new(),
        key: Key::Message,
        rules: Rules {
            windows: Windows::Fixed { size_ms: 60_000, every_ms: 60_000, offset_ms: 0 },
            lateness_ms: 0,
            early: false,
            discarding: false,
        },
        early_ms: None,
        columns: false,
        memory: 1 << 20,
    }
}

fn fragments(numbers: &[(&str, u64)]) -> Fragments {
    let mut sorted: Vec<_> = numbers.iter().map(|(key, number)| (hash(Some(key.as_bytes())), key, number)).collect();
    sorted.sort_by_key(|(hash, ..)| key_group(*hash));
    let slot = settings(1).rules.windows.slot(0, BEGINNING, 0).unwrap();
    Fragments {
        keys: BinaryArray::from_iter_values(sorted.iter().map(|(_, key, _)| key.as_bytes())),
        hashes: sorted.iter().map(|(hash, ..)| *hash).collect(),
        slots: vec![slot; sorted.len()],
        rows: vec![1; sorted.len()],
        parts: BinaryArray::from_iter_values(sorted.iter().map(|(_, _, number)| number.to_le_bytes())),
    }
}

#[tokio::test]
async fn state_of_an_older_version_is_migrated_or_the_start_is_refused_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let log = LogStore::open(&folder.path().display().to_string(), []).unwrap().log("p", 0);
    let mut back = Back::open(&settings(1), log.clone(), None, 0, 1).await.unwrap();
    back.add(&fragments(&[("a", 1), ("b", 5), ("c", 7)]), 0).unwrap();
    back.add(&fragments(&[("a", 2)]), 0).unwrap();
    let (done, written) = oneshot::channel();
    let checkpointed = back.checkpoint(Log::state_name(Epoch(1), "attempt", "sum", 0, "run").into(), written);
    let (name, bytes) = checkpointed.run.unwrap();
    log.put_state(&name, &bytes).await.unwrap();
    done.send(()).unwrap();
    let former = StepState {
        shape: settings(1).shape(),
        state_version: checkpointed.state_version,
        watermark: checkpointed.watermark,
        runs: checkpointed.live.iter().map(|run| run.to_string()).collect(),
    };

    let mut newer = Back::open(&settings(2), log.clone(), Some(&former), 0, 1).await.unwrap();
    let cx = newer.advance(0, END, 0).await.unwrap();
    let mut rows = Vec::new();
    for (_, batch) in &cx.out {
        rows.extend((0..batch.len()).map(|row| {
            let text = |bytes: Option<&[u8]>| String::from_utf8(bytes.unwrap().to_vec()).unwrap();
            (text(batch.key(row)), text(batch.value(row)))
        }));
    }
    rows.sort();
    assert_eq!(rows, [("a", "3"), ("b", "5"), ("c", "7")].map(|(key, sum)| (key.to_string(), sum.to_string())));

    let refused = Back::open(&settings(3), log, Some(&former), 0, 1).await.err().unwrap();
    assert_eq!(refused.kind(), ErrorKind::Config);
    for words in ["can't read the state", "use the module that wrote it", "state_version=1 module=3", "no such version"] {
        assert!(refused.to_string().contains(words), "{words}: {refused}");
    }
}
