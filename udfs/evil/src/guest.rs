//! The misbehaviour itself.

use std::hint::black_box;

use crate::command::{command, config};
use bindings::weir::udf::log::{Level, log};
use bindings::weir::udf::types::{Attributes, Batch, Column, Output, Rejected};

#[allow(missing_docs, unsafe_code)]
mod bindings {
    wit_bindgen::generate!({ path: "../../guest-sdk/wit", world: "transformer-logging" });
    use super::Evil;
    export!(Evil with_types_in self);
}

struct Evil;

/// What tells versions of this module apart.
static VERSION: &str = "VERSION-00000000";

impl bindings::Guest for Evil {
    fn configure(text: String) -> Result<Vec<String>, String> {
        let config = config(&text)?;
        match config.act.as_str() {
            "err" => return Err("told to refuse".to_string()),
            "many-routes" => return Ok((0..100_000).map(|i| format!("route{i}")).collect()),
            "bad-routes" => return Ok(vec![String::new(), "\u{0}".to_string(), String::new()]),
            act => misbehave(act, None),
        }
        Ok(config.routes)
    }

    fn transform(input: Batch) -> Result<Output, String> {
        let rows = input.event_times.len();
        let commands: Vec<(String, Option<usize>)> = (0..rows)
            .map(|row| command(get(&input.values, row)))
            .map(|(command, number)| (command.to_string(), number))
            .collect();
        let mut output = obey(input, &commands)?;
        if output.origins.is_empty() && commands.iter().any(|(command, _)| command == "stamp") {
            output.batch.values = stamped(&output.batch.values, &commands);
        }
        for (row, (command, number)) in commands.iter().enumerate() {
            misbehave(command, *number);
            spoil(&mut output, command, *number, row, rows);
        }
        Ok(output)
    }
}

fn get(column: &Column, row: usize) -> Option<&[u8]> {
    if column.ends.is_empty() || (!column.present.is_empty() && column.present[row / 8] >> (row % 8) & 1 == 0) {
        return None;
    }
    let start = if row == 0 { 0 } else { column.ends[row - 1] as usize };
    Some(&column.bytes[start..column.ends[row] as usize])
}

/// What needs no answer.
fn misbehave(command: &str, number: Option<usize>) {
    match command {
        "panic" => panic!("told to panic"),
        "loop" => loop {
            black_box(0);
        },
        "stack" => drop(black_box(deeper(0))),
        "oom" => loop {
            black_box(vec![1u8; 8 << 20].leak());
        },
        "grow" => drop(black_box(vec![1u8; number.unwrap_or(20) << 20].leak())),
        "spin" => {
            for i in 0..number.unwrap_or(1) * 1_000_000 {
                black_box(i);
            }
        }
        "log-flood" => (0..number.unwrap_or(1000)).for_each(|_| log(Level::Info, &"flood ".repeat(171))),
        _ => {}
    }
}

#[allow(unconditional_recursion)]
fn deeper(depth: u64) -> u64 {
    black_box([depth; 64])[0] + deeper(black_box(depth + 1))
}

/// An answer by the rules.
fn obey(input: Batch, commands: &[(String, Option<usize>)]) -> Result<Output, String> {
    if commands.iter().any(|(command, _)| command == "err") {
        return Err("told to fail".to_string());
    }
    let numbered = |wanted: &'static str| {
        let rows = commands.iter().enumerate().filter(move |(_, (command, _))| command == wanted);
        rows.map(|(row, _)| row as u32).collect::<Vec<u32>>()
    };
    let (rejected, dropped) = (numbered("reject"), numbered("drop"));
    let mut routes: Vec<u8> =
        commands.iter().map(|(command, n)| if command == "route" { n.unwrap_or(1) as u8 } else { 0 }).collect();
    if routes.iter().all(|route| *route == 0) {
        routes.clear();
    }
    if rejected.is_empty() && dropped.is_empty() {
        return Ok(Output { batch: input, origins: vec![], routes, rejected: no_rows() });
    }
    let stays = |row: &u32| !rejected.contains(row) && !dropped.contains(row);
    let origins: Vec<u32> = (0..commands.len() as u32).filter(stays).collect();
    let take = |column: &Column| {
        let mut taken = Column { bytes: vec![], ends: vec![], present: vec![0; origins.len().div_ceil(8)] };
        for (row, origin) in origins.iter().enumerate() {
            if let Some(bytes) = get(column, *origin as usize) {
                taken.bytes.extend_from_slice(bytes);
                taken.present[row / 8] |= 1 << (row % 8);
            }
            taken.ends.push(taken.bytes.len() as u32);
        }
        taken
    };
    let batch = Batch {
        keys: take(&input.keys),
        values: take(&input.values),
        event_times: origins.iter().map(|origin| input.event_times[*origin as usize]).collect(),
        attributes: Attributes { rows: vec![], names: absent(), values: absent() },
        received_ms: input.received_ms,
    };
    if !routes.is_empty() {
        routes = origins.iter().map(|origin| routes[*origin as usize]).collect();
    }
    let reasons = texts(&vec!["told to reject"; rejected.len()]);
    Ok(Output { batch, origins, routes, rejected: Rejected { rows: rejected, reasons } })
}

/// The values, with the version in those that ask for it.
fn stamped(values: &Column, commands: &[(String, Option<usize>)]) -> Column {
    let version = black_box(VERSION);
    let mut stamped = Column { bytes: vec![], ends: vec![], present: values.present.clone() };
    for (row, (command, number)) in commands.iter().enumerate() {
        let id = number.unwrap_or(0);
        match command.as_str() {
            "stamp" if version.starts_with("VERSION-BAD") && id % 100 == 0 => panic!("a bad version"),
            "stamp" => stamped.bytes.extend_from_slice(format!(r#"{{"id":{id},"version":"{version}"}}"#).as_bytes()),
            _ => stamped.bytes.extend_from_slice(get(values, row).unwrap_or_default()),
        }
        stamped.ends.push(stamped.bytes.len() as u32);
    }
    stamped
}

fn absent() -> Column {
    Column { bytes: vec![], ends: vec![], present: vec![] }
}

fn no_rows() -> Rejected {
    Rejected { rows: vec![], reasons: absent() }
}

fn texts(texts: &[&str]) -> Column {
    let mut column = absent();
    for text in texts {
        column.bytes.extend_from_slice(text.as_bytes());
        column.ends.push(column.bytes.len() as u32);
    }
    column
}

/// Breaks a rule. `row` is the message that commands it, of `rows` that came in.
fn spoil(output: &mut Output, command: &str, number: Option<usize>, row: usize, rows: usize) {
    let batch = &mut output.batch;
    let attribute = |row: usize, name: &[u8]| Attributes {
        rows: vec![row as u32],
        names: Column { bytes: name.to_vec(), ends: vec![name.len() as u32], present: vec![] },
        values: absent(),
    };
    match command {
        "huge-output" => {
            let bytes = vec![b'x'; number.unwrap_or(80) << 20];
            let ends = batch.event_times.iter().map(|_| bytes.len() as u32).collect();
            batch.values = Column { bytes, ends, present: vec![] };
        }
        "many-rows" => {
            let many = number.unwrap_or(2_000_000);
            batch.keys = absent();
            batch.values = absent();
            batch.event_times = vec![0; many];
            output.origins = vec![row as u32; many];
            output.routes = vec![];
        }
        "bad-ends" => batch.values.ends = vec![u32::MAX; rows],
        "bad-ends-order" => {
            batch.values.ends = (0..rows).map(|row| (rows - row) as u32).collect();
            // One row alone can only descend from what is not there.
            batch.values.ends.push(0);
            batch.event_times.push(0);
            batch.keys = absent();
            output.origins = vec![row as u32; rows + 1];
        }
        "bad-ends-count" => batch.values.ends.push(batch.values.bytes.len() as u32),
        "bad-present" => batch.values.present = vec![0xff; rows.div_ceil(8) + 1],
        "bad-origins" => output.origins = vec![rows as u32; batch.event_times.len()],
        "bad-origins-count" => output.origins = vec![row as u32; batch.event_times.len() + 1],
        "bad-identity" => {
            *batch = Batch {
                keys: absent(),
                values: absent(),
                event_times: vec![0; rows + 1],
                attributes: Attributes { rows: vec![], names: absent(), values: absent() },
                received_ms: 0,
            };
            output.origins = vec![];
        }
        "bad-routes" => output.routes = vec![255; batch.event_times.len()],
        "bad-routes-count" => output.routes = vec![0; batch.event_times.len() + 1],
        "bad-rejected" => output.rejected = Rejected { rows: vec![rows as u32], reasons: texts(&["beyond"]) },
        "bad-rejected-order" => {
            output.rejected = Rejected { rows: vec![row as u32, row as u32], reasons: texts(&["one", "two"]) }
        }
        "rejected-and-emitted" => {
            output.origins = vec![row as u32; batch.event_times.len()];
            output.rejected = Rejected { rows: vec![row as u32], reasons: texts(&["both"]) };
        }
        "bad-reasons" => output.rejected = Rejected { rows: vec![row as u32], reasons: texts(&["one", "two"]) },
        "bad-attributes" => batch.attributes = attribute(batch.event_times.len(), b"name"),
        "bad-attribute-name" => batch.attributes = attribute(0, b"\xff\xfe"),
        _ => {}
    }
}
