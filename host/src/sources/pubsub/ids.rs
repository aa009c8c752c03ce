//! The file that keeps the ids which one worker handed out in one epoch: written once, before the epoch's manifest, and read
//! after a start. Owns its format:
//!
//! ```text
//! "weirids1"   8 bytes
//! created      ms since the Unix epoch, i64
//! count        u64
//! ids          16 bytes each
//! checksum     xxh3 of all before it, u64
//! ```
//!
//! Numbers are little-endian.

use bytes::{BufMut, Bytes, BytesMut};
use xxhash_rust::xxh3::xxh3_64;

use super::ledger::Id;
use crate::error::{Error, Result};

const MAGIC: &[u8; 8] = b"weirids1";
const HEAD: usize = 24;

/// The file.
pub fn write(ids: &[Id], created_ms: i64) -> Bytes {
    let mut out = BytesMut::with_capacity(HEAD + 16 * ids.len() + 8);
    out.put_slice(MAGIC);
    out.put_i64_le(created_ms);
    out.put_u64_le(ids.len() as u64);
    for id in ids {
        out.put_u64_le(id.0);
        out.put_u64_le(id.1);
    }
    let sum = xxh3_64(&out);
    out.put_u64_le(sum);
    out.freeze()
}

/// The ids of a file, and when it was made.
pub fn read(bytes: &[u8]) -> Result<(Vec<Id>, i64)> {
    let bad = || Error::corrupt("a file of message ids is damaged: restore it, or start a new log");
    let (body, sum) = bytes.split_last_chunk::<8>().ok_or_else(bad)?;
    if body.len() < HEAD || &body[..8] != MAGIC || xxh3_64(body) != u64::from_le_bytes(*sum) {
        return Err(bad());
    }
    let number = |at: usize| body[at..].first_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    if (body.len() - HEAD) as u64 != number(16).saturating_mul(16) {
        return Err(bad());
    }
    let ids = (HEAD..body.len()).step_by(16).map(|at| Id(number(at), number(at + 8))).collect();
    Ok((ids, number(8) as i64))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_written_is_read_back_and_no_damage_goes_unseen(
            ids in prop::collection::vec(any::<(u64, u64)>(), 0..20), created in any::<i64>(), at in any::<prop::sample::Index>(), bit in 0u8..8,
        ) {
            let ids: Vec<Id> = ids.into_iter().map(|(high, low)| Id(high, low)).collect();
            let file = write(&ids, created);
            prop_assert_eq!(read(&file).unwrap(), (ids, created));
            let mut damaged = file.to_vec();
            let at = at.index(damaged.len());
            damaged[at] ^= 1u8 << bit;
            prop_assert!(read(&damaged).is_err());
            prop_assert!(read(&file[..at]).is_err());
        }
    }
}
