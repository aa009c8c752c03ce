//! When a module that was tried may take over: `differing<=0.01,failed=0,cpu<=1.5`.

use std::str::FromStr;

use super::Report;
use crate::error::{Error, Result};

/// All must hold.
#[derive(Clone, Debug, PartialEq)]
pub struct Conditions(Vec<(What, f64)>);

#[derive(Clone, Copy, Debug, PartialEq)]
enum What {
    Differing,
    Failed,
    Refused,
    Cpu,
    Memory,
}

const KNOWN: [(&str, What); 5] = [
    ("differing", What::Differing),
    ("failed", What::Failed),
    ("refused", What::Refused),
    ("cpu", What::Cpu),
    ("memory", What::Memory),
];

impl FromStr for Conditions {
    type Err = Error;

    fn from_str(text: &str) -> Result<Conditions> {
        let wrong = |part: &str| {
            Error::config("a condition is NAME<=NUMBER: `differing`, `failed` and `refused` are parts of 1 of the messages, `cpu` and `memory` go by the running module's, as in failed<=0,cpu<=1.5")
                .with("condition", part)
        };
        let one = |part: &str| {
            let (name, number) = part.split_once("<=").or_else(|| part.split_once('=')).ok_or_else(|| wrong(part))?;
            let (_, what) = KNOWN.iter().find(|(known, _)| *known == name.trim()).ok_or_else(|| wrong(part))?;
            let number = number.trim().parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0);
            Ok((*what, number.ok_or_else(|| wrong(part))?))
        };
        text.split(',').map(one).collect::<Result<_>>().map(Conditions)
    }
}

impl Conditions {
    /// What speaks against the module. A trial without messages proves nothing.
    pub fn objections(&self, report: &Report) -> Vec<String> {
        if report.messages == 0 {
            return vec!["no message came while it was tried".to_string()];
        }
        let part = |count: u64| count as f64 / report.messages as f64;
        let times = |ours: f64, theirs: f64| if ours > 0.0 { theirs / ours } else { 1.0 };
        let (running, candidate) = (&report.running, &report.candidate);
        let found = |what: What| match what {
            What::Differing => ("differing", part(report.differing)),
            What::Failed => ("failed", part(candidate.failed)),
            What::Refused => ("refused", part(candidate.refused)),
            What::Cpu => ("cpu", times(running.cpu_ns_per_message, candidate.cpu_ns_per_message)),
            What::Memory => ("memory", times(running.memory_bytes_max as f64, candidate.memory_bytes_max as f64)),
        };
        let against = |(what, limit): &(What, f64)| {
            let (name, value) = found(*what);
            (value > *limit).then(|| format!("{name} is {value:.4}, may be {limit}"))
        };
        self.0.iter().filter_map(against).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::SideReport;
    use super::*;

    fn report(messages: u64, differing: u64, failed: u64, cpu: f64) -> Report {
        let side =
            |failed, cpu_ns_per_message| SideReport { failed, cpu_ns_per_message, memory_bytes_max: 10, ..SideReport::default() };
        Report {
            step: "s".into(),
            messages,
            differing,
            seconds: 1.0,
            running: side(0, 100.0),
            candidate: side(failed, cpu),
            samples: Vec::new(),
            objections: Vec::new(),
            promoted: None,
        }
    }

    #[test]
    fn all_conditions_must_hold_and_without_messages_none_does() {
        let conditions: Conditions = "differing<=0.01, failed=0,cpu<=1.5,memory<=1".parse().unwrap();
        assert_eq!(conditions.objections(&report(1000, 10, 0, 150.0)), Vec::<String>::new());
        assert_eq!(conditions.objections(&report(0, 0, 0, 0.0)).len(), 1);
        let against = conditions.objections(&report(1000, 11, 1, 151.0));
        assert_eq!(against, ["differing is 0.0110, may be 0.01", "failed is 0.0010, may be 0", "cpu is 1.5100, may be 1.5"]);
    }

    #[test]
    fn what_is_no_condition_is_refused_with_an_example() {
        for text in ["", "failed", "failed<0", "speed<=1", "failed<=-1", "failed<=x", "failed<=0,"] {
            let error = text.parse::<Conditions>().unwrap_err().to_string();
            assert!(error.contains("failed<=0,cpu<=1.5"), "{text}: {error}");
        }
    }
}
