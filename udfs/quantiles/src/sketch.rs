//! A DDSketch that begins as a short list of numbers, since most keys have few.

use sketches_ddsketch::{Config, DDSketch};
use weir_udf::Value;

/// Numbers that are kept as they are before a sketch is made.
const FEW: usize = 16;

/// First byte of an accumulator: what follows it.
const LIST: u8 = 0;
const SKETCH: u8 = 1;

/// The shape of a sketch of the given accuracy.
pub fn shape(accuracy: f64) -> Config {
    Config::new(accuracy, 2048, 1e-9)
}

/// Numbers of a key.
#[derive(Default)]
pub struct Sketch {
    few: Vec<f64>,
    /// All of them, if there are more than a few.
    many: Option<DDSketch>,
}

impl Sketch {
    /// Takes a number.
    pub fn add(&mut self, number: f64, shape: Config) {
        match &mut self.many {
            Some(many) => many.add(number),
            None if self.few.len() < FEW => self.few.push(number),
            None => {
                self.fold(shape).add(number);
            }
        }
    }

    /// Makes a sketch of what there is.
    fn fold(&mut self, shape: Config) -> &mut DDSketch {
        let many = self.many.get_or_insert_with(|| DDSketch::new(shape));
        self.few.drain(..).for_each(|number| many.add(number));
        many
    }

    /// The sketch of all numbers.
    pub fn whole(&mut self, shape: Config) -> &DDSketch {
        self.fold(shape)
    }

    /// Makes it empty.
    pub fn clear(&mut self) {
        self.few.clear();
        self.many = None;
    }

    /// Writes it down.
    pub fn write(&self, out: &mut Value<'_>) {
        match &self.many {
            Some(many) => {
                out.push(&[SKETCH]);
                out.push(&many.to_java_bytes());
            }
            None => {
                out.push(&[LIST]);
                self.few.iter().for_each(|number| out.push(&number.to_le_bytes()));
            }
        }
    }

    /// Takes in what another one wrote.
    pub fn merge(&mut self, encoded: &[u8], shape: Config) -> Result<(), String> {
        let foreign = |why: String| format!("the accumulator is not one of quantiles: {why}");
        match encoded.split_first() {
            Some((&LIST, list)) => {
                let (numbers, rest) = list.as_chunks::<8>();
                if !rest.is_empty() {
                    return Err(foreign("it ends within a number".to_string()));
                }
                numbers.iter().for_each(|number| self.add(f64::from_le_bytes(*number), shape));
                Ok(())
            }
            Some((&SKETCH, sketch)) => {
                let sketch = DDSketch::from_java_bytes(sketch).map_err(|e| foreign(e.to_string()))?;
                let other_accuracy = |_| "the accumulator is of another `accuracy`: set it back, or drop the state".to_string();
                self.fold(shape).merge(&sketch).map_err(other_accuracy)
            }
            _ => Err(foreign("it begins with an unknown byte".to_string())),
        }
    }
}
