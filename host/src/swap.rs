//! What replaces the code of a step on every worker at one barrier. It travels with the barrier, so that each message is
//! handled by the code of its epoch. Its instances are made and configured before, off the data path.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::{Error, Result};
use crate::operator::Operator;
use crate::operators::aggregate::Replacement;

/// The new code of a step, once for each place that runs it: they are alike, so any worker takes any.
pub struct Swap {
    step: Arc<str>,
    operators: Mutex<Vec<Box<dyn Operator>>>,
    guests: Mutex<Vec<Replacement>>,
}

impl Swap {
    /// New operators of a step, one for each worker.
    pub fn of_operators(step: Arc<str>, operators: Vec<Box<dyn Operator>>) -> Swap {
        Swap { step, operators: Mutex::new(operators), guests: Mutex::default() }
    }

    /// New guests of a keyed step: one for the front and one for the back on each worker.
    pub fn of_guests(step: Arc<str>, guests: Vec<Replacement>) -> Swap {
        Swap { step, operators: Mutex::default(), guests: Mutex::new(guests) }
    }

    /// The step.
    pub fn step(&self) -> &Arc<str> {
        &self.step
    }

    /// An operator for a worker.
    pub fn operator(&self) -> Result<Box<dyn Operator>> {
        self.take(&self.operators)
    }

    /// A guest for one side of a keyed step.
    pub fn guest(&self) -> Result<Replacement> {
        self.take(&self.guests)
    }

    fn take<T>(&self, of: &Mutex<Vec<T>>) -> Result<T> {
        let taken = of.lock().unwrap_or_else(PoisonError::into_inner).pop();
        taken.ok_or_else(|| Error::bug("a swap has fewer instances than there are places for them").with("step", &self.step))
    }
}

impl fmt::Debug for Swap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Swap").field(&self.step).finish()
    }
}
