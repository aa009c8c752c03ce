//! Many pointers looked up in one pass over the text.

use std::ops::Range;

use super::scan::{Cursor, Name};
use super::text::unescape;
use super::{DEPTH_MAX, Error};

/// The steps of a pointer may be at most this many.
const STEPS_MAX: usize = 64;

/// A node from which nothing is looked for.
const DEAD: u32 = u32::MAX;

/// One step of a pointer.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Name(Vec<u8>),
    Any,
}

/// What is looked for in a container: which node each member or element leads to.
#[derive(Debug)]
struct Node {
    names: Vec<(Vec<u8>, u32)>,
    /// Those of the names that are also places in an array.
    places: Vec<(usize, u32)>,
    /// Where all others lead.
    other: u32,
    /// The pointers that end here.
    paths: Vec<u32>,
    cut: bool,
}

/// A set of JSON pointers, numbered in the order in which they were given.
#[derive(Debug)]
pub struct Paths {
    nodes: Vec<Node>,
}

/// A value that a pointer led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hit {
    /// The pointer's number.
    pub path: usize,
    /// Where the value begins, in bytes.
    pub start: usize,
    /// Where it ends.
    pub end: usize,
}

impl Hit {
    /// The value as it stands in the text.
    #[inline]
    pub fn of<'a>(&self, text: &'a [u8]) -> &'a [u8] {
        &text[self.start..self.end]
    }
}

/// What one pass found: kept and used again, so that nothing is allocated for a message.
#[derive(Debug, Default)]
pub struct Found {
    /// The values in the order in which they end; one that lies in another comes before it.
    pub hits: Vec<Hit>,
    /// What has to be left out, so that valid JSON without the pointers marked by [`Paths::cut`]
    /// remains: names and commas included, ascending, apart from one another.
    pub cuts: Vec<Range<usize>>,
    scratch: Vec<u8>,
}

impl Found {
    /// The last value that a pointer led to: what counts where a text has a name twice.
    pub fn last(&self, path: usize) -> Option<Hit> {
        self.hits.iter().rev().find(|hit| hit.path == path).copied()
    }
}

impl Paths {
    /// Reads pointers. An error says which one is wrong and why.
    pub fn new(pointers: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Paths, String> {
        let mut patterns = Vec::new();
        for pointer in pointers {
            patterns.push(steps(pointer.as_ref())?);
        }
        let mut paths = Paths { nodes: Vec::new() };
        let open = patterns.iter().enumerate().map(|(path, steps)| (&steps[..], path as u32)).collect();
        paths.grow(open);
        Ok(paths)
    }

    /// Adds the node where the given rests of pointers go on, and all below it. A name leads to what is
    /// asked of it *and* of `*`, so that one node is all there is to follow at any time.
    fn grow(&mut self, open: Vec<(&[Step], u32)>) -> u32 {
        if open.is_empty() {
            return DEAD;
        }
        let number = self.nodes.len();
        let paths = open.iter().filter(|(steps, _)| steps.is_empty()).map(|(_, path)| *path).collect();
        self.nodes.push(Node { names: vec![], places: vec![], other: DEAD, paths, cut: false });
        let follow = |wanted: &dyn Fn(&Step) -> bool| -> Vec<(&[Step], u32)> {
            let goes_on = open.iter().filter(|(steps, _)| steps.first().is_some_and(wanted));
            goes_on.map(|(steps, path)| (&steps[1..], *path)).collect()
        };
        let other = self.grow(follow(&|step| *step == Step::Any));
        let mut names: Vec<(Vec<u8>, u32)> = Vec::new();
        for (steps, _) in &open {
            if let Some(Step::Name(name)) = steps.first()
                && names.iter().all(|(known, _)| known != name)
            {
                let child =
                    self.grow(follow(&|step| matches!(step, Step::Any) || matches!(step, Step::Name(known) if known == name)));
                names.push((name.clone(), child));
            }
        }
        let place = |(name, child): &(Vec<u8>, u32)| Some((place(name)?, *child));
        self.nodes[number].places = names.iter().filter_map(place).collect();
        self.nodes[number].names = names;
        self.nodes[number].other = other;
        number as u32
    }

    /// Marks a pointer: what it leads to will be among [`Found::cuts`].
    pub fn cut(&mut self, path: usize) {
        self.nodes.iter_mut().filter(|node| node.paths.contains(&(path as u32))).for_each(|node| node.cut = true);
    }

    /// Looks no further within what a pointer has led to: of values in one another only the outermost is found.
    pub fn outermost(mut self) -> Self {
        for node in self.nodes.iter_mut().filter(|node| !node.paths.is_empty()) {
            node.names.clear();
            node.places.clear();
            node.other = DEAD;
        }
        self
    }

    /// Looks the pointers up. Checks the whole text, so that what is copied from it is known to be JSON.
    pub fn find(&self, text: &[u8], found: &mut Found) -> Result<(), Error> {
        found.hits.clear();
        found.cuts.clear();
        let mut walk = Walk { cursor: Cursor::new(text), nodes: &self.nodes, found };
        walk.value(if self.nodes.is_empty() { DEAD } else { 0 }, 0)?;
        walk.cursor.end()
    }
}

/// Reads a pointer.
fn steps(pointer: &str) -> Result<Vec<Step>, String> {
    let wrong = |why: &str| Err(format!("`{pointer}` is no JSON pointer: {why}"));
    let Some(rest) = pointer.strip_prefix('/') else {
        return if pointer.is_empty() { Ok(vec![]) } else { wrong("it begins with `/`, as in `/user/name`") };
    };
    let mut steps = Vec::new();
    for step in rest.split('/') {
        let mut parts = step.split('~');
        let mut name = parts.next().unwrap_or_default().to_string();
        for part in parts {
            match part.chars().next() {
                Some('0') => name.push('~'),
                Some('1') => name.push('/'),
                _ => return wrong("`~` is written `~0`, and `/` within a name `~1`"),
            }
            name.push_str(&part[1..]);
        }
        steps.push(if step == "*" { Step::Any } else { Step::Name(name.into_bytes()) });
    }
    if steps.len() > STEPS_MAX {
        return wrong("it has more than 64 steps");
    }
    Ok(steps)
}

/// The place in an array that a name stands for.
fn place(name: &[u8]) -> Option<usize> {
    let text = std::str::from_utf8(name).ok()?;
    text.parse().ok().filter(|place: &usize| place.to_string() == text)
}

struct Walk<'a> {
    cursor: Cursor<'a>,
    nodes: &'a [Node],
    found: &'a mut Found,
}

impl Walk<'_> {
    fn value(&mut self, node: u32, depth: usize) -> Result<(), Error> {
        let nodes = self.nodes;
        let Some(node) = nodes.get(node as usize) else { return self.cursor.skip(depth) };
        let start = self.cursor.at;
        let looks_in = !node.names.is_empty() || node.other != DEAD;
        match self.cursor.peek() {
            b'{' if looks_in => self.container(node, depth + 1, true)?,
            b'[' if looks_in => self.container(node, depth + 1, false)?,
            _ => self.cursor.skip(depth)?,
        }
        let end = self.cursor.at;
        self.found.hits.extend(node.paths.iter().map(|path| Hit { path: *path as usize, start, end }));
        Ok(())
    }

    /// The members of an object or the elements of an array.
    fn container(&mut self, node: &Node, depth: usize, object: bool) -> Result<(), Error> {
        if depth > DEPTH_MAX {
            return self.cursor.fail("nested too deep");
        }
        let close = if object { b'}' } else { b']' };
        self.cursor.at += 1;
        self.cursor.space();
        if self.cursor.peek() == close {
            self.cursor.at += 1;
            return Ok(());
        }
        // What is cut takes the comma before it along, or, as long as nothing stays, the one behind it.
        let (mut stayed, mut before) = (false, 0);
        for place in 0.. {
            let start = self.cursor.at;
            let child = match object {
                true => self.member(node)?,
                false => node.places.iter().find(|(at, _)| *at == place).map_or(node.other, |(_, child)| *child),
            };
            self.value(child, depth)?;
            let end = self.cursor.at;
            let more = self.cursor.more(close)?;
            let cut = self.nodes.get(child as usize).is_some_and(|child| child.cut);
            match (cut, stayed) {
                (false, _) => stayed = true,
                (true, true) => self.leave_out(before..end),
                (true, false) => self.leave_out(start..if more { self.cursor.at } else { end }),
            }
            if !more {
                break;
            }
            before = end;
        }
        Ok(())
    }

    /// Past a member's name: where it leads.
    #[inline]
    fn member(&mut self, node: &Node) -> Result<u32, Error> {
        let Name { bytes, escaped } = self.cursor.name()?;
        // "em\u0061il" is email, and must not slip through.
        let name = if escaped { unescape(bytes, &mut self.found.scratch) } else { bytes };
        Ok(node.names.iter().find(|(known, _)| known == name).map_or(node.other, |(_, child)| *child))
    }

    fn leave_out(&mut self, cut: Range<usize>) {
        while self.found.cuts.last().is_some_and(|last| last.start >= cut.start) {
            self.found.cuts.pop();
        }
        self.found.cuts.push(cut);
    }
}

/// One pointer, and the buffers for looking it up.
#[derive(Debug)]
pub struct Field {
    paths: Paths,
    found: Found,
}

impl Field {
    /// Reads a pointer.
    pub fn new(pointer: &str) -> Result<Field, String> {
        Ok(Field { paths: Paths::new([pointer])?, found: Found::default() })
    }

    /// The value as it stands in the text; the last one, if there are several.
    pub fn find<'a>(&mut self, text: &'a [u8]) -> Result<Option<&'a [u8]>, Error> {
        self.paths.find(text, &mut self.found)?;
        Ok(self.found.last(0).map(|hit| hit.of(text)))
    }
}

#[cfg(test)]
#[path = "paths_tests.rs"]
mod tests;
