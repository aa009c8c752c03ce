use super::*;
use crate::testing::{Aggregation, Input};
use crate::{Route, varint};

/// Adds numbers up; `x` is rejected; sums above 100 go to a route.
struct Sum;

impl Aggregate for Sum {
    type Config = ();
    type Accumulator = u64;
    const STATE_VERSION: u32 = 2;

    fn new(_: ()) -> Result<Self, String> {
        Ok(Sum)
    }

    fn routes(&self) -> Vec<String> {
        vec!["large".into()]
    }

    fn add(&mut self, sum: &mut u64, message: Message<'_>) -> Result<(), String> {
        let text = std::str::from_utf8(message.value().unwrap_or(b"0")).map_err(|_| "not UTF-8")?;
        *sum += text.parse::<u64>().map_err(|_| format!("`{text}` is not a number"))?;
        Ok(())
    }

    fn encode(&self, sum: &u64, out: &mut Value<'_>) {
        out.push(&varint::encode(*sum));
    }

    fn merge(&mut self, sum: &mut u64, mut encoded: &[u8]) -> Result<(), String> {
        *sum += varint::read(&mut encoded).ok_or("not a sum")?;
        Ok(())
    }

    fn emit(&mut self, pane: Pane<'_>, sum: &mut u64, out: &mut Emitter<'_>) -> Result<(), String> {
        match *sum {
            0 => return Err(format!("nothing in {}..{}", pane.start_ms(), pane.end_ms())),
            101.. => out.row().value(&sum.to_string()).to(Route::nth(0)).emit(),
            13 => out.forward(),
            _ => out.emit(sum.to_string()),
        }
        Ok(())
    }

    fn migrate(&mut self, version: u32, encoded: &[u8], out: &mut Value<'_>) -> Result<(), String> {
        let old = <[u8; 2]>::try_from(encoded).map_err(|_| format!("version {version} has two bytes"))?;
        out.push(&varint::encode(u16::from_le_bytes(old).into()));
        Ok(())
    }
}

fn keyed(pairs: &[(&str, &str)]) -> Vec<Input> {
    pairs.iter().map(|(key, value)| Input::new(value).key(key)).collect()
}

#[test]
fn each_key_gives_a_row_with_its_key_and_the_windows_last_millisecond() {
    let mut sums = Aggregation::<Sum>::new("null").unwrap();
    sums.window = 1000..2000;
    let fired = sums.run(keyed(&[("a", "1"), ("b", "5"), ("a", "2"), ("a", "3")]));
    assert_eq!(fired.values(), ["6", "5"]);
    let row = &fired.rows[0];
    assert_eq!((row.key.as_deref(), row.event_time_ms, row.origin, row.route.as_deref()), (Some(&b"a"[..]), 1999, 0, None));
    assert_eq!(fired.accumulators, [[6], [5]]);
}

#[test]
fn a_rejected_message_leaves_the_others_and_a_key_with_no_other_has_no_pane() {
    let mut sums = Aggregation::<Sum>::new("null").unwrap();
    let fired = sums.run(keyed(&[("a", "x"), ("b", "1"), ("a", "y"), ("b", "z"), ("b", "2")]));
    assert_eq!(fired.values(), ["3"]);
    assert_eq!(sums.run(keyed(&[("a", "x"), ("b", "1"), ("a", "2")])).values(), ["1", "2"]);
    let rows: Vec<usize> = fired.rejected.iter().map(|(row, _)| *row).collect();
    assert_eq!(rows, [0, 2, 3], "in the order of the batch, whatever the groups");
    assert_eq!(fired.rejected[2].1, "`z` is not a number");
}

#[test]
fn panes_are_routed_refused_or_handed_on_as_they_are() {
    let mut sums = Aggregation::<Sum>::new("null").unwrap();
    let fired = sums.run(keyed(&[("a", "100"), ("b", "0"), ("a", "1"), ("c", "13")]));
    assert_eq!(fired.rows[0].route.as_deref(), Some("large"));
    assert_eq!(fired.rows[1].value.as_deref(), Some(&[13][..]), "forwarding a pane hands its accumulator on");
    assert_eq!(fired.failed, [(1, "nothing in 0..60000".to_string())]);
}

#[test]
fn attributes_are_found_by_row_whatever_the_order_of_groups() {
    let mut names = ColumnBuilder::default();
    ["a", "b", "a"].iter().for_each(|name| names.push(Some(name.as_bytes())));
    let mut values = ColumnBuilder::default();
    ["1", "2", "3"].iter().for_each(|value| values.push(Some(value.as_bytes())));
    let attributes = crate::Attributes { rows: vec![1, 1, 3], names: names.finish(), values: values.finish() };
    let batch = Batch { event_times: vec![0; 4], attributes, ..Batch::default() };
    let found: Vec<_> = [3, 1, 0, 2].iter().map(|row| batch.message(*row).attribute("a")).collect();
    assert_eq!(found, [Some(&b"3"[..]), Some(b"1"), None, None]);
    assert_eq!(batch.message(1).attributes().count(), 2);
}

#[test]
fn older_accumulators_are_rewritten_and_present_ones_kept() {
    let mut sums = Aggregation::<Sum>::new("null").unwrap();
    assert_eq!(sums.migrate(1, &[&[44, 1], &[7, 0]]).unwrap(), [varint::encode(300).to_vec(), vec![7]]);
    assert_eq!(sums.migrate(2, &[&[5]]).unwrap(), [[5]]);
    assert_eq!(sums.migrate(1, &[&[5]]).unwrap_err(), "version 1 has two bytes");
    assert_eq!(sums.merge(&[&[5], &[6]]).unwrap(), [11]);
    assert_eq!(sums.merge(&[b""]).unwrap(), b"", "what is alone is not looked at");
    assert_eq!(sums.merge(&[&[5], b""]).unwrap_err(), "not a sum");
}

/// Breaks a law: keeps the greatest difference between neighbours, which merging cannot know.
struct Steps;

impl Aggregate for Steps {
    type Config = ();
    type Accumulator = (u8, u8);

    fn new(_: ()) -> Result<Self, String> {
        Ok(Steps)
    }

    fn add(&mut self, (last, most): &mut (u8, u8), message: Message<'_>) -> Result<(), String> {
        let next = message.value().unwrap_or_default()[0];
        (*most, *last) = ((*most).max(next.abs_diff(*last)), next);
        Ok(())
    }

    fn encode(&self, (last, most): &(u8, u8), out: &mut Value<'_>) {
        out.push(&[*last, *most]);
    }

    fn merge(&mut self, (last, most): &mut (u8, u8), encoded: &[u8]) -> Result<(), String> {
        (*last, *most) = (encoded[0], (*most).max(encoded[1]));
        Ok(())
    }

    fn emit(&mut self, _: Pane<'_>, (_, most): &mut (u8, u8), out: &mut Emitter<'_>) -> Result<(), String> {
        out.emit(most.to_string());
        Ok(())
    }
}

#[test]
#[should_panic(expected = "merging message by message at once gives other rows")]
fn an_aggregator_that_breaks_the_laws_is_found_out() {
    Aggregation::<Steps>::new("null").unwrap().run(["a", "b"]);
}
