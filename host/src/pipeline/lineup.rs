//! What each step runs: the module of the pipeline file, or another one that a swap put in its place. The manifest says
//! which, so that a restart goes on with what ran, unless the file has changed since.

use std::collections::BTreeMap;

use super::build::{Pipeline, StepPlan};
use crate::checkpoint::{Manifest, ModuleRef, Version};
use crate::error::{Error, Result};
use crate::operators::aggregate;
use crate::sink::Epoch;
use crate::wasm::digest;
use crate::worker::Step;

/// See the module.
#[derive(Clone)]
pub struct Lineup {
    steps: Vec<StepPlan>,
    modules: BTreeMap<String, ModuleRef>,
}

impl Lineup {
    /// As the pipeline file has it, in a log that begins.
    pub fn configured(pipeline: &Pipeline, now_ms: i64) -> Lineup {
        let version = |digest: &str| Version {
            digest: digest.to_string(),
            since_epoch: 1,
            at_ms: now_ms,
            why: "the log began with it".to_string(),
        };
        let modules = pipeline.steps.iter().filter_map(|step| {
            let digest: &str = step.module.as_ref()?.digest();
            let of_step =
                ModuleRef { configured: digest.to_string(), running: digest.to_string(), versions: vec![version(digest)] };
            Some((step.name.to_string(), of_step))
        });
        Lineup { modules: modules.collect(), steps: pipeline.steps.clone() }
    }

    /// As a manifest left it. A file that has changed since is a swap, checked as one when the pipeline was built.
    pub async fn resume(pipeline: &Pipeline, base: &Manifest, next: Epoch, now_ms: i64) -> Result<Lineup> {
        let mut lineup = Lineup::configured(pipeline, now_ms);
        for plan in &mut lineup.steps {
            let (Some(module), Some(former)) = (&plan.module, base.modules.get(&*plan.name)) else { continue };
            let configured = module.digest().to_string();
            let mut of_step = former.clone();
            of_step.running = former.next().to_string();
            if of_step.versions.is_empty() {
                let (digest, since_epoch, at_ms) = (former.running.clone(), base.epoch.0, base.created_ms);
                of_step.push(Version { digest, since_epoch, at_ms, why: "it ran when versions were first noted".to_string() });
            }
            if former.configured != configured {
                if of_step.running != configured {
                    let why = "the file has changed".to_string();
                    of_step.push(Version { digest: configured.clone(), since_epoch: next.0, at_ms: now_ms, why });
                    of_step.running = configured.clone();
                }
                of_step.configured = configured;
            } else if of_step.running != configured {
                *plan = kept(pipeline, plan, &of_step.running).await?;
                tracing::info!(step = %plan.name, module = of_step.running, "going on with the module that was swapped in");
            }
            lineup.modules.insert(plan.name.to_string(), of_step);
        }
        Ok(lineup)
    }

    /// The module of each step, as a manifest names them.
    pub fn modules(&self) -> &BTreeMap<String, ModuleRef> {
        &self.modules
    }

    /// Digests of what runs, by step.
    pub fn running(&self) -> Vec<(String, String)> {
        self.modules.iter().map(|(step, module)| (step.clone(), module.running.clone())).collect()
    }

    /// A step as it runs.
    pub fn plan(&self, step: &str) -> Option<&StepPlan> {
        self.steps.iter().find(|plan| *plan.name == *step)
    }

    /// Has a step run a module again that it ran before, from the start on.
    pub async fn go_back(&mut self, pipeline: &Pipeline, step: &str, version: Version) -> Result<()> {
        let Some(plan) = self.steps.iter_mut().find(|plan| *plan.name == *step) else { return Ok(()) };
        *plan = kept(pipeline, plan, &version.digest).await?;
        plan.module.iter().for_each(|module| tracing::warn!(step, module = &**module.digest(), "going back: {}", version.why));
        if let Some(of_step) = self.modules.get_mut(step) {
            of_step.running.clone_from(&version.digest);
            of_step.push(version);
        }
        Ok(())
    }

    /// The modules as the manifest of an epoch names them, after which a step runs another one.
    pub fn with_next(&self, step: &str, version: Version) -> BTreeMap<String, ModuleRef> {
        let mut modules = self.modules.clone();
        if let Some(of_step) = modules.get_mut(step) {
            of_step.push(version);
        }
        modules
    }

    /// From here on a step runs what the manifest just written says.
    pub fn replace(&mut self, plan: StepPlan, mut modules: BTreeMap<String, ModuleRef>) {
        if let Some(of_step) = modules.get_mut(&*plan.name) {
            of_step.running = of_step.next().to_string();
        }
        self.modules = modules;
        if let Some(place) = self.steps.iter_mut().find(|known| known.name == plan.name) {
            *place = plan;
        }
    }

    /// Makes the bytes of every module durable: a manifest may name them then.
    pub async fn keep(&self, pipeline: &Pipeline) -> Result<()> {
        for module in self.steps.iter().filter_map(|plan| plan.module.as_ref()) {
            pipeline.store.keep_module(&pipeline.name, module.digest(), module.bytes()).await?;
        }
        Ok(())
    }

    /// The steps of one worker: those before the keyed one, and those behind it. All are before where there is none.
    pub fn operators(&self) -> Result<(Vec<Step>, Vec<Step>)> {
        let (mut before, mut after) = (Vec::new(), Vec::new());
        let mut behind = false;
        for step in &self.steps {
            match step.operator()? {
                None => behind = true,
                Some(operator) => {
                    let steps = if behind { &mut after } else { &mut before };
                    steps.push(Step { name: step.name.clone(), operator, tap: step.tap.clone() });
                }
            }
        }
        Ok((before, after))
    }

    /// The keyed step, if there is one.
    pub fn windows(&self) -> Option<&aggregate::Settings> {
        self.steps.iter().find_map(StepPlan::windows)
    }
}

/// A step with a module that the checkpoint store keeps.
async fn kept(pipeline: &Pipeline, plan: &StepPlan, wanted: &str) -> Result<StepPlan> {
    let bytes = kept_module(pipeline, wanted).await.map_err(|e| e.with("step", &plan.name))?;
    pipeline.plan_with(&plan.name, &bytes).map_err(|e| {
        Error::new(
            e.kind(),
            "the module that ran can't go on with this pipeline file: change the step back, or give it a new file",
        )
        .with("step", &plan.name)
        .with("module", wanted)
        .because(e)
    })
}

/// The bytes of a module that the checkpoint names.
pub async fn kept_module(pipeline: &Pipeline, wanted: &str) -> Result<bytes::Bytes> {
    let gone = |what: &str| Error::corrupt(what).with("module", wanted);
    let bytes = pipeline.store.module(&pipeline.name, wanted).await?;
    let bytes =
        bytes.ok_or_else(|| gone("the checkpoint names a module that is gone: restore it, or give the step a new file"))?;
    match digest(&bytes) == wanted {
        true => Ok(bytes),
        false => Err(gone("a kept module is damaged: restore it, or give the step a new file")),
    }
}
