//! What travels between sources and workers, and between workers: bounded channels, one for each
//! (sender, receiver) pair, and the alignment of barriers where several meet.

use std::sync::Arc;
use std::task::Poll;

use tokio::sync::mpsc::{Receiver, Sender, channel};

use crate::batch::{Batch, Route};
use crate::sink::Epoch;
use crate::state::Fragments;
use crate::swap::Swap;
use crate::watermark::Progress;

/// Batches that a channel holds before its sender waits.
pub const CHANNEL_BATCHES: usize = 4;

/// Cuts the stream: what came before belongs to the epoch, what comes after to the next.
#[derive(Clone, Debug)]
pub struct Barrier {
    /// The epoch that ends here.
    pub epoch: Epoch,
    /// Nothing follows: the pipeline stops or has ended.
    pub last: bool,
    /// What steps run from here on, where that changes.
    pub swap: Option<Arc<Swap>>,
}

/// What a batch on a channel is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The steps and sinks that take this route.
    Route(Route),
    /// The one sink, by number, that had the rows spread over the workers.
    Sink(usize),
}

/// All that travels on a channel.
#[derive(Clone, Debug)]
// Nearly all are the large one; a box would be an allocation for each.
#[allow(clippy::large_enum_variant)]
pub enum Element {
    /// Messages.
    Batch(Target, Batch),
    /// What a source knows of its partitions, and whether it has ended.
    Progress(Vec<Progress>, bool),
    /// What a batch added to keys and windows.
    Fragments(Fragments),
    /// No message that is not late will come from before this time.
    Watermark(i64),
    /// A cut.
    Barrier(Barrier),
}

/// The receiving ends of one stage: merges them and aligns barriers.
pub struct Inputs {
    receivers: Vec<Receiver<Element>>,
    /// The barrier that each receiver is held at.
    held: Vec<Option<Barrier>>,
    turn: usize,
}

/// One sending end for each sender, and the inputs that they feed.
pub fn inputs(senders: usize) -> (Vec<Sender<Element>>, Inputs) {
    let (sending, receivers): (Vec<_>, Vec<_>) = (0..senders).map(|_| channel(CHANNEL_BATCHES)).unzip();
    (sending, Inputs { held: vec![None; receivers.len()], receivers, turn: 0 })
}

impl Inputs {
    /// The next element of any receiver that is not held, with the sender's number, or the barrier once all are held at it.
    /// Cancel-safe. `None` when a sender is gone without a last barrier: the pipeline is being torn down.
    pub async fn next(&mut self) -> Option<(usize, Element)> {
        std::future::poll_fn(|cx| {
            let count = self.receivers.len();
            for i in (0..count).map(|i| (self.turn + i) % count) {
                if self.held[i].is_some() {
                    continue;
                }
                match self.receivers[i].poll_recv(cx) {
                    Poll::Ready(Some(Element::Barrier(barrier))) => {
                        self.held[i] = Some(barrier.clone());
                        if self.held.iter().all(Option::is_some) {
                            self.held.fill(None);
                            return Poll::Ready(Some((i, Element::Barrier(barrier))));
                        }
                    }
                    Poll::Ready(Some(element)) => {
                        // The next call begins with the next receiver, so that none starves.
                        self.turn = (i + 1) % count;
                        return Poll::Ready(Some((i, element)));
                    }
                    Poll::Ready(None) => return Poll::Ready(None),
                    Poll::Pending => {}
                }
            }
            Poll::Pending
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{BatchBuilder, Origin};

    fn batch(tag: i64) -> Element {
        let mut builder = BatchBuilder::new(1, 1);
        builder.push(None, Some(b"x"), Origin { partition: 0, offset: tag, published: 0 });
        Element::Batch(Target::Route(Route::MAIN), builder.finish(0))
    }

    fn barrier(epoch: u64) -> Element {
        Element::Barrier(Barrier { epoch: Epoch(epoch), last: false, swap: None })
    }

    #[tokio::test]
    async fn nothing_behind_a_barrier_passes_before_all_senders_reached_it() {
        let (senders, mut inputs) = inputs(2);
        for element in [batch(1), barrier(1), batch(3)] {
            senders[0].send(element).await.unwrap();
        }
        senders[1].send(batch(2)).await.unwrap();
        let mut seen = Vec::new();
        for _ in 0..2 {
            if let Some((_, Element::Batch(_, b))) = inputs.next().await {
                seen.push(b.offsets[0]);
            }
        }
        seen.sort_unstable();
        assert_eq!(seen, [1, 2]);
        assert!(futures::poll!(std::pin::pin!(inputs.next())).is_pending(), "held until the second sender is at the barrier");
        senders[1].send(barrier(1)).await.unwrap();
        assert!(matches!(inputs.next().await, Some((_, Element::Barrier(b))) if b.epoch == Epoch(1)));
        assert!(matches!(inputs.next().await, Some((_, Element::Batch(_, b))) if b.offsets[0] == 3));
        drop(senders);
        assert!(inputs.next().await.is_none());
    }
}
