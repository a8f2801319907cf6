//! The set of attributes to extract from a record, compiled into a trie of paths.

use bolide_base::Result;

use crate::attribute::{self, Value};
use crate::path::{AttributePath, PathShape, PathStep};
use crate::space::Rect;

/// Maximum memory of each of the two buffers of [`AttributeValues`] that is retained for the next record, in bytes.
const MAX_RETAINED_BYTES: usize = 1 << 20;

/// The number of a path in an [`AttributePlan`], from 0.
pub type ValueSlot = usize;

/// First slot of the coordinates of points during the extraction: two consecutive slots per slot of a point.
const COORDINATES: ValueSlot = 1 << 31;

/// A set of attribute paths, each with a [`ValueSlot`], for extraction in one pass over a record.
///
/// ```
/// use bolide_index::AttributePlan;
/// let plan = AttributePlan::new(["a.b".parse()?, "c".parse()?, "a.b".parse()?]);
/// assert_eq!(plan.paths().len(), 2);
/// assert_eq!(plan.slot(&"c".parse()?), Some(1));
/// # Ok::<(), bolide_base::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct AttributePlan {
    paths: Vec<AttributePath>,
    /// The trie; node 0 is the record itself.
    nodes: Vec<PathNode>,
    /// Whether a path is a point.
    has_points: bool,
}

/// A location in a record that a path passes or ends at.
#[derive(Debug, Clone, Default)]
pub(crate) struct PathNode {
    /// The fields that continue a path, with their nodes.
    fields: Vec<(Box<str>, PathNodeId)>,
    /// The node of the elements, if a path continues with `[*]`.
    pub(crate) elements: Option<PathNodeId>,
    /// The slot of the path that ends here.
    pub(crate) slot: Option<ValueSlot>,
    /// The slot of the path of rectangles that ends here.
    pub(crate) rect: Option<ValueSlot>,
    /// The coordinate slots of the points with a coordinate here.
    pub(crate) coordinates: Vec<ValueSlot>,
}

pub(crate) type PathNodeId = usize;

/// The node of the record itself.
pub(crate) const ROOT: PathNodeId = 0;

impl AttributePlan {
    /// Compiles `paths`; repeated paths share one slot.
    pub fn new(paths: impl IntoIterator<Item = AttributePath>) -> Self {
        let mut plan = Self { paths: Vec::new(), nodes: vec![PathNode::default()], has_points: false };
        for path in paths {
            plan.add(path);
        }
        plan
    }

    /// The paths, by slot.
    pub fn paths(&self) -> &[AttributePath] {
        &self.paths
    }

    /// The slot of `path`.
    pub fn slot(&self, path: &AttributePath) -> Option<ValueSlot> {
        self.paths.iter().position(|known| known == path)
    }

    pub(crate) fn node(&self, id: PathNodeId) -> &PathNode {
        &self.nodes[id]
    }

    fn add(&mut self, path: AttributePath) {
        if self.paths.contains(&path) {
            return;
        }
        let slot = self.paths.len();
        match path.shape() {
            PathShape::Scalar => {
                let node = self.reach(path.steps());
                self.nodes[node].slot = Some(slot);
            }
            PathShape::Rect => {
                let node = self.reach(path.steps());
                self.nodes[node].rect = Some(slot);
            }
            PathShape::Point(second) => {
                self.has_points = true;
                let coordinates = COORDINATES + 2 * slot;
                for (steps, coordinate) in [(path.steps(), coordinates), (second, coordinates + 1)] {
                    let node = self.reach(steps);
                    self.nodes[node].coordinates.push(coordinate);
                }
            }
        }
        self.paths.push(path);
    }

    /// The node at the end of `steps`.
    fn reach(&mut self, steps: &[PathStep]) -> PathNodeId {
        steps.iter().fold(ROOT, |node, step| self.child(node, step))
    }

    /// Combines the extracted coordinates into points.
    #[inline]
    pub(crate) fn join_points(&self, values: &mut AttributeValues) {
        if self.has_points {
            values.join_points();
        }
    }

    fn child(&mut self, parent: PathNodeId, step: &PathStep) -> PathNodeId {
        let new = self.nodes.len();
        let node = &mut self.nodes[parent];
        let known = match step {
            PathStep::Field(name) => {
                node.fields.iter().find(|(field, _)| **field == **name).map(|(_, id)| *id)
            }
            PathStep::Elements => node.elements,
        };
        if let Some(known) = known {
            return known;
        }
        match step {
            PathStep::Field(name) => node.fields.push(((**name).into(), new)),
            PathStep::Elements => node.elements = Some(new),
        }
        self.nodes.push(PathNode::default());
        new
    }
}

impl PathNode {
    /// True if no path goes on through an object here.
    pub(crate) fn has_no_fields(&self) -> bool {
        self.fields.is_empty()
    }

    /// The node of the field `name`.
    #[inline]
    pub(crate) fn field(&self, name: &str) -> Option<PathNodeId> {
        // Records have few indexed fields: a scan over lengths and bytes is faster than hashing the name.
        self.fields.iter().find(|(field, _)| **field == *name).map(|(_, node)| *node)
    }
}

/// The encoded values of a record at each path of a plan. Reused from record to record, so that extraction usually
/// allocates nothing.
///
/// A slot has no value if the attribute is absent, one for a scalar, several for an array.
#[derive(Debug, Clone, Default)]
pub struct AttributeValues {
    bytes: Vec<u8>,
    entries: Vec<ValueSpan>,
}

#[derive(Debug, Clone, Copy)]
struct ValueSpan {
    slot: u32,
    start: u32,
    end: u32,
}

impl AttributeValues {
    /// No values.
    pub fn new() -> Self {
        Self::default()
    }

    /// Removes all values. Retains the memory up to a limit.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(MAX_RETAINED_BYTES);
        self.entries.clear();
        self.entries.shrink_to(MAX_RETAINED_BYTES / size_of::<ValueSpan>());
    }

    /// Adds `value` to the values at `slot`. Repeated values of one slot count once.
    ///
    /// # Errors
    /// `InvalidInput` for NaN.
    pub fn push(&mut self, slot: ValueSlot, value: &Value) -> Result<()> {
        let mut refused = Ok(());
        self.push_encoded(slot, |out| refused = value.encode(out));
        if refused.is_err() {
            self.entries.pop();
        }
        refused
    }

    /// The distinct encoded values at `slot`, in ascending order; see [`Value::decode`].
    #[inline]
    pub fn values(&self, slot: ValueSlot) -> impl ExactSizeIterator<Item = &[u8]> + Clone {
        let start = self.entries.partition_point(|entry| (entry.slot as usize) < slot);
        let len = self.entries[start..].iter().take_while(|entry| entry.slot as usize == slot).count();
        self.entries[start..start + len].iter().map(|entry| self.encoded(entry))
    }

    /// Adds a value for `slot` whose bytes `encode` appends.
    #[inline]
    pub(crate) fn push_encoded(&mut self, slot: ValueSlot, encode: impl FnOnce(&mut Vec<u8>)) {
        let start = self.bytes.len() as u32;
        encode(&mut self.bytes);
        self.entries.push(ValueSpan { slot: slot as u32, start, end: self.bytes.len() as u32 });
    }

    /// Adds a coordinate for a coordinate slot of the plan.
    pub(crate) fn push_coordinate(&mut self, coordinate: ValueSlot, value: f64) {
        self.push_encoded(coordinate, |out| out.extend_from_slice(&value.to_le_bytes()));
    }

    /// Replaces the coordinates of each point by the point, if both are present.
    fn join_points(&mut self) {
        let is_coordinate = |entry: &ValueSpan| entry.slot as ValueSlot >= COORDINATES;
        for position in 0..self.entries.len() {
            let first = self.entries[position];
            if !is_coordinate(&first) || !first.slot.is_multiple_of(2) {
                continue;
            }
            let second = self.entries.iter().find(|entry| entry.slot == first.slot + 1);
            let x = self.coordinate(&first);
            let y = second.and_then(|second| self.coordinate(second));
            if let (Some(x), Some(y)) = (x, y)
                && let Some(point) = Rect::valid([x, y, x, y])
            {
                let slot = (first.slot as ValueSlot - COORDINATES) / 2;
                self.push_encoded(slot, |out| attribute::encode_rect(out, &point));
            }
        }
        self.entries.retain(|entry| !is_coordinate(entry));
    }

    fn coordinate(&self, entry: &ValueSpan) -> Option<f64> {
        self.bytes.get(entry.start as usize..)?.first_chunk().map(|bytes| f64::from_le_bytes(*bytes))
    }

    /// Sorts by slot and value and removes repeated values.
    pub(crate) fn finish(&mut self) {
        let sorted = self.entries.windows(2).all(|pair| pair[0].slot < pair[1].slot);
        if sorted {
            return;
        }
        let bytes = &self.bytes;
        let value = |entry: &ValueSpan| &bytes[entry.start as usize..entry.end as usize];
        self.entries.sort_unstable_by(|left, right| {
            left.slot.cmp(&right.slot).then_with(|| value(left).cmp(value(right)))
        });
        self.entries.dedup_by(|left, right| left.slot == right.slot && value(left) == value(right));
    }

    #[inline]
    fn encoded(&self, entry: &ValueSpan) -> &[u8] {
        &self.bytes[entry.start as usize..entry.end as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_sorted_and_distinct_per_slot() {
        let mut values = AttributeValues::new();
        for (slot, value) in [(2, 5), (0, 9), (2, 3), (2, 5), (0, 9)] {
            values.push(slot, &Value::Int(value)).unwrap();
        }
        assert!(values.push(1, &Value::Float(f64::NAN)).is_err());
        values.finish();
        let decoded = |slot| -> Vec<Value> {
            values.values(slot).map(|bytes| Value::decode(bytes).unwrap().0).collect()
        };
        assert_eq!(decoded(0), [Value::Int(9)]);
        assert!(decoded(1).is_empty());
        assert_eq!(decoded(2), [Value::Int(3), Value::Int(5)]);
        assert!(decoded(3).is_empty());
    }
}
