//! Hands every message on unchanged, rebuilding the batch message by message: what a transform costs
//! that does nothing. Used by the benchmarks; it takes no configuration.
//!
//! ```yaml
//! steps:
//!   - {name: passthrough, transform: passthrough.wasm}
//! ```

use weir_udf::{Emitter, Message, Transform};

struct Passthrough;

impl Transform for Passthrough {
    type Config = ();

    fn new(_: ()) -> Result<Self, String> {
        Ok(Passthrough)
    }

    fn transform(&mut self, message: Message<'_>, out: &mut Emitter<'_>) -> Result<(), String> {
        match message.value() {
            // Not `forward`, which would hand the batch back as it is.
            Some(value) => out.emit(value),
            None => out.row().emit(),
        }
        Ok(())
    }
}

weir_udf::export!(Passthrough);

#[cfg(test)]
mod tests {
    use super::*;
    use weir_udf::testing::{Input, run};

    #[test]
    fn messages_come_out_as_they_went_in() {
        let messages = [Input::new("a").key("k").event_time_ms(7).attribute("n", "v"), Input::tombstone(), Input::new("")];
        let rows = run::<Passthrough>("null", messages).rows;
        assert_eq!(rows[0].value.as_deref(), Some(&b"a"[..]));
        assert_eq!(rows[0].key.as_deref(), Some(&b"k"[..]));
        assert_eq!((rows[0].event_time_ms, rows[0].attributes.len()), (7, 1));
        assert_eq!((rows[1].value.clone(), rows[2].value.clone()), (None, Some(vec![])));
    }
}
