//! From a pipeline file to a running pipeline. One path serves the first start, recovery and restart:
//! a first start is a recovery from nothing.

mod build;
mod keyed;
mod letters;
mod lineup;
mod recover;
mod replay;
mod run;
mod shadow;
mod source_task;
mod spec;
mod status;
mod steer;
mod watch;

pub use build::{Make, NamedSink, NamedSource, Pipeline, Routes, StepPlan, engine, schema};
pub use keyed::{EventTimeSpec, KeySpec, WindowSpec};
pub use letters::{Filter, Found, Letter, moment};
pub use replay::{Letters, Replay, Replayed};
pub use run::{Environment, Live, Outcome, run};
pub use shadow::{Conditions, Report as ShadowReport, Trial, shadow};
pub use spec::{Checkpoint, Delivery, Spec, StepSpec};
pub use status::{Phase, SourceState, Status, Summary};
pub use steer::{Handle, Steering, Stop, Swapped, steering};
pub use watch::Limits as WatchLimits;
