//! Attributes of JSON records, in one pass.
//!
//! What a path finds:
//!
//! | at the end of the path | values |
//! |---|---|
//! | null, truth value, number, string | that value |
//! | array | each of its elements that is one of the above, repeated ones once (`tags` and `tags[*]` alike) |
//! | empty array, object | none: the attribute is absent |
//!
//! A field step through anything but an object, and a `[*]` step through anything but an array, finds
//! nothing: the attribute is absent. Arrays within arrays are reached by a further `[*]`. Where an
//! object has a key twice, the last one counts.
//!
//! What a path of [space](crate::space) finds:
//!
//! | at the end of the path | rectangles of `rect(path)` |
//! |---|---|
//! | `[min_x, min_y, max_x, max_y]`, all numbers | that one |
//! | an array of such arrays | each of them, repeated ones once |
//! | anything else; a rectangle whose least coordinate is above the largest | none |
//!
//! `point(x,y)` is the point of two numbers, one at the end of each path; an array is none.
//!
//! A number beyond the range of `f64` is an error where a path finds it; an integer beyond 64 bits
//! becomes the nearest `f64`.

use std::fmt;

use bolide_base::limits::MAX_JSON_DEPTH;
use bolide_base::{Error, Result};
use serde::de::{
    self, Deserialize, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor,
};

use crate::attribute;
use crate::attribute_plan::{AttributePlan, AttributeValues, NodeId, ROOT, Slot};
use crate::extractor::AttributeExtractor;
use crate::space::Rect;

/// Takes attributes from JSON objects; see the [module](self) for what a path finds.
///
/// One streaming pass checks that the whole record is one well-formed JSON object of valid UTF-8, no
/// deeper than [`MAX_JSON_DEPTH`], and collects the values. It builds no tree. About 0.3 µs for a
/// record of 300 bytes.
///
/// ```
/// use bolide_index::{AttributeExtractor, AttributePlan, AttributeValues, JsonExtractor, Value};
/// let plan = AttributePlan::new(["user.id".parse()?, "tags[*]".parse()?]);
/// let mut values = AttributeValues::new();
/// JsonExtractor.extract(br#"{"user":{"id":7},"tags":["b","a","b"]}"#, &plan, &mut values)?;
/// assert_eq!(values.values(0).len(), 1);
/// assert_eq!(values.values(1).len(), 2);
/// # Ok::<(), bolide_base::Error>(())
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct JsonExtractor;

impl AttributeExtractor for JsonExtractor {
    fn extract_into(&self, record: &[u8], plan: &AttributePlan, out: &mut AttributeValues) -> Result<()> {
        let text = check_text(record)?;
        if plan.paths().is_empty() && text.trim_ascii_start().starts_with('{') {
            return check_syntax(text);
        }
        let mut deserializer = serde_json::Deserializer::from_str(text);
        ObjectSeed { plan, node: ROOT, out }
            .deserialize(&mut deserializer)
            .and_then(|()| deserializer.end())
            .map_err(refuse)?;
        plan.join_points(out);
        Ok(())
    }

    /// What checking the syntax alone does not see is left to extraction: numbers out of range, and escapes.
    fn accepts(&self, record: &[u8]) -> Result<bool> {
        if !is_plain(record) {
            return Ok(false);
        }
        let text = check_text(record)?;
        if !text.trim_ascii_start().starts_with('{') {
            return Ok(false);
        }
        check_syntax(text).map(|()| true)
    }
}

/// Longest record that is called plain: its values are fewer and shorter than any limit.
const MAX_PLAIN_BYTES: usize = 300;

/// True for a short record without escapes and without exponents. A number in it has too few digits to be out of
/// range.
fn is_plain(record: &[u8]) -> bool {
    if record.len() > MAX_PLAIN_BYTES {
        return false;
    }
    let next = record.get(1..).unwrap_or_default();
    let suspects = |(&byte, &next): (&u8, &u8)| {
        let exponent = byte.is_ascii_digit() & (next | 0x20 == b'e');
        exponent | (byte == b'\\')
    };
    // Without an early end the compiler looks at many bytes at once.
    !record.iter().zip(next).fold(false, |found, pair| found | suspects(pair))
}

fn check_text(record: &[u8]) -> Result<&str> {
    let text = std::str::from_utf8(record)
        .map_err(|error| refuse(format_args!("invalid UTF-8 at byte {}", error.valid_up_to())))?;
    check_depth(record)?;
    Ok(text)
}

/// Where there is nothing to find, checking alone takes half the time.
fn check_syntax(text: &str) -> Result<()> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    IgnoredAny::deserialize(&mut deserializer).and_then(|_| deserializer.end()).map_err(refuse)
}

fn refuse(why: impl fmt::Display) -> Error {
    Error::invalid_input(format!("the record is not a JSON object: {why}"))
}

/// Refuses records that nest deeper than [`MAX_JSON_DEPTH`].
///
/// The parser's own limit does not watch the parts it skips. Counting the opening brackets settles
/// all but odd records at the speed of memory; only those with many are looked at in detail.
fn check_depth(record: &[u8]) -> Result<()> {
    // Setting bit 5 maps `[` and `{`, and nothing else, to `{`.
    let opening: usize = record
        .chunks(255)
        .map(|chunk| chunk.iter().map(|&byte| u8::from(byte | 0x20 == b'{')).sum::<u8>() as usize)
        .sum();
    if opening <= MAX_JSON_DEPTH {
        return Ok(());
    }
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for &byte in record {
        if in_string {
            in_string = escaped || byte != b'"';
            escaped = !escaped && byte == b'\\';
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'[' | b'{' => {
                depth += 1;
                if depth > MAX_JSON_DEPTH {
                    return Err(Error::limit_exceeded(
                        "the nesting of a JSON record",
                        depth as u64,
                        MAX_JSON_DEPTH as u64,
                    ));
                }
            }
            // Unbalanced closing brackets are the parser's to refuse.
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    Ok(())
}

/// Reads an object whose place in the record is `node`.
struct ObjectSeed<'p, 'o> {
    plan: &'p AttributePlan,
    node: NodeId,
    out: &'o mut AttributeValues,
}

impl<'de> DeserializeSeed<'de> for ObjectSeed<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> std::result::Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for ObjectSeed<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> std::result::Result<(), A::Error> {
        read_fields(self.plan, self.node, self.out, map)
    }
}

fn read_fields<'de, A: MapAccess<'de>>(
    plan: &AttributePlan,
    node: NodeId,
    out: &mut AttributeValues,
    mut map: A,
) -> std::result::Result<(), A::Error> {
    let mark = out.mark();
    // One bit a field, to notice repeated keys. Fields from the 64th on share a bit, which at worst
    // looks for values to forget where there are none.
    let mut seen = 0_u64;
    while let Some(field) = map.next_key_seed(KeySeed { plan, node })? {
        let Some((position, child)) = field else {
            map.next_value::<IgnoredAny>()?;
            continue;
        };
        let bit = 1 << position.min(63);
        if seen & bit != 0 {
            out.forget_since(mark, &plan.node(child).slots_below);
        }
        seen |= bit;
        map.next_value_seed(ValueSeed { plan, node: Some(child), around: Around::Object, out: &mut *out })?;
    }
    Ok(())
}

/// Reads a key and finds out which field of the node it is, if any.
struct KeySeed<'p> {
    plan: &'p AttributePlan,
    node: NodeId,
}

impl<'de> DeserializeSeed<'de> for KeySeed<'_> {
    type Value = Option<(usize, NodeId)>;

    fn deserialize<D: Deserializer<'de>>(
        self,
        deserializer: D,
    ) -> std::result::Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for KeySeed<'_> {
    type Value = Option<(usize, NodeId)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    #[inline]
    fn visit_str<E: de::Error>(self, name: &str) -> std::result::Result<Self::Value, E> {
        Ok(self.plan.node(self.node).field(name))
    }
}

/// Reads a value and pushes what paths find in it.
struct ValueSeed<'p, 'o> {
    plan: &'p AttributePlan,
    /// The value's place in the trie; `None` where no path comes.
    node: Option<NodeId>,
    around: Around<'o>,
    out: &'o mut AttributeValues,
}

/// What an array around a value wants of it.
enum Around<'o> {
    /// There is no array around it, or none that a path ends at.
    Object,
    /// This slot takes it if it is a scalar.
    Array(Slot),
    /// A path of rectangles ends at the array.
    Space(&'o mut Elements),
}

/// The elements of an array where a path of rectangles ends.
struct Elements {
    /// The slot of that path, which takes an element that is a rectangle.
    rect: Option<Slot>,
    /// The slot of a plain path that ends there too.
    array: Option<Slot>,
    corners: Corners,
}

/// The elements of an array, as long as they may be the corners of a rectangle.
#[derive(Default)]
struct Corners {
    numbers: [f64; 4],
    count: usize,
    others: bool,
}

impl Corners {
    fn add(&mut self, number: Option<f64>) {
        match (self.numbers.get_mut(self.count), number) {
            (Some(corner), Some(number)) => *corner = number,
            _ => self.others = true,
        }
        self.count += 1;
    }

    fn rect(&self) -> Option<Rect> {
        (self.count == 4 && !self.others).then(|| Rect::valid(self.numbers)).flatten()
    }
}

impl ValueSeed<'_, '_> {
    /// Pushes a scalar: a `number`, if it is one.
    #[inline]
    fn push(self, number: Option<f64>, encode: impl Fn(&mut Vec<u8>)) {
        if let Some(node) = self.node {
            let node = self.plan.node(node);
            if let Some(slot) = node.slot {
                self.out.push_encoded(slot, &encode);
            }
            if let Some(number) = number {
                for coordinate in &node.coordinates {
                    self.out.push_coordinate(*coordinate, number);
                }
            }
        }
        match self.around {
            Around::Object => {}
            Around::Array(slot) => self.out.push_encoded(slot, &encode),
            Around::Space(elements) => {
                if let Some(slot) = elements.array {
                    self.out.push_encoded(slot, &encode);
                }
                elements.corners.add(number);
            }
        }
    }

    /// Reads an array at whose end a path of rectangles may end, or that may be a rectangle itself.
    #[cold]
    fn read_corners<'de, A: SeqAccess<'de>>(self, mut array: A) -> std::result::Result<(), A::Error> {
        let node = self.node.map(|node| self.plan.node(node));
        let (own, array_slot) = (node.and_then(|node| node.rect), node.and_then(|node| node.slot));
        let element_node = node.and_then(|node| node.elements);
        let outer = match self.around {
            Around::Space(elements) => {
                elements.corners.add(None);
                elements.rect
            }
            Around::Object | Around::Array(_) => None,
        };
        let mut elements = Elements { rect: own, array: array_slot, corners: Corners::default() };
        loop {
            let around = Around::Space(&mut elements);
            let seed = ValueSeed { plan: self.plan, node: element_node, around, out: &mut *self.out };
            if array.next_element_seed(seed)?.is_none() {
                break;
            }
        }
        if let Some(rect) = elements.corners.rect() {
            for slot in [own, outer].into_iter().flatten() {
                self.out.push_encoded(slot, |out| attribute::encode_rect(out, &rect));
            }
        }
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for ValueSeed<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> std::result::Result<(), D::Error> {
        if self.node.is_none() && matches!(self.around, Around::Object) {
            return deserializer.deserialize_ignored_any(IgnoredAny).map(drop);
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ValueSeed<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: de::Error>(self) -> std::result::Result<(), E> {
        self.push(None, attribute::encode_null);
        Ok(())
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> std::result::Result<(), E> {
        self.push(None, |out| attribute::encode_bool(out, value));
        Ok(())
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> std::result::Result<(), E> {
        self.push(Some(value as f64), |out| attribute::encode_i64(out, value));
        Ok(())
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> std::result::Result<(), E> {
        self.push(Some(value as f64), |out| attribute::encode_u64(out, value));
        Ok(())
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> std::result::Result<(), E> {
        if value.is_nan() {
            return Err(E::custom("NaN is not a JSON number"));
        }
        self.push(Some(value), |out| attribute::encode_finite_f64(out, value));
        Ok(())
    }

    #[inline]
    fn visit_str<E: de::Error>(self, value: &str) -> std::result::Result<(), E> {
        self.push(None, |out| attribute::encode_str(out, value));
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> std::result::Result<(), A::Error> {
        let node = self.node.map(|node| self.plan.node(node));
        if node.is_some_and(|node| node.rect.is_some()) || matches!(self.around, Around::Space(_)) {
            return self.read_corners(array);
        }
        let element_node = node.and_then(|node| node.elements);
        let array_slot = node.and_then(|node| node.slot);
        loop {
            let around = array_slot.map_or(Around::Object, Around::Array);
            let seed = ValueSeed { plan: self.plan, node: element_node, around, out: &mut *self.out };
            if array.next_element_seed(seed)?.is_none() {
                return Ok(());
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<(), A::Error> {
        if let Around::Space(elements) = self.around {
            elements.corners.add(None);
        }
        match self.node {
            Some(node) if !self.plan.node(node).has_no_fields() => {
                read_fields(self.plan, node, self.out, map)
            }
            _ => {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(())
            }
        }
    }
}

#[cfg(test)]
#[path = "json_tests.rs"]
mod tests;
