//! One worker's part of the source: makes batches of what its streams brought, and carries them through barrier and
//! acknowledgement.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use serde_json::Value;
use tokio::sync::mpsc;

use super::hub::Hub;
use super::ledger::{Id, Load};
use super::{Promise, ids, wire};
use crate::batch::{Batch, BatchBuilder, Origin};
use crate::error::{Error, Result};
use crate::source::{Position, Slice, Source};
use crate::watermark::Progress;

/// New messages of one answer.
pub struct Parcel {
    /// The answer.
    pub frame: Bytes,
    /// Where each message lies in it, and its id.
    pub rows: Vec<(Range<usize>, Id)>,
}

/// Enough for one batch.
const ROWS_MAX: usize = 8_192;
const BYTES_MAX: usize = 4 << 20;

/// See the module.
pub struct Part {
    hub: Arc<Hub>,
    worker: u32,
    parcels: mpsc::Receiver<Result<Parcel>>,
    /// An error that came behind messages.
    failed: Option<Error>,
    builder: BatchBuilder,
    /// Handed out since the last barrier.
    ids: Vec<Id>,
    load: Load,
    /// Handed out by this worker in the life of the log.
    handed: i64,
    /// Groups that wait for their manifest, by `handed` at their barrier.
    sealed: VecDeque<(i64, u32)>,
    name: Arc<str>,
}

/// What a position calls the messages that a worker has handed out: with it every message is progress.
fn counter(worker: u32) -> String {
    format!("messages/{worker}")
}

impl Part {
    /// The part of a worker.
    pub fn open(hub: Arc<Hub>, slice: Slice, position: &Position) -> Result<Part> {
        let parcels = hub.join(slice.worker)?;
        Ok(Part {
            hub,
            worker: slice.worker,
            parcels,
            failed: None,
            builder: BatchBuilder::new(ROWS_MAX, BYTES_MAX),
            ids: Vec::new(),
            load: Load::default(),
            handed: position.integer(&counter(slice.worker)).unwrap_or(0),
            sealed: VecDeque::new(),
            name: slice.worker.to_string().into(),
        })
    }

    fn take(&mut self, parcel: &Parcel) -> Result<()> {
        let id_attribute = self.hub.settings().config.message_id_attribute.as_deref();
        let bytes = parcel.rows.iter().map(|(place, _)| place.len() as u64).sum();
        let load = Load { messages: parcel.rows.len() as u64, bytes };
        self.hub.handed_out(load);
        self.load = Load { messages: self.load.messages + load.messages, bytes: self.load.bytes + load.bytes };
        for (place, id) in &parcel.rows {
            let bytes = &parcel.frame[place.clone()];
            let mut attributes = 0;
            let message = wire::message(bytes, |_, _| attributes += 1)?;
            let key = (!message.ordering_key.is_empty()).then_some(message.ordering_key.as_bytes());
            let origin = Origin { partition: self.worker, offset: self.handed, published: message.published_ms };
            self.builder.push(key, Some(message.data), origin);
            if attributes > 0 {
                wire::message(bytes, |name, value| self.builder.attribute(name, Some(value)))?;
            }
            if let Some(name) = id_attribute {
                self.builder.attribute(name, Some(message.message_id.as_bytes()));
            }
            self.ids.push(*id);
            self.handed += 1;
        }
        Ok(())
    }
}

#[async_trait]
impl Source for Part {
    async fn next(&mut self) -> Result<Option<Batch>> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let first =
            self.parcels.recv().await.ok_or_else(|| Error::bug("the streams of a subscription ended without a word"))??;
        self.take(&first)?;
        while self.builder.len() < ROWS_MAX && self.builder.bytes() < BYTES_MAX {
            match self.parcels.try_recv() {
                Ok(Ok(parcel)) => self.take(&parcel)?,
                Ok(Err(error)) => {
                    self.failed = Some(error);
                    break;
                }
                Err(_) => break,
            }
        }
        Ok(Some(self.builder.finish(super::hub::now_ms())))
    }

    fn state(&mut self, name: &str) -> Option<Bytes> {
        let now_ms = super::hub::now_ms();
        self.hub.ledger().forget(now_ms);
        if self.ids.is_empty() {
            return None;
        }
        let ids = std::mem::take(&mut self.ids);
        self.hub.cut(std::mem::take(&mut self.load));
        let file = (self.hub.settings().promise == Promise::ExactlyOnce).then(|| (name.to_string(), ids::write(&ids, now_ms)));
        let (name, bytes) = file.unzip();
        let group = self.hub.ledger().seal(self.worker, name, ids, now_ms);
        self.sealed.push_back((self.handed, group));
        bytes
    }

    fn position(&self) -> Position {
        let ledger = self.hub.ledger();
        let mut position = Position::default();
        position.set(counter(self.worker), self.handed);
        for kept in ledger.kept(self.worker) {
            position.set(Position::file(&kept.file), kept.confirmed_ms.unwrap_or(0));
        }
        for file in ledger.gone(self.worker) {
            position.0.insert(Position::file(file), Value::Null);
        }
        position
    }

    async fn ack(&mut self, position: &Position) -> Result<()> {
        let Some(handed) = position.integer(&counter(self.worker)) else { return Ok(()) };
        let told: BTreeSet<&str> =
            position.0.iter().filter(|(_, value)| value.is_null()).filter_map(|(name, _)| name.strip_prefix("file:")).collect();
        let mut requests = Vec::new();
        {
            let mut ledger = self.hub.ledger();
            ledger.told_gone(|file| told.contains(file));
            while let Some((_, group)) = self.sealed.pop_front_if(|(at, _)| *at <= handed) {
                requests.extend(ledger.commit(group));
            }
        }
        self.hub.acknowledge(requests);
        Ok(())
    }

    fn progress(&self) -> Vec<Progress> {
        let caught_up_ms = self.hub.caught_up_ms();
        vec![Progress { number: self.worker, name: self.name.clone(), caught_up_ms, ended: false }]
    }

    fn wants_barrier(&self) -> bool {
        self.hub.crowded()
    }

    async fn settle(&mut self) -> Result<()> {
        self.hub.settle().await;
        Ok(())
    }
}
