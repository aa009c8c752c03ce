//! The fuzzer's way in: libFuzzer with one of the entries below, named by `WEIR_FUZZ`. `tests/fuzz/run` builds and starts it.
#![no_main]

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;

mod entries;

static ENTRY: OnceLock<fn(&[u8])> = OnceLock::new();

fuzz_target!(
    init: {
        let name = std::env::var("WEIR_FUZZ").expect("WEIR_FUZZ names what to fuzz");
        let (_, entry) = entries::ENTRIES.iter().find(|(known, _)| *known == name).expect("WEIR_FUZZ names no target");
        let _ = ENTRY.set(*entry);
    },
    |bytes: &[u8]| {
        if let Some(entry) = ENTRY.get() {
            entry(bytes);
        }
    }
);
