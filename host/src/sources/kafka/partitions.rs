//! Which partitions there are, what they are called in a position, and how they are numbered.

use std::collections::HashMap;
use std::sync::Arc;

use regex::Regex;
use xxhash_rust::xxh3::xxh3_64;

use crate::error::{Error, Result};
use crate::kafka::{self, Client};

/// The topics of a source.
#[derive(Clone, Debug)]
pub enum Topics {
    /// One, whose partitions keep Kafka's numbers.
    One(String),
    /// By name, in order.
    Named(Arc<[String]>),
    /// Whatever there is that matches.
    Matching(Regex),
}

/// A partition of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Its topic.
    pub topic: Arc<str>,
    /// Kafka's number.
    pub partition: i32,
    /// The number over all topics of the source: in batches, and for who owns it.
    pub number: u32,
}

impl Partition {
    /// What a position calls it.
    pub fn name(&self) -> String {
        format!("{}/{}", self.topic, self.partition)
    }
}

/// Topic and partition of a position's name.
pub fn parse(name: &str) -> Option<(&str, i32)> {
    let (topic, partition) = name.rsplit_once('/')?;
    Some((topic, partition.parse().ok()?))
}

impl Topics {
    /// Topics by name.
    pub fn named(mut names: Vec<String>) -> Result<Topics> {
        names.sort();
        if names.iter().any(String::is_empty) {
            return Err(Error::config("a topic has no name"));
        }
        match names.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(Error::config("a topic is named twice").with("topic", &pair[0])),
            None => Ok(Topics::Named(names.into())),
        }
    }

    /// Whether the source reads this topic.
    pub fn contain(&self, topic: &str) -> bool {
        match self {
            Topics::One(name) => name == topic,
            Topics::Named(names) => names.iter().any(|name| name == topic),
            // Kafka's own topics are read only by name.
            Topics::Matching(pattern) => !topic.starts_with("__") && pattern.is_match(topic),
        }
    }

    /// The number of a partition. It never depends on what else is read, so that every process and every restart
    /// comes to the same: for `topic` Kafka's own number, else each topic's numbers begin at a hash of its name.
    pub fn number(&self, topic: &str, partition: i32) -> u32 {
        match self {
            Topics::One(_) => partition as u32,
            _ => (xxh3_64(topic.as_bytes()) as u32).wrapping_add(partition as u32),
        }
    }

    /// Every partition that there is now. Blocks.
    pub fn list(&self, client: &Client) -> Result<Vec<Partition>> {
        let named = |name: &String| match kafka::partitions(client, name)? {
            Some(partitions) => Ok((name.clone(), partitions)),
            None => Err(Error::config("the topic does not exist: create it, or mend the name").with("topic", name)),
        };
        let counts = match self {
            Topics::One(name) => vec![named(name)?],
            Topics::Named(names) => names.iter().map(named).collect::<Result<_>>()?,
            Topics::Matching(_) => kafka::topics(client, |topic| self.contain(topic))?.into_iter().collect(),
        };
        self.numbered(counts)
    }

    fn numbered(&self, counts: Vec<(String, i32)>) -> Result<Vec<Partition>> {
        let mut partitions = Vec::new();
        let mut taken: HashMap<u32, Arc<str>> = HashMap::new();
        for (topic, count) in counts {
            let topic: Arc<str> = topic.into();
            for partition in 0..count {
                let number = self.number(&topic, partition);
                if let Some(other) = taken.insert(number, topic.clone()) {
                    return Err(Error::config(
                        "two topics can't be told apart by their numbers: read one of them by a source of its own",
                    )
                    .with("topic", topic)
                    .with("other", other));
                }
                partitions.push(Partition { topic: topic.clone(), partition, number });
            }
        }
        Ok(partitions)
    }
}

/// The partitions that a reader reads, found by topic and Kafka's number.
#[derive(Default)]
pub struct Table {
    partitions: Vec<Partition>,
    topics: Vec<(Arc<str>, Vec<Option<u32>>)>,
    /// The topic of the message before: messages of a topic come in runs.
    last: usize,
}

impl Table {
    /// Adds a partition; its place is the number of those before it.
    pub fn add(&mut self, partition: Partition) {
        let place = self.partitions.len() as u32;
        let topic = match self.topics.iter().position(|(topic, _)| *topic == partition.topic) {
            Some(topic) => topic,
            None => {
                self.topics.push((partition.topic.clone(), Vec::new()));
                self.topics.len() - 1
            }
        };
        let places = &mut self.topics[topic].1;
        let slot = partition.partition as usize;
        places.resize(places.len().max(slot + 1), None);
        places[slot] = Some(place);
        self.partitions.push(partition);
    }

    /// The place of a message's partition. The topic is asked for only where there are several: it costs.
    pub fn find<'a>(&mut self, topic: impl FnOnce() -> &'a str, partition: i32) -> Option<usize> {
        if self.topics.len() > 1 {
            let topic = topic();
            if *self.topics[self.last].0 != *topic {
                self.last = self.topics.iter().position(|(known, _)| **known == *topic)?;
            }
        }
        Some((*self.topics.get(self.last)?.1.get(partition as usize)?)? as usize)
    }

    /// Whether a partition is in it.
    pub fn contains(&self, wanted: &Partition) -> bool {
        let topic = self.topics.iter().find(|(topic, _)| *topic == wanted.topic);
        topic.is_some_and(|(_, places)| places.get(wanted.partition as usize).is_some_and(Option::is_some))
    }

    /// All, by place.
    pub fn all(&self) -> &[Partition] {
        &self.partitions
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn partition(topic: &str, partition: i32) -> Partition {
        Partition { topic: topic.into(), partition, number: 0 }
    }

    #[test]
    fn one_topic_keeps_kafkas_numbers() {
        let one = Topics::One("t".into());
        assert_eq!((one.number("t", 0), one.number("t", 7)), (0, 7));
    }

    #[test]
    fn numbers_do_not_depend_on_which_other_topics_are_read() {
        let matching = Topics::Matching(Regex::new("^(?:t.*)$").unwrap());
        let alone = matching.numbered(vec![("t1".into(), 2)]).unwrap();
        let beside = matching.numbered(vec![("t0".into(), 3), ("t1".into(), 4)]).unwrap();
        assert_eq!(alone, beside[3..5]);
        let named = Topics::named(vec!["t2".into(), "t1".into()]).unwrap();
        assert_eq!(named.number("t1", 1), alone[1].number);
        assert!(matching.contain("t9") && !matching.contain("at") && !matching.contain("__t"));
    }

    #[test]
    fn a_topic_named_twice_or_not_at_all_is_refused() {
        assert!(Topics::named(vec!["a".into(), "a".into()]).unwrap_err().to_string().contains("named twice topic=a"));
        assert!(Topics::named(vec![String::new()]).unwrap_err().to_string().contains("no name"));
    }

    #[test]
    fn a_position_names_topics_with_slashes_and_all() {
        assert_eq!(parse(&partition("a.b", 12).name()), Some(("a.b", 12)));
        assert_eq!(parse("a/b/3"), Some(("a/b", 3)));
        assert_eq!((parse("a"), parse("a/x")), (None, None));
    }

    #[test]
    fn places_are_found_by_topic_and_number() {
        let mut table = Table::default();
        for p in [partition("a", 3), partition("b", 1), partition("a", 0)] {
            table.add(p);
        }
        assert_eq!([table.find(|| "a", 3), table.find(|| "b", 1), table.find(|| "a", 0)], [Some(0), Some(1), Some(2)]);
        assert_eq!([table.find(|| "b", 3), table.find(|| "c", 0), table.find(|| "a", 1)], [None, None, None]);
        assert!(table.contains(&partition("b", 1)) && !table.contains(&partition("b", 0)));
    }
}
