//! Whole numbers in as few bytes as they need (LEB128), for accumulators: there may be millions, most small.
//!
//! ```
//! use weir_udf::varint;
//! let mut bytes = varint::encode(5).to_vec();
//! bytes.extend_from_slice(&varint::encode(300));
//! assert_eq!(bytes.len(), 3);
//! let mut rest = &bytes[..];
//! assert_eq!((varint::read(&mut rest), varint::read(&mut rest)), (Some(5), Some(300)));
//! assert_eq!(varint::read(&mut rest), None);
//! ```

use std::ops::Deref;

/// A number in its bytes, which it derefs to.
#[derive(Clone, Copy, Debug)]
pub struct Varint {
    bytes: [u8; 10],
    length: u8,
}

impl Deref for Varint {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

/// The bytes of a number: one below 128, at most ten.
#[inline]
pub fn encode(mut number: u64) -> Varint {
    let mut varint = Varint { bytes: [0; 10], length: 0 };
    loop {
        let last = number < 0x80;
        varint.bytes[usize::from(varint.length)] = number as u8 & 0x7f | if last { 0 } else { 0x80 };
        varint.length += 1;
        if last {
            return varint;
        }
        number >>= 7;
    }
}

/// Takes a number off the front; `None` if there is none that is whole and fits.
#[inline]
pub fn read(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0u64;
    for (i, byte) in bytes.iter().take(10).enumerate() {
        let bits = u64::from(byte & 0x7f);
        if i == 9 && bits > 1 {
            return None;
        }
        number |= bits << (7 * i);
        if byte & 0x80 == 0 {
            *bytes = &bytes[i + 1..];
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_of_number_survives() {
        for shift in 0..64 {
            for number in [1u64 << shift, (1 << shift) - 1, u64::MAX >> shift] {
                let bytes = encode(number);
                let mut rest = &bytes[..];
                assert_eq!(read(&mut rest), Some(number));
                assert!(rest.is_empty());
                let mut cut = &bytes[..bytes.len() - 1];
                assert_eq!(read(&mut cut), None, "{number} without its last byte");
            }
        }
        assert_eq!(read(&mut &[0xff; 10][..]), None, "more than 64 bits");
    }
}
