use super::*;
use crate::testing::{Harness, Input, run as test};
use crate::{Column, Transform, guest};

/// Does what the message says, command after command.
struct Puppet;

impl Transform for Puppet {
    type Config = ();

    fn new(_: ()) -> Result<Self, String> {
        Ok(Puppet)
    }

    fn routes(&self) -> Vec<String> {
        vec!["left".into(), "right".into()]
    }

    fn transform(&mut self, message: Message<'_>, out: &mut Emitter<'_>) -> Result<(), String> {
        for command in message.value().unwrap_or(b"f") {
            match command {
                b'f' => out.forward(),
                b'l' => out.forward_to(Route::nth(0)),
                b'r' => out.row().value("right").key("K").attribute("a", None).to(Route::nth(1)).emit(),
                b'e' => out.emit("emitted"),
                b'w' => out.write(|value| value.push(b"written")),
                b't' => out.row().without_value().without_key().without_attributes().event_time_ms(9).emit(),
                b'd' => drop(out.row().attribute("lost", Some(b"x"))),
                b'x' => out.try_write(|value| {
                    value.push(b"half");
                    Err("half written".to_string())
                })?,
                _ => return Err(format!("cannot {}", *command as char)),
            }
        }
        Ok(())
    }
}

/// What each command gives: value and route.
fn expected(commands: &str) -> Option<Vec<(Option<String>, Option<&'static str>)>> {
    let mut rows = Vec::new();
    for command in commands.chars() {
        match command {
            'f' => rows.push((Some(commands.to_string()), None)),
            'l' => rows.push((Some(commands.to_string()), Some("left"))),
            'r' => rows.push((Some("right".to_string()), Some("right"))),
            'e' => rows.push((Some("emitted".to_string()), None)),
            'w' => rows.push((Some("written".to_string()), None)),
            't' => rows.push((None, None)),
            'd' => {}
            _ => return None,
        }
    }
    Some(rows)
}

#[test]
fn every_mixture_of_commands_gives_the_same_rows_as_message_by_message() {
    // A small generator in place of a dependency: each seed a batch of its own.
    for seed in 0..400u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut draw = |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % below
        };
        let commands = if seed % 3 == 0 { "fffffff!" } else { "fflrewtdx!" };
        let messages: Vec<String> = (0..draw(30))
            .map(|_| (0..draw(4)).map(|_| commands.as_bytes()[draw(commands.len() as u64) as usize] as char).collect())
            .collect();
        let inputs = messages.iter().enumerate().map(|(i, text)| {
            let input = Input::new(text).event_time_ms(i as i64);
            let input = if i % 3 == 0 { input.key(format!("k{i}")) } else { input };
            if i % 5 == 0 { input.attribute("a", format!("a{i}")).attribute("b", "b") } else { input }
        });
        let results = test::<Puppet>("null", inputs);
        let mut rows = results.rows.iter();
        for (i, text) in messages.iter().enumerate() {
            let Some(expected) = expected(text) else {
                assert!(results.rejected.iter().any(|(row, _)| *row == i), "seed {seed}");
                continue;
            };
            assert_eq!(results.filtered.contains(&i), expected.is_empty(), "seed {seed}");
            for (value, route) in expected {
                let row = rows.next().unwrap();
                let found = row.value.as_ref().map(|value| String::from_utf8(value.clone()).unwrap());
                assert_eq!((found, row.route.as_deref(), row.origin), (value.clone(), route, i), "seed {seed}");
                let tombstone = value.is_none();
                let key = (i % 3 == 0 && !tombstone).then(|| format!("k{i}"));
                let key = if route == Some("right") { Some("K".to_string()) } else { key };
                assert_eq!(row.key, key.map(String::into_bytes), "seed {seed}");
                assert_eq!(row.event_time_ms, if tombstone { 9 } else { i as i64 });
                let mut attributes = Vec::new();
                if route == Some("right") {
                    attributes.push(("a".to_string(), None));
                }
                if i % 5 == 0 && !tombstone {
                    if attributes.is_empty() {
                        attributes.push(("a".to_string(), Some(format!("a{i}").into_bytes())));
                    }
                    attributes.push(("b".to_string(), Some(b"b".to_vec())));
                }
                assert_eq!(row.attributes, attributes, "seed {seed}");
            }
        }
        assert!(rows.next().is_none(), "seed {seed}");
    }
}

fn output(messages: &[&str]) -> (Batch, Output) {
    let slot = guest::Slot::new(None);
    guest::configure::<Puppet>(&slot, "null").unwrap();
    let mut values = ColumnBuilder::default();
    messages.iter().for_each(|message| values.push(Some(message.as_bytes())));
    let batch = Batch { values: values.finish(), event_times: vec![7; messages.len()], received_ms: 3, ..Batch::default() };
    (batch.clone(), guest::transform(&slot, batch).unwrap())
}

#[test]
fn a_batch_forwarded_as_a_whole_goes_back_as_it_came() {
    let slot = guest::Slot::new(None);
    guest::configure::<Puppet>(&slot, "null").unwrap();
    let (batch, _) = output(&["f", "f", "f"]);
    let buffer = batch.values.bytes.as_ptr();
    let output = guest::transform(&slot, batch.clone()).unwrap();
    assert_eq!(output, Output { batch: batch.clone(), ..Output::default() });
    assert_ne!(output.batch.values.bytes.as_ptr(), buffer, "a clone has a buffer of its own");
    let output = guest::transform(&slot, batch).unwrap();
    assert_eq!(output.batch.values.bytes.as_ptr(), buffer, "not copied");
}

#[test]
fn rows_that_follow_the_input_one_by_one_need_no_origins_and_no_routes() {
    let (_, out) = output(&["e", "f", "w"]);
    assert_eq!((out.origins, out.routes), (vec![], vec![]));
    let (_, out) = output(&["e", "f", "!"]);
    assert_eq!((out.origins, out.rejected.rows), (vec![0, 1], vec![2]));
    let (_, out) = output(&["f", "f", "r", "f", "f"]);
    assert_eq!(out.routes, [0, 0, 2, 0, 0]);
    let (_, out) = output(&["ff", ""]);
    assert_eq!(out.origins, [0, 0], "as many rows as came in, but not the same");
}

#[test]
fn an_empty_batch_and_a_batch_of_which_nothing_comes_are_empty() {
    let (batch, out) = output(&[]);
    assert_eq!(out.batch, batch);
    let (_, out) = output(&["", "d"]);
    assert_eq!(out, Output { batch: Batch { received_ms: 3, ..Batch::default() }, ..Output::default() });
    assert_eq!(out.batch.values, Column::default());
}

#[test]
fn transform_before_configure_is_refused() {
    let refusal = guest::transform::<Puppet>(&guest::Slot::new(None), Batch::default());
    assert_eq!(refusal, Err("transform was called before configure".to_string()));
}

#[test]
fn messages_see_their_attributes_and_the_time_of_receipt() {
    struct Look;
    impl Transform for Look {
        type Config = ();
        fn new(_: ()) -> Result<Self, String> {
            Ok(Look)
        }
        fn transform(&mut self, message: Message<'_>, out: &mut Emitter<'_>) -> Result<(), String> {
            let names: Vec<&str> = message.attributes().map(|(name, _)| name).collect();
            let a = message.attribute("a").map(|a| String::from_utf8_lossy(a).into_owned());
            out.emit(format!("{names:?} {a:?} {}", message.received_ms()));
            Ok(())
        }
    }
    let mut look = Harness::<Look>::new("").unwrap();
    look.received_ms = 42;
    let results =
        look.run([Input::new(""), Input::new("").attribute("b", "1").attribute("a", "2"), Input::new("").attribute("a", "3")]);
    assert_eq!(results.values(), [r#"[] None 42"#, r#"["b", "a"] Some("2") 42"#, r#"["a"] Some("3") 42"#]);
}
