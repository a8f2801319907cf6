//! Extraction of attributes from JSON records, in one pass.
//!
//! Values at a path:
//!
//! | at the end of the path | values |
//! |---|---|
//! | null, boolean, number, string | that value |
//! | array | each of its elements that is one of the above, repeated ones once (`tags` and `tags[*]` alike) |
//! | empty array, object | none: the attribute is absent |
//!
//! A field step through anything but an object, and a `[*]` step through anything but an array, yields nothing: the
//! attribute is absent. Arrays within arrays need a further `[*]`.
//!
//! Values at a [spatial](crate::space) path:
//!
//! | at the end of the path | rectangles of `rect(path)` |
//! |---|---|
//! | `[min_x, min_y, max_x, max_y]`, all numbers | that one |
//! | an array of such arrays | each of them, repeated ones once |
//! | anything else; a rectangle whose least coordinate is above the largest | none |
//!
//! `point(x,y)` is the point of two numbers, one at the end of each path; an array is none.
//!
//! An integer beyond 64 bits becomes the nearest `f64`.
//!
//! # Validation
//!
//! The same pass validates the whole record, including parts without a path. A record is rejected for:
//!
//! - bytes that are not UTF-8, or anything but one JSON object;
//! - a lone surrogate in a string or a name (`"\ud800"`);
//! - a number that is not finite as `f64` (`1e999`);
//! - a name that occurs twice in one object, compared after its escapes are resolved;
//! - nesting deeper than [`MAX_JSON_DEPTH`].

use std::fmt;

use bolide_base::limits::MAX_JSON_DEPTH;
use bolide_base::technique::Technique;
use bolide_base::{Error, Result};
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use crate::attribute;
use crate::attribute_plan::{AttributePlan, AttributeValues, PathNodeId, ROOT, ValueSlot};
use crate::extractor::AttributeExtractor;
use crate::json_names::{NameStack, ObjectNames};
use crate::json_scan::is_plain_object;
use crate::space::Rect;

/// Extracts attributes from JSON objects; see the [module](self) for the values at a path.
///
/// One streaming pass validates the whole record and collects the values. It builds no tree; its memory is 8 bytes for
/// each name of the open objects. `examples/json_speed.rs` measures its cost.
///
/// ```
/// use bolide_index::{AttributeExtractor, AttributePlan, AttributeValues, JsonExtractor, Value};
/// let plan = AttributePlan::new(["user.id".parse()?, "tags[*]".parse()?]);
/// let mut values = AttributeValues::new();
/// JsonExtractor.extract(br#"{"user":{"id":7},"tags":["b","a","b"]}"#, &plan, &mut values)?;
/// assert_eq!(values.values(0).len(), 1);
/// assert_eq!(values.values(1).len(), 2);
/// assert!(JsonExtractor.extract(br#"{"other":"\ud800"}"#, &plan, &mut values).is_err());
/// # Ok::<(), bolide_base::Error>(())
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct JsonExtractor;

impl AttributeExtractor for JsonExtractor {
    fn extract_into(&self, record: &[u8], plan: &AttributePlan, out: &mut AttributeValues) -> Result<()> {
        read_record(record, plan, (!plan.paths().is_empty()).then_some(ROOT), out)?;
        plan.join_points(out);
        Ok(())
    }

    /// A record of at most `MAX_PLAIN_BYTES` bytes cannot contain a value or an array over a limit.
    fn accepts(&self, record: &[u8]) -> Result<bool> {
        if record.len() > MAX_PLAIN_BYTES {
            return Ok(false);
        }
        JsonExtractor.validate(record).map(|()| true)
    }
}

impl JsonExtractor {
    /// Validates a record without collecting values; see the [module](self) for the rules.
    ///
    /// # Errors
    /// `InvalidInput` for a malformed record, `LimitExceeded` for one that nests too deeply.
    ///
    /// ```
    /// use bolide_index::JsonExtractor;
    /// assert!(JsonExtractor.validate(br#"{"x":1e300}"#).is_ok());
    /// assert!(JsonExtractor.validate(br#"{"x":1e999}"#).is_err());
    /// ```
    pub fn validate(&self, record: &[u8]) -> Result<()> {
        read_record(record, &AttributePlan::default(), None, &mut AttributeValues::new())
    }
}

/// Maximum length of a plain record: its values are fewer and shorter than any limit.
const MAX_PLAIN_BYTES: usize = 300;

/// Validates `record` and pushes the values at the paths below `node`.
fn read_record(
    record: &[u8],
    plan: &AttributePlan,
    node: Option<PathNodeId>,
    out: &mut AttributeValues,
) -> Result<()> {
    let text = std::str::from_utf8(record)
        .map_err(|error| rejected(format_args!("invalid UTF-8 at byte {}", error.valid_up_to())))?;
    if node.is_none() && Technique::JsonScan.is_on() && is_plain_object(text) {
        return Ok(());
    }
    let mut deserializer = serde_json::Deserializer::from_str(text);
    // The limit of serde_json is one level lower than that of the store, which `Pass` enforces.
    deserializer.disable_recursion_limit();
    let mut pass = Pass { plan, out, names: NameStack::new(text), depth: 0 };
    let outcome =
        ObjectSeed { pass: &mut pass, node }.deserialize(&mut deserializer).and_then(|()| deserializer.end());
    if pass.depth > MAX_JSON_DEPTH {
        let (depth, limit) = (pass.depth as u64, MAX_JSON_DEPTH as u64);
        return Err(Error::limit_exceeded("the nesting of a JSON record", depth, limit));
    }
    outcome.map_err(rejected)
}

#[cold]
fn rejected(why: impl fmt::Display) -> Error {
    Error::invalid_input(format!("the record is not a valid JSON object: {why}"))
}

/// The state of one pass over a record.
struct Pass<'a> {
    plan: &'a AttributePlan,
    out: &'a mut AttributeValues,
    names: NameStack<'a>,
    /// Number of open arrays and objects.
    depth: usize,
}

impl Pass<'_> {
    /// Enters an array or an object. After an error the depth stays over the limit.
    #[inline]
    fn enter<E: de::Error>(&mut self) -> std::result::Result<(), E> {
        self.depth += 1;
        if self.depth > MAX_JSON_DEPTH { Err(E::custom("it nests too deeply")) } else { Ok(()) }
    }

    fn leave(&mut self) {
        self.depth -= 1;
    }
}

/// Reads the object of the record.
struct ObjectSeed<'s, 'a> {
    pass: &'s mut Pass<'a>,
    node: Option<PathNodeId>,
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
        read_fields(self.pass, self.node, map)
    }
}

/// Reads the fields of an object at `node`; `None` if no path passes it.
fn read_fields<'de, A: MapAccess<'de>>(
    pass: &mut Pass<'_>,
    node: Option<PathNodeId>,
    mut map: A,
) -> std::result::Result<(), A::Error> {
    pass.enter()?;
    let mut object = pass.names.begin();
    while let Some(child) = map.next_key_seed(KeySeed { pass, node, object: &mut object })? {
        map.next_value_seed(ValueSeed { pass, node: child, around: EnclosingArray::Object })?;
    }
    pass.names.end(&object)?;
    pass.leave();
    Ok(())
}

/// Reads a name and returns the node of its field, if any.
struct KeySeed<'s, 'a> {
    pass: &'s mut Pass<'a>,
    node: Option<PathNodeId>,
    object: &'s mut ObjectNames,
}

impl<'de> DeserializeSeed<'de> for KeySeed<'_, '_> {
    type Value = Option<PathNodeId>;

    fn deserialize<D: Deserializer<'de>>(
        self,
        deserializer: D,
    ) -> std::result::Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for KeySeed<'_, '_> {
    type Value = Option<PathNodeId>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    #[inline]
    fn visit_str<E: de::Error>(self, name: &str) -> std::result::Result<Self::Value, E> {
        self.pass.names.add(self.object, name)?;
        Ok(self.node.and_then(|node| self.pass.plan.node(node).field(name)))
    }
}

/// Reads a value and pushes the values at its paths.
struct ValueSeed<'s, 'a, 'o> {
    pass: &'s mut Pass<'a>,
    /// The value's node in the trie; `None` if no path passes it.
    node: Option<PathNodeId>,
    around: EnclosingArray<'o>,
}

/// The array around a value.
enum EnclosingArray<'o> {
    /// No array around the value, or none that a path ends at.
    Object,
    /// The path of this slot ends at the array: a scalar element is a value of it.
    Array(ValueSlot),
    /// A path of rectangles ends at the array.
    Space(&'o mut Elements),
}

/// The elements of an array where a path of rectangles ends.
struct Elements {
    /// The slot of that path, for elements that are rectangles.
    rect: Option<ValueSlot>,
    /// The slot of a plain path that ends there too.
    array: Option<ValueSlot>,
    corners: Corners,
}

/// The elements of an array as candidates for the corners of a rectangle.
#[derive(Default)]
struct Corners {
    numbers: [f64; 4],
    count: usize,
    has_other_elements: bool,
}

impl Corners {
    fn add(&mut self, number: Option<f64>) {
        match (self.numbers.get_mut(self.count), number) {
            (Some(corner), Some(number)) => *corner = number,
            _ => self.has_other_elements = true,
        }
        self.count += 1;
    }

    fn rect(&self) -> Option<Rect> {
        (self.count == 4 && !self.has_other_elements).then(|| Rect::valid(self.numbers)).flatten()
    }
}

impl<'a> ValueSeed<'_, 'a, '_> {
    /// Pushes a scalar. `number` is its value if it is a number.
    #[inline]
    fn push(self, number: Option<f64>, encode: impl Fn(&mut Vec<u8>)) {
        if let Some(node) = self.node {
            let node = self.pass.plan.node(node);
            if let Some(slot) = node.slot {
                self.pass.out.push_encoded(slot, &encode);
            }
            if let Some(number) = number {
                for coordinate in &node.coordinates {
                    self.pass.out.push_coordinate(*coordinate, number);
                }
            }
        }
        match self.around {
            EnclosingArray::Object => {}
            EnclosingArray::Array(slot) => self.pass.out.push_encoded(slot, &encode),
            EnclosingArray::Space(elements) => {
                if let Some(slot) = elements.array {
                    self.pass.out.push_encoded(slot, &encode);
                }
                elements.corners.add(number);
            }
        }
    }

    /// Reads an array at whose end a path of rectangles may end, or that may be a rectangle itself.
    #[cold]
    fn read_corners<'de, A: SeqAccess<'de>>(self, mut array: A) -> std::result::Result<(), A::Error> {
        let plan: &'a AttributePlan = self.pass.plan;
        let node = self.node.map(|node| plan.node(node));
        let (own, array_slot) = (node.and_then(|node| node.rect), node.and_then(|node| node.slot));
        let element_node = node.and_then(|node| node.elements);
        let outer = match self.around {
            EnclosingArray::Space(elements) => {
                elements.corners.add(None);
                elements.rect
            }
            EnclosingArray::Object | EnclosingArray::Array(_) => None,
        };
        self.pass.enter()?;
        let mut elements = Elements { rect: own, array: array_slot, corners: Corners::default() };
        loop {
            let around = EnclosingArray::Space(&mut elements);
            let seed = ValueSeed { pass: &mut *self.pass, node: element_node, around };
            if array.next_element_seed(seed)?.is_none() {
                break;
            }
        }
        self.pass.leave();
        if let Some(rect) = elements.corners.rect() {
            for slot in [own, outer].into_iter().flatten() {
                self.pass.out.push_encoded(slot, |out| attribute::encode_rect(out, &rect));
            }
        }
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for ValueSeed<'_, '_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> std::result::Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ValueSeed<'_, '_, '_> {
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
        let plan = self.pass.plan;
        let node = self.node.map(|node| plan.node(node));
        if node.is_some_and(|node| node.rect.is_some()) || matches!(self.around, EnclosingArray::Space(_)) {
            return self.read_corners(array);
        }
        let element_node = node.and_then(|node| node.elements);
        let array_slot = node.and_then(|node| node.slot);
        self.pass.enter()?;
        loop {
            let around = array_slot.map_or(EnclosingArray::Object, EnclosingArray::Array);
            let seed = ValueSeed { pass: &mut *self.pass, node: element_node, around };
            if array.next_element_seed(seed)?.is_none() {
                self.pass.leave();
                return Ok(());
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> std::result::Result<(), A::Error> {
        if let EnclosingArray::Space(elements) = self.around {
            elements.corners.add(None);
        }
        let node = self.node.filter(|&node| !self.pass.plan.node(node).has_no_fields());
        read_fields(self.pass, node, map)
    }
}

#[cfg(test)]
#[path = "json_tests.rs"]
mod tests;
