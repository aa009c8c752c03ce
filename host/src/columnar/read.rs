//! What each type accepts: reads values at the cursor into their columns. The rules are in `docs/schemas.md`.

use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use super::column::Plain;
use super::number::{self, Inexact};
use super::parse::{self, Cursor, Fault, Parsed, Step, Text};
use super::schema::{EpochUnit, Kind};
use super::time;
use super::tree::{Column, Group, List, Map, Node, Struct};
use super::unknown::Unknown;

/// The standard alphabet, with or without padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// What reading needs besides the cursor and the columns.
pub struct Reader<'a> {
    pub cursor: Cursor<'a>,
    /// The messages that are read in one go; this one is a part of it.
    pub block: &'a str,
    /// Where in the block the message begins.
    pub base: usize,
    pub unknown: &'a mut Unknown,
    /// For strings with escapes.
    pub scratch: &'a mut String,
    /// Stop at the last field that is asked for.
    pub partial: bool,
}

impl<'a> Reader<'a> {
    /// Reads a message, which begins at `base` in the block, into `group`, whose columns have `row` values before it.
    pub fn message(&mut self, group: &mut Group, text: &'a str, base: usize, row: usize) -> Parsed {
        self.base = base;
        self.cursor.reset(text);
        self.cursor.skip_space();
        if self.cursor.peek() != b'{' {
            return Err(self.no_object());
        }
        self.object(group, row)?;
        if self.partial {
            return Ok(());
        }
        self.cursor.skip_space();
        if !self.cursor.is_at_end() {
            return Err(self.cursor.fault_here("not JSON: something follows the message's object"));
        }
        Ok(())
    }

    /// Why a message that doesn't begin with an object is refused.
    #[cold]
    fn no_object(&mut self) -> Box<Fault> {
        let start = self.cursor.at();
        if self.cursor.is_at_end() {
            return self.cursor.fault("the message is empty");
        }
        if self.cursor.take_all("\u{feff}".as_bytes()) {
            return self.cursor.fault("the message begins with a byte order mark");
        }
        match self.cursor.skip() {
            Ok(()) => self.cursor.unfit("wrong type", "object", start),
            Err(fault) => fault,
        }
    }

    /// Reads the object at the cursor into `group`, whose columns have `row` values before it.
    #[inline(always)]
    pub fn object(&mut self, group: &mut Group, row: usize) -> Parsed {
        self.cursor.enter()?;
        self.cursor.skip_space();
        let mut expected = 0;
        let mut seen = 0;
        let mut more = self.cursor.peek() != b'}';
        while more {
            match self.field(group, expected)? {
                Ok(index) => {
                    let node = &mut group.nodes[index];
                    if node.len() > row {
                        return Err(self.cursor.fault("the field is there twice"));
                    }
                    self.cursor.skip_space();
                    self.value(node)?;
                    expected = index + 1;
                    seen += 1;
                    if self.partial && seen == group.nodes.len() && self.cursor.depth() == 1 {
                        return Ok(());
                    }
                }
                Err(name) => {
                    self.cursor.skip_space();
                    self.unknown.skip(name, &mut self.cursor)?;
                }
            }
            more = self.cursor.more(b'}')?;
        }
        if seen < group.nodes.len() {
            self.absent(group, row)?;
        }
        self.cursor.leave();
        Ok(())
    }

    /// Reads a key; gives the place of its field, or the key of a field that the schema doesn't have.
    #[inline(always)]
    fn field(&mut self, group: &Group, expected: usize) -> Parsed<Result<usize, Text>> {
        // Messages of one producer have their fields in the same order: no search where the expected one comes.
        if let Some(node) = group.nodes.get(expected) {
            let start = self.cursor.at() + 1;
            if self.cursor.take_all(&node.token) {
                self.cursor.step(Step::Key(start as u32, (self.cursor.at() - 2) as u32));
                return Ok(Ok(expected));
            }
        }
        self.search(group)
    }

    fn search(&mut self, group: &Group) -> Parsed<Result<usize, Text>> {
        let text = self.cursor.key()?;
        Ok(group.find(self.cursor.resolve(text, self.scratch)).ok_or(text))
    }

    /// Fills in the fields that the object didn't have.
    fn absent(&mut self, group: &mut Group, row: usize) -> Parsed {
        for node in group.nodes.iter_mut().filter(|node| node.len() == row) {
            if node.required {
                return Err(self.cursor.missing(&node.name, &node.kind));
            }
            node.push_absent();
        }
        Ok(())
    }

    /// Reads the value at the cursor into the column.
    #[inline(always)]
    fn value(&mut self, node: &mut Node) -> Parsed {
        match self.cursor.peek() {
            b'"' => {
                if let Column::Uuid(c) = &mut node.column
                    && let Some(uuid) = self.cursor.quoted(UUID).and_then(|text| uuid::Uuid::try_parse_ascii(text).ok())
                {
                    self.cursor.pass(UUID + 2);
                    c.push(uuid.as_bytes());
                    return Ok(());
                }
                let start = self.cursor.at();
                let text = self.cursor.string()?;
                self.text(node, text, start)
            }
            b'n' => {
                let start = self.cursor.at();
                self.cursor.literal("null")?;
                if node.required {
                    return Err(self.cursor.unfit("null in a required field", &node.kind, start));
                }
                node.push_absent();
                Ok(())
            }
            b'{' | b'[' => self.nested(node),
            b't' | b'f' => self.boolean(node),
            _ => self.number(node),
        }
    }

    fn boolean(&mut self, node: &mut Node) -> Parsed {
        let start = self.cursor.at();
        let value = self.cursor.peek() == b't';
        self.cursor.literal(if value { "true" } else { "false" })?;
        match &mut node.column {
            Column::Boolean(c) => c.push(value),
            _ => return Err(self.wrong_type(node, start)),
        }
        Ok(())
    }

    #[cold]
    fn wrong_type(&mut self, node: &Node, start: usize) -> Box<Fault> {
        self.cursor.unfit("wrong type", &node.kind, start)
    }

    /// A number where the type is a date or time and no unit says what it means.
    #[cold]
    fn no_unit(&mut self, node: &Node, start: usize) -> Box<Fault> {
        let message = match node.kind {
            Kind::Date => "a number without a unit: declare `\"unit\": \"days\"` in the schema",
            _ => "a number without a unit: declare `\"unit\": \"ms\"` (or s, us, ns) in the schema",
        };
        self.cursor.unfit(message, &node.kind, start)
    }

    #[cold]
    fn inexact(&mut self, node: &Node, why: Inexact, start: usize) -> Box<Fault> {
        let message = match (why, &node.kind) {
            (Inexact::Overflow, _) => "out of range",
            (_, Kind::Int | Kind::Long) => "not a whole number",
            (_, Kind::Date) => "not a whole number of days",
            (_, Kind::Decimal { .. }) => "more digits behind the point than the type has",
            _ => "finer than microseconds",
        };
        self.cursor.unfit(message, &node.kind, start)
    }

    /// Reads the number at the cursor.
    fn number(&mut self, node: &mut Node) -> Parsed {
        let start = self.cursor.at();
        let text = self.cursor.number()?;
        let read = match &mut node.column {
            Column::Int(_) | Column::Long(_) | Column::Float(_) | Column::Double(_) | Column::Decimal(..) => {
                return self.numeric(node, text, start);
            }
            Column::Date(_, None) | Column::Time(_, None) | Column::Timestamp(_, None, _) => {
                return Err(self.no_unit(node, start));
            }
            Column::Date(c, Some(_)) => integer(text, 0).map(|days| c.push(days)),
            Column::Time(c, Some(unit)) => {
                epoch(text, *unit).and_then(|t| within(t, (0..time::DAY).contains(&t))).map(|t| c.push(t))
            }
            Column::Timestamp(c, Some(unit), _) => epoch(text, *unit).map(|t| c.push(t)),
            _ => return Err(self.wrong_type(node, start)),
        };
        read.map_err(|why| self.inexact(node, why, start))
    }

    /// Adds a number, written as such or in a string, to a column of numbers.
    #[inline(always)]
    fn numeric(&mut self, node: &mut Node, text: &str, start: usize) -> Parsed {
        let read = match &mut node.column {
            Column::Long(c) => integer(text, 0).map(|value| c.push(value)),
            Column::Int(c) => integer(text, 0).map(|value| c.push(value)),
            Column::Double(c) => float(c, text),
            Column::Float(c) => float(c, text),
            Column::Decimal(c, precision, scale) => number::scaled(text, i32::from(*scale))
                .and_then(|value| within(value, value.unsigned_abs() < 10u128.pow(u32::from(*precision))))
                .map(|value| c.push(value)),
            _ => return Err(self.wrong_type(node, start)),
        };
        read.map_err(|why| self.inexact(node, why, start))
    }

    /// Adds the value of a string that has been read, or of a key of a map.
    #[inline(always)]
    fn text(&mut self, node: &mut Node, text: Text, start: usize) -> Parsed {
        if let Column::Text(c) = &mut node.column {
            match text.escaped {
                false => c.push(self.base + text.start, text.end - text.start),
                true => {
                    let raw = self.cursor.slice(text.start, text.end);
                    c.push_own(|own| parse::unescape(raw, own));
                }
            }
            return Ok(());
        }
        self.parsed_text(node, text, start)
    }

    /// Adds what the text of a string means to the type.
    fn parsed_text(&mut self, node: &mut Node, text: Text, start: usize) -> Parsed {
        let mut scratch = std::mem::take(self.scratch);
        let value = self.cursor.resolve(text, &mut scratch);
        let read = match &mut node.column {
            Column::Int(_) | Column::Long(_) | Column::Float(_) | Column::Double(_) | Column::Decimal(..) => {
                self.number_in_text(node, value, start)
            }
            Column::Uuid(c) => match value.len() {
                UUID => uuid::Uuid::try_parse_ascii(value.as_bytes()).map(|uuid| c.push(uuid.as_bytes())).map_err(|_| NO_UUID),
                _ => Err(NO_UUID),
            }
            .map_err(|why| self.cursor.unfit(why, &node.kind, start)),
            Column::Date(c, _) => {
                time::date(value).map(|days| c.push(days)).map_err(|why| self.cursor.unfit(why, "date like 2026-01-31", start))
            }
            Column::Time(c, _) => time::time(value)
                .map(|time| c.push(time))
                .map_err(|why| self.cursor.unfit(why, "time like 23:59:59.999999", start)),
            Column::Timestamp(c, _, zoned) => time::timestamp(value, *zoned).map(|time| c.push(time)).map_err(|why| {
                let expected = if *zoned {
                    "timestamptz like 2026-01-31T23:59:59.999999Z"
                } else {
                    "timestamp like 2026-01-31T23:59:59.999999"
                };
                self.cursor.unfit(why, expected, start)
            }),
            Column::Binary(c) => match BASE64.decode_vec(value, &mut c.values) {
                Ok(()) => {
                    c.end();
                    Ok(())
                }
                Err(_) => Err(self.cursor.unfit("not base64", &node.kind, start)),
            },
            Column::Fixed(c) => {
                let begin = c.values.len();
                match BASE64.decode_vec(value, &mut c.values) {
                    Ok(()) if c.values.len() - begin == c.width => {
                        c.end();
                        Ok(())
                    }
                    Ok(()) => Err(self.cursor.unfit("base64 of another length", &node.kind, start)),
                    Err(_) => Err(self.cursor.unfit("not base64", &node.kind, start)),
                }
            }
            _ => Err(self.wrong_type(node, start)),
        };
        *self.scratch = scratch;
        read
    }

    fn number_in_text(&mut self, node: &mut Node, value: &str, start: usize) -> Parsed {
        if parse::is_number(value) {
            return self.numeric(node, value, start);
        }
        let special = match value {
            "NaN" => Some(f64::NAN),
            "Infinity" => Some(f64::INFINITY),
            "-Infinity" => Some(f64::NEG_INFINITY),
            _ => None,
        };
        match (special, &mut node.column) {
            (Some(value), Column::Double(c)) => c.push(value),
            (Some(value), Column::Float(c)) => c.push(value as f32),
            _ => return Err(self.wrong_type(node, start)),
        }
        Ok(())
    }

    /// Reads the object or array at the cursor.
    fn nested(&mut self, node: &mut Node) -> Parsed {
        let object = self.cursor.peek() == b'{';
        match &mut node.column {
            Column::Struct(c) if object => self.structure(c),
            Column::List(c) if !object => self.list(c),
            Column::Map(c) if object => self.map(c),
            Column::Map(c) => self.entries(c),
            _ => {
                let start = self.cursor.at();
                Err(self.wrong_type(node, start))
            }
        }
    }

    fn structure(&mut self, column: &mut Struct) -> Parsed {
        let row = column.len();
        self.object(&mut column.group, row)?;
        column.push();
        Ok(())
    }

    fn list(&mut self, column: &mut List) -> Parsed {
        self.cursor.enter()?;
        self.cursor.skip_space();
        let mut more = self.cursor.peek() != b']';
        let mut index = 0;
        while more {
            self.cursor.step(Step::Index(index));
            index += 1;
            self.value(&mut column.element)?;
            more = self.cursor.more(b']')?;
        }
        self.cursor.leave();
        column.lengths.push(column.element.len());
        Ok(())
    }

    /// A map as an object.
    fn map(&mut self, column: &mut Map) -> Parsed {
        self.cursor.enter()?;
        self.cursor.skip_space();
        let mut more = self.cursor.peek() != b'}';
        while more {
            let start = self.cursor.at();
            let key = self.cursor.key()?;
            let [key_node, value_node] = &mut column.entry.nodes[..] else { return Ok(()) };
            self.text(key_node, key, start)?;
            self.cursor.skip_space();
            self.value(value_node)?;
            more = self.cursor.more(b'}')?;
        }
        self.end_map(column)
    }

    /// A map as a list of `{"key": .., "value": ..}`.
    fn entries(&mut self, column: &mut Map) -> Parsed {
        self.cursor.enter()?;
        self.cursor.skip_space();
        let mut more = self.cursor.peek() != b']';
        let mut index = 0;
        while more {
            self.cursor.step(Step::Index(index));
            index += 1;
            if self.cursor.peek() != b'{' {
                let start = self.cursor.at();
                return Err(self.cursor.unfit("wrong type", "object of key and value", start));
            }
            let row = column.entry.nodes[0].len();
            self.object(&mut column.entry, row)?;
            more = self.cursor.more(b']')?;
        }
        self.end_map(column)
    }

    /// Ends a map, in which no key may be twice.
    fn end_map(&mut self, column: &mut Map) -> Parsed {
        self.cursor.leave();
        let keys = &column.entry.nodes[0];
        let (start, end) = (column.lengths.end(), keys.len());
        let order = &mut column.order;
        order.clear();
        order.extend(start..end);
        order.sort_unstable_by(|a, b| keys.order(*a, *b, self.block));
        if order.windows(2).any(|pair| keys.order(pair[0], pair[1], self.block).is_eq()) {
            return Err(self.cursor.fault("a key of the map is there twice"));
        }
        column.lengths.push(end);
        Ok(())
    }
}

/// Characters of a UUID with its hyphens.
const UUID: usize = 36;
const NO_UUID: &str = "not a UUID of the form 8-4-4-4-12";

/// The value, if it is within what its type can hold.
fn within<T>(value: T, fits: bool) -> Result<T, Inexact> {
    if fits { Ok(value) } else { Err(Inexact::Overflow) }
}

/// The number times 10^`scale` as an integer of the column's width.
#[inline(always)]
fn integer<T: TryFrom<i64> + TryFrom<i128>>(text: &str, scale: i32) -> Result<T, Inexact> {
    if let (Some(value), 0) = (number::plain_integer(text), scale) {
        return T::try_from(value).map_err(|_| Inexact::Overflow);
    }
    number::scaled(text, scale).and_then(|value| T::try_from(value).map_err(|_| Inexact::Overflow))
}

/// Microseconds of a number of seconds or less.
#[inline(always)]
fn epoch(text: &str, unit: EpochUnit) -> Result<i64, Inexact> {
    let power = unit.to_micros().ok_or(Inexact::Fraction)?;
    let factor = 10i64.pow(power.max(0) as u32);
    match number::plain_integer(text) {
        Some(value) if power >= 0 => value.checked_mul(factor).ok_or(Inexact::Overflow),
        _ => integer(text, power),
    }
}

/// Adds the nearest float; a number beyond all floats has none.
fn float<T>(column: &mut Plain<T>, text: &str) -> Result<(), Inexact>
where
    T: Copy + Default + std::str::FromStr + Into<f64>,
{
    let value: T = text.parse().map_err(|_| Inexact::Overflow)?;
    if !value.into().is_finite() {
        return Err(Inexact::Overflow);
    }
    column.push(value);
    Ok(())
}
