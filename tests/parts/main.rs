//! The parts of the data path by themselves, to be measured: the boundary to guests, the decoder, Parquet. `tests/parts/run` drives it.
//!
//! `parts` lists the parts; `parts NAME seconds S` runs one for S seconds and says how fast its fastest round was;
//! `parts NAME rounds N` runs it N times, for a tool that counts instructions.

use std::path::Path;
use std::time::{Duration, Instant};

use weir::batch::{Batch, BatchBuilder, Origin};
use weir::columnar::{Decoder, Options, Schema};
use weir::error::Result;
use weir::wasm::{Engine, Grants, Instance, Limits, Module};

/// Messages in a batch.
const MESSAGES: usize = 1000;

type Round = Box<dyn FnMut(&Batch) -> Result<()>>;

/// Something to repeat, on a batch.
struct Part {
    batch: Batch,
    round: Round,
}

type Make = fn() -> Result<Part>;

const PARTS: [(&str, Make); 5] = [
    ("guest-1KiB", || boundary(1024)),
    ("guest-100B", || boundary(100)),
    ("decode-1KiB", || decoder(EVENTS, event)),
    ("decode-wide", || decoder(&wide_schema(), wide)),
    ("parquet-1KiB", parquet),
];

const EVENTS: &str = r#"{"type":"struct","fields":[{"name":"id","type":"uuid","required":true},
    {"name":"logStreamId","type":"long"},{"name":"message","type":"string"}]}"#;

/// Numbers that look drawn and are the same each time.
struct Drawn(u64);

impl Drawn {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 20
    }

    fn text(&mut self, length: usize) -> String {
        const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
        (0..length).map(|_| LETTERS[self.next() as usize % LETTERS.len()] as char).collect()
    }
}

fn batch(mut message: impl FnMut(&mut Drawn) -> String) -> Batch {
    let (mut builder, mut drawn) = (BatchBuilder::new(MESSAGES, MESSAGES * 1024), Drawn(42));
    for offset in 0..MESSAGES {
        let value = message(&mut drawn);
        builder.push(
            Some(&(offset as u64).to_be_bytes()),
            Some(value.as_bytes()),
            Origin { offset: offset as i64, ..Origin::default() },
        );
    }
    builder.finish(0)
}

/// The message of the large pipelines: about 1 KiB.
fn event(drawn: &mut Drawn) -> String {
    let (a, b, c, text) = (drawn.next() as u32, drawn.next() as u16, drawn.next() & 0xffff_ffff_ffff, drawn.text(915));
    let stream = 1_000_001 + drawn.next() % 1_000_000;
    format!(r#"{{"id":"{a:08x}-{b:04x}-4000-8000-{c:012x}","logStreamId":"{stream}","message":"{text}"}}"#)
}

/// Types of the columns of a wide message, each several times.
const WIDE: [&str; 5] = ["long", "string", "decimal(12,2)", "timestamptz", "boolean"];

fn wide_schema() -> String {
    let field = |n: usize| format!(r#"{{"name":"field_{n}","type":"{}","unit":"ms"}}"#, WIDE[n % WIDE.len()]);
    let fields: Vec<String> =
        (0..40).map(|n| if n % WIDE.len() == 3 { field(n) } else { field(n).replace(r#","unit":"ms""#, "") }).collect();
    format!(r#"{{"type":"struct","fields":[{}]}}"#, fields.join(","))
}

fn wide(drawn: &mut Drawn) -> String {
    let field = |n: usize| {
        let number = drawn.next();
        let value = match WIDE[n % WIDE.len()] {
            "long" => number.to_string(),
            "string" => format!("{:?}", drawn.text(12)),
            "decimal(12,2)" => format!("{}.{:02}", number % 1_000_000, number % 100),
            "timestamptz" => r#""2026-01-31T23:59:59.123Z""#.to_string(),
            _ => number.is_multiple_of(2).to_string(),
        };
        format!(r#""field_{n}":{value}"#)
    };
    format!("{{{}}}", (0..40).map(field).collect::<Vec<_>>().join(","))
}

/// A guest that gives back what it gets.
fn boundary(bytes: usize) -> Result<Part> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let module = Module::load(&Engine::new(Some(root.join("target/parts")))?, &root.join("target/udfs/passthrough.wasm"))?;
    let limits = Limits::default();
    let mut instance = Instance::new(&module, &limits, Grants::default(), "{}", &"part".into())?;
    let round = move |batch: &Batch| instance.transform(batch, Duration::from_secs(600)).map(drop);
    Ok(Part { batch: batch(|drawn| drawn.text(bytes)), round: Box::new(round) })
}

fn decoder(schema: &str, message: fn(&mut Drawn) -> String) -> Result<Part> {
    let mut decoder = Decoder::new(&Schema::from_json(schema.as_bytes())?, Options::default())?;
    let round = move |batch: &Batch| {
        let decoded = decoder.decode(batch)?;
        assert_eq!(decoded.taken.len(), MESSAGES, "{:?}", decoded.rejected.first());
        Ok(())
    };
    Ok(Part { batch: batch(message), round: Box::new(round) })
}

/// A data file of one batch, with the settings of the Iceberg sink.
fn parquet() -> Result<Part> {
    let batch = batch(event);
    let rows = Decoder::new(&Schema::from_json(EVENTS.as_bytes())?, Options::default())?.decode(&batch)?.rows;
    Ok(Part { batch, round: Box::new(move |_| weir::sinks::iceberg::encode_once(&rows).map(drop)) })
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [name, how, count] = arguments.as_slice() else {
        PARTS.iter().for_each(|(name, _)| println!("{name}"));
        return Ok(());
    };
    let (_, make) = PARTS.iter().find(|(known, _)| known == name).expect("the name of a part");
    let count: u64 = count.parse().expect("how many rounds or seconds");
    let Part { batch, mut round } = make()?;
    if how == "rounds" {
        return (0..count).try_for_each(|_| round(&batch));
    }
    let (end, mut fastest) = (Instant::now() + Duration::from_secs(count), Duration::MAX);
    while Instant::now() < end {
        let began = Instant::now();
        round(&batch)?;
        fastest = fastest.min(began.elapsed());
    }
    let bytes = batch.values.value_data().len() as f64;
    println!("{:.0} {:.0}", fastest.as_nanos() as f64 / MESSAGES as f64, bytes / fastest.as_secs_f64() / 1e6);
    Ok(())
}
