//! The checkpoint protocol under a seeded simulation: one thread, paused clock, a store and sinks
//! that fail before and after they act, processes that are killed anywhere and zombies that wake up
//! beside their successors. At the end every row must be visible exactly once.
//!
//! A failing seed prints the command that plays it again.

mod outside;
mod world;

use std::collections::BTreeSet;

use outside::{DEAD, MAIN};
use world::{Report, simulate};

/// Seeds of one test run, unless `WEIR_SEED` names one to play again.
fn seeds() -> std::ops::Range<u64> {
    match std::env::var("WEIR_SEED").ok().and_then(|seed| seed.parse().ok()) {
        Some(seed) => seed..seed + 1,
        None => 0..300,
    }
}

fn check(seed: u64, report: &Report) {
    let again = format!("play it again: WEIR_SEED={seed} make test TEST=simulation");
    assert!(report.finished, "seed {seed} did not finish in {} lives: {:?}\n{again}", report.lives, report.last_error);
    for (sink, expected) in [(MAIN, &report.expected_main), (DEAD, &report.expected_dead)] {
        let visible = &report.visible[sink];
        let twice: Vec<_> = visible.iter().filter(|(_, count)| **count != 1).collect();
        assert!(twice.is_empty(), "seed {seed}: rows more than once in {sink}: {twice:?}\n{again}");
        let got: BTreeSet<_> = visible.keys().copied().collect();
        let lost: Vec<_> = expected.difference(&got).collect();
        assert!(lost.is_empty(), "seed {seed}: rows lost from {sink}: {lost:?}\n{again}");
        assert_eq!(&got, expected, "seed {seed}: rows that nobody sent in {sink}\n{again}");
    }
}

#[test]
fn every_row_is_visible_exactly_once_whatever_fails() {
    let (mut crashes, mut fenced, mut superseded, mut lost, mut restarts) = (0, 0, 0, 0, 0);
    let mut points = BTreeSet::new();
    for seed in seeds() {
        let report = simulate(seed);
        if seeds().count() == 1 {
            println!("{}", report.trace.join("\n"));
        }
        check(seed, &report);
        crashes += report.crashes;
        fenced += report.fenced;
        superseded += report.superseded;
        lost += report.abandoned;
        restarts += report.restarts;
        points.extend(report.points.iter().copied());
    }
    println!(
        "crashes {crashes}, fenced {fenced}, of these superseded {superseded}, epochs abandoned {lost}, restarts {restarts}"
    );
    if seeds().count() > 1 {
        // A simulation in which nothing goes wrong proves nothing.
        assert!(
            crashes > 100 && fenced > 10 && superseded > 5 && lost > 5 && restarts > 50,
            "crashes {crashes} fenced {fenced} superseded {superseded} lost {lost} restarts {restarts}"
        );
        let wanted: BTreeSet<&str> =
            ["manifest.before", "manifest.created", "commit.before", "commit.sent", "commit.after", "ack.after"].into();
        assert_eq!(points, wanted, "every point of the protocol was killed at");
    }
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    for seed in [1, 7, 42, 99] {
        let (first, second) = (simulate(seed), simulate(seed));
        assert!(!first.trace.is_empty());
        assert_eq!(first.trace, second.trace, "seed {seed}");
    }
}
