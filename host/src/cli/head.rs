//! `weir head`: the first visible rows of a sink, for a look after a run.

use std::fmt::Write;

use arrow_array::RecordBatch;
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use clap::Args;

use super::PipelineArgs;
use crate::error::{Error, Result};

/// What `weir head` takes.
#[derive(Args)]
pub struct HeadArgs {
    #[command(flatten)]
    pipeline: PipelineArgs,
    /// How many rows.
    #[arg(long, short = 'n', default_value_t = 5)]
    rows: usize,
    /// The sink; needed where several can be read.
    #[arg(long)]
    sink: Option<String>,
}

/// Values longer than this are cut, so that a row stays on a screen.
const WIDEST: usize = 48;

/// Prints the rows.
pub async fn head(args: HeadArgs) -> Result<()> {
    let pipeline = args.pipeline.build()?;
    let wanted = |name: &str| args.sink.as_deref().is_none_or(|sink| sink == name);
    for sink in pipeline.sinks.iter().filter(|sink| wanted(&sink.name)) {
        let read = sink.connector.head(args.rows).await;
        let Some(batches) = read.map_err(|e| Error::new(e.kind(), "cannot read the sink").with("sink", &sink.name).because(e))?
        else {
            continue;
        };
        print!("{}", render(&batches)?);
        return Ok(());
    }
    let names: Vec<&str> = pipeline.sinks.iter().map(|sink| &*sink.name).collect();
    Err(Error::config("the pipeline has no such sink that can be read: an iceberg sink can").with("sinks", names.join(",")))
}

/// Rows as aligned columns under their names.
fn render(batches: &[RecordBatch]) -> Result<String> {
    let Some(first) = batches.first() else { return Ok("no rows\n".to_string()) };
    let mut lines: Vec<Vec<String>> = vec![first.schema().fields().iter().map(|field| field.name().clone()).collect()];
    let options = FormatOptions::new().with_null("null");
    let wrong = |e| Error::bug("cannot show a value").because(e);
    for batch in batches {
        let columns = batch
            .columns()
            .iter()
            .map(|c| ArrayFormatter::try_new(c.as_ref(), &options))
            .collect::<std::result::Result<Vec<_>, _>>();
        let columns = columns.map_err(wrong)?;
        for row in 0..batch.num_rows() {
            lines.push(columns.iter().map(|column| cut(&column.value(row).to_string())).collect());
        }
    }
    let width = |i: usize| lines.iter().map(|line| line[i].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..lines[0].len()).map(width).collect();
    let mut out = String::new();
    for line in &lines {
        let cells: Vec<String> = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        let _ = writeln!(out, "{}", cells.join("  ").trim_end());
    }
    Ok(out)
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(WIDEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{Int64Array, StringArray};
    use std::sync::Arc;

    #[test]
    fn rows_are_aligned_and_long_values_cut() {
        let long = "x".repeat(60);
        let batch = RecordBatch::try_from_iter([
            ("id", Arc::new(Int64Array::from(vec![Some(1), None])) as arrow_array::ArrayRef),
            ("text", Arc::new(StringArray::from(vec!["a", long.as_str()]))),
        ])
        .unwrap();
        let shown = render(&[batch]).unwrap();
        assert!(shown.starts_with("id    text\n1     a\nnull  xxxx"), "{shown}");
        assert!(shown.ends_with("x…\n"));
        assert_eq!(render(&[]).unwrap(), "no rows\n");
    }
}
