//! The manifest: everything that an epoch decided, in one JSON document. Creating it is the commit point.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::sink::{Epoch, Prepared};
use crate::source::Position;

/// The version that this host writes. It reads this and all earlier ones.
pub const MANIFEST_VERSION: u32 = 3;

/// One epoch of one task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Format of this document.
    pub version: u32,
    /// The pipeline's name.
    pub pipeline: String,
    /// The task, of how many.
    pub task: u32,
    /// Tasks of the pipeline when this was written.
    pub tasks: u32,
    /// Drawn when the log was begun.
    pub log_id: String,
    /// The process that wrote this, drawn anew at each start.
    pub attempt: String,
    /// This epoch.
    pub epoch: Epoch,
    /// The epoch that this one follows: the one to go back to when this one's prepared work is lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<Epoch>,
    /// Epochs before this one whose prepared work was lost and whose rows were read again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub abandoned: Vec<Epoch>,
    /// All input has been read and everything is in the sinks: nothing is left to do.
    #[serde(default)]
    pub finished: bool,
    /// When it was written, ms since the Unix epoch. For people only.
    pub created_ms: i64,
    /// Where each source goes on, by its name.
    pub sources: BTreeMap<String, Position>,
    /// What each sink prepared, by its name.
    pub sinks: BTreeMap<String, SinkWork>,
    /// The module of each step, by its name.
    #[serde(default)]
    pub modules: BTreeMap<String, ModuleRef>,
    /// The state of each keyed step, by its name. Since version 2.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub steps: BTreeMap<String, StepState>,
    /// The clock of each partition by the source's name and the partition's, ms since the Unix epoch. Since version 2.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub clocks: Clocks,
}

/// Clocks by source and partition.
pub type Clocks = BTreeMap<String, BTreeMap<String, i64>>;

/// The state of a keyed step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepState {
    /// Key and windows in words: state of other ones can't be taken up.
    pub shape: String,
    /// The version of the accumulators.
    pub state_version: u32,
    /// Up to where windows have fired, ms since the Unix epoch.
    pub watermark: i64,
    /// Names of the runs that hold it, older first.
    pub runs: Vec<String>,
}

/// What one sink prepared for an epoch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SinkWork {
    /// The connector's kind: a sink that changed its kind can't be asked about this epoch.
    pub kind: String,
    /// One entry for each writer that had rows.
    pub prepared: Vec<Prepared>,
}

/// The module that a step ran.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModuleRef {
    /// Digest of the file that the pipeline file named.
    pub configured: String,
    /// Digest of the module that ran in this epoch.
    pub running: String,
    /// What the step has run, older first: the last is what it runs after this epoch. Since version 3.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub versions: Vec<Version>,
}

/// A module that a step ran for a while.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Version {
    /// Digest of the module.
    pub digest: String,
    /// The first epoch whose messages it handled.
    pub since_epoch: u64,
    /// When that was decided, ms since the Unix epoch. For people only.
    pub at_ms: i64,
    /// Why.
    pub why: String,
}

/// Versions that a manifest remembers of each step.
const VERSIONS_MAX: usize = 50;

impl ModuleRef {
    /// Digest of what the step runs after this epoch.
    pub fn next(&self) -> &str {
        self.versions.last().map_or(&self.running, |version| &version.digest)
    }

    /// Notes what the step runs next; the oldest versions are forgotten.
    pub fn push(&mut self, version: Version) {
        self.versions.push(version);
        let surplus = self.versions.len().saturating_sub(VERSIONS_MAX);
        self.versions.drain(..surplus);
    }
}

impl Manifest {
    /// Reads a manifest; anything that is not one, or is of a newer format, is refused.
    pub fn parse(bytes: &[u8]) -> Result<Manifest> {
        #[derive(Deserialize)]
        struct Version {
            version: u32,
        }
        let corrupt = |e: serde_json::Error| Error::corrupt("the manifest is not readable").because(e);
        let Version { version } = serde_json::from_slice(bytes).map_err(corrupt)?;
        if version > MANIFEST_VERSION || version == 0 {
            return Err(Error::config("the manifest was written by a newer weir: use that version")
                .with("version", version)
                .with("known", MANIFEST_VERSION));
        }
        let manifest: Manifest = serde_json::from_slice(bytes).map_err(corrupt)?;
        // A whole number beyond 64 bits is read as a float too: as a position it would count as none, and everything be read again.
        match manifest.sources.iter().find(|(_, position)| position.0.values().any(has_float)) {
            Some((source, _)) => {
                Err(Error::corrupt("the manifest has a position that is no whole number of 64 bits").with("source", source))
            }
            None => Ok(manifest),
        }
    }

    /// The manifest as it is stored.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        serde_json::to_vec_pretty(self).map_err(|e| Error::bug("cannot write a manifest as JSON").because(e))
    }
}

fn has_float(value: &serde_json::Value) -> bool {
    use serde_json::Value;
    match value {
        Value::Number(number) => number.is_f64(),
        Value::Array(list) => list.iter().any(has_float),
        Value::Object(map) => map.values().any(has_float),
        Value::Null | Value::Bool(_) | Value::String(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    /// What connectors keep: any JSON but floats, which none needs.
    fn kept() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(any::<String>(), inner, 0..4).prop_map(|map| map.into_iter().collect()),
            ]
        })
    }

    fn by_name<T: std::fmt::Debug>(value: impl Strategy<Value = T>) -> impl Strategy<Value = BTreeMap<String, T>> {
        prop::collection::btree_map(any::<String>(), value, 0..4)
    }

    prop_compose! {
        fn any_manifest()(
            names in any::<[String; 3]>(), numbers in any::<[u32; 2]>(), epochs in any::<(u64, Option<u64>, Vec<u64>)>(),
            finished in any::<bool>(), created_ms in any::<i64>(),
            sources in by_name(by_name(kept()).prop_map(Position)),
            sinks in by_name((any::<String>(), prop::collection::vec(kept().prop_map(Prepared), 0..4))
                .prop_map(|(kind, prepared)| SinkWork { kind, prepared })),
            steps in by_name((any::<String>(), any::<u32>(), any::<i64>(), any::<Vec<String>>())
                .prop_map(|(shape, state_version, watermark, runs)| StepState { shape, state_version, watermark, runs })),
            clocks in by_name(by_name(any::<i64>())),
            modules in by_name((any::<[String; 4]>(), any::<(u64, i64)>()).prop_map(|([configured, running, digest, why], (since_epoch, at_ms))| {
                ModuleRef { configured, running, versions: vec![Version { digest, since_epoch, at_ms, why }] }
            })),
        ) -> Manifest {
            let [pipeline, log_id, attempt] = names;
            let (epoch, previous, abandoned) = epochs;
            Manifest {
                version: MANIFEST_VERSION, pipeline, task: numbers[0], tasks: numbers[1], log_id, attempt, epoch: Epoch(epoch),
                previous: previous.map(Epoch), abandoned: abandoned.into_iter().map(Epoch).collect(), finished, created_ms,
                sources, sinks, modules, steps, clocks,
            }
        }
    }

    proptest! {
        #[test]
        fn whatever_is_written_is_read_back_the_same(manifest in any_manifest()) {
            prop_assert_eq!(Manifest::parse(&manifest.to_bytes().unwrap()).unwrap(), manifest);
        }

        #[test]
        fn every_version_but_the_known_ones_is_refused(manifest in any_manifest(), version in any::<u32>()) {
            let known = (1..=MANIFEST_VERSION).contains(&version);
            let parsed = Manifest::parse(&Manifest { version, ..manifest }.to_bytes().unwrap());
            prop_assert_eq!(parsed.is_ok(), known);
        }

        #[test]
        fn reading_arbitrary_bytes_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Manifest::parse(&bytes);
        }
    }

    #[test]
    fn a_position_beyond_64_bits_is_refused_and_not_taken_for_none() {
        let manifest = |offset: &str| {
            let text = format!(
                r#"{{"version":1,"pipeline":"p","task":0,"tasks":1,"log_id":"l","attempt":"a","epoch":0,"created_ms":0,
                    "sources":{{"clicks":{{"t/0":{offset}}}}},"sinks":{{}}}}"#
            );
            Manifest::parse(text.as_bytes())
        };
        assert_eq!(manifest("9223372036854775807").unwrap().sources["clicks"].integer("t/0"), Some(i64::MAX));
        for offset in ["18446744073709551616", "1.0", "[1e3]"] {
            let error = manifest(offset).unwrap_err();
            assert_eq!(error.to_string(), "the manifest has a position that is no whole number of 64 bits source=clicks");
        }
    }

    #[test]
    fn a_newer_format_is_refused_with_what_to_do() {
        let error = Manifest::parse(br#"{"version": 99, "shape": "unknown"}"#).unwrap_err();
        assert_eq!(error.to_string(), "the manifest was written by a newer weir: use that version version=99 known=3");
    }
}
