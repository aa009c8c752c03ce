//! The generator's random numbers: wyrand, begun anew for each message, so that a message depends on
//! nothing but its seed and place. Fast rather than unguessable.

/// A stream of random numbers.
pub struct Random(u64);

/// Multiplies to 128 bits and folds the halves together.
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product >> 64) as u64 ^ product as u64
}

impl Random {
    /// The stream of one message.
    pub fn of(seed: u64, partition: u32, number: u64) -> Random {
        let place = fold(seed ^ 0x9e37_79b9_7f4a_7c15, u64::from(partition) ^ 0xd1b5_4a32_d192_ed03);
        Random(fold(place ^ 0x8bb8_4b93_962e_acc9, number ^ 0x2d35_8dcc_aa6c_78a5))
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0xa076_1d64_78bd_642f);
        fold(self.0, self.0 ^ 0xe703_7ed1_a0b4_28db)
    }

    /// A number below `span`; of all 64 bits where `span` is 0.
    pub fn below(&mut self, span: u64) -> u64 {
        match span {
            0 => self.bits(),
            span => ((u128::from(self.bits()) * u128::from(span)) >> 64) as u64,
        }
    }

    /// A number in `0.0..1.0`.
    pub fn fraction(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Appends `length` of the characters `0-9A-Za-z`. One byte of randomness makes one character, so
    /// that eight of the 62 come a little more often than the others (5 of 256 times, not 4).
    pub fn alphanumeric(&mut self, length: usize, out: &mut Vec<u8>) {
        for byte in self.append(length, out) {
            let v = ((u16::from(*byte) * 62) >> 8) as u8;
            *byte = b'0' + v + if v > 9 { b'A' - b'9' - 1 } else { 0 } + if v > 35 { b'a' - b'Z' - 1 } else { 0 };
        }
    }

    /// Appends `length` of the characters `A-Za-z`; see [`Random::alphanumeric`].
    pub fn alphabetic(&mut self, length: usize, out: &mut Vec<u8>) {
        for byte in self.append(length, out) {
            let v = ((u16::from(*byte) * 52) >> 8) as u8;
            *byte = b'A' + v + if v > 25 { b'a' - b'Z' - 1 } else { 0 };
        }
    }

    /// Appends a random UUID of version 4.
    pub fn uuid(&mut self, out: &mut Vec<u8>) {
        const HEX: &[u8; 16] = b"0123456789abcdef";
        let bits = (u128::from(self.bits()) << 64) | u128::from(self.bits());
        let bits = bits & !(0xf << 76) & !(0x3 << 62) | (0x4 << 76) | (0x2 << 62);
        for (place, byte) in bits.to_be_bytes().into_iter().enumerate() {
            if matches!(place, 4 | 6 | 8 | 10) {
                out.push(b'-');
            }
            out.extend([HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
        }
    }

    /// Appends random bytes and gives them for shaping.
    fn append<'a>(&mut self, length: usize, out: &'a mut Vec<u8>) -> &'a mut [u8] {
        let start = out.len();
        out.resize(start + length, 0);
        let bytes = &mut out[start..];
        let mut eights = bytes.chunks_exact_mut(8);
        for eight in &mut eights {
            eight.copy_from_slice(&self.bits().to_le_bytes());
        }
        let rest = eights.into_remainder();
        let last = self.bits().to_le_bytes();
        rest.copy_from_slice(&last[..rest.len()]);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_letter_and_digit_comes_and_nothing_else() {
        let mut random = Random::of(0, 0, 0);
        let mut out = Vec::new();
        random.alphanumeric(100_003, &mut out);
        assert_eq!(out.len(), 100_003);
        let seen: std::collections::BTreeSet<u8> = out.iter().copied().collect();
        assert_eq!(seen.len(), 62);
        assert!(out.iter().all(u8::is_ascii_alphanumeric));
        out.clear();
        random.alphabetic(100_003, &mut out);
        assert_eq!(out.iter().collect::<std::collections::BTreeSet<_>>().len(), 52);
        assert!(out.iter().all(u8::is_ascii_alphabetic));
    }

    #[test]
    fn streams_of_neighbouring_places_differ() {
        let mut seen = std::collections::BTreeSet::new();
        for (seed, partition, number) in [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)] {
            assert!(seen.insert(Random::of(seed, partition, number).bits()));
        }
        for number in 0..10_000 {
            seen.insert(Random::of(7, 3, number).bits());
        }
        assert_eq!(seen.len(), 10_004);
    }

    #[test]
    fn a_uuid_has_its_version_and_variant() {
        let mut out = Vec::new();
        Random::of(1, 2, 3).uuid(&mut out);
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text.split('-').map(str::len).collect::<Vec<_>>(), [8, 4, 4, 4, 12]);
        assert_eq!(&text[14..15], "4");
        assert!("89ab".contains(&text[19..20]));
    }
}
