//! Sorts the rows that a guest handed back by where they go.

use crate::batch::{Batch, Route};
use crate::error::Result;

/// The rows of each route, in order. `numbers` holds the guest's number of each row's route; `None`: all main. `routes` are the
/// pipeline's routes by the guest's numbers, which begin with 1.
pub fn by_route(rows: Batch, numbers: Option<&[u8]>, routes: &[Route]) -> Result<Vec<(Route, Batch)>> {
    let Some(numbers) = numbers.filter(|_| !rows.is_empty()) else {
        return Ok(if rows.is_empty() { Vec::new() } else { vec![(Route::MAIN, rows)] });
    };
    let mut sorted = Vec::new();
    for number in 0..=routes.len() as u8 {
        let picked: Vec<u32> = (0..numbers.len() as u32).filter(|row| numbers[*row as usize] == number).collect();
        let route = match number {
            0 => Route::MAIN,
            n => routes[usize::from(n) - 1],
        };
        if picked.len() == numbers.len() {
            return Ok(vec![(route, rows)]);
        }
        if !picked.is_empty() {
            sorted.push((route, rows.take(&picked)?));
        }
    }
    Ok(sorted)
}
