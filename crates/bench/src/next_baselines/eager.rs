//! A secondary index in memory that contains current values alone, as in databases with a B-tree (NEXT §6.1, *Eager*).

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bolide::{AttributeExtractor, AttributePath, AttributePlan, AttributeValues, JsonExtractor, Rect, Value};
use bolide_base::SequenceNumber;
use rstar::primitives::{GeomWithData, Rectangle};
use rstar::{AABB, RTree};

use crate::error::Result;

/// The key of a record and the sequence number of its write.
type RecordVersion = (Box<[u8]>, SequenceNumber);

/// Sorted encoded values, or rectangles; each with its record.
#[derive(Debug)]
enum Tree {
    Values(BTreeSet<(Box<[u8]>, RecordVersion)>),
    Space(RTree<GeomWithData<Rectangle<[f64; 2]>, RecordVersion>>),
}

/// The tree of one attribute.
#[derive(Debug)]
pub struct EagerIndex {
    plan: AttributePlan,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    tree: Tree,
    values: AttributeValues,
    /// The window of the next query to an R-tree.
    window: Option<Rect>,
}

impl EagerIndex {
    /// An empty index.
    pub fn new(path: AttributePath) -> Self {
        let is_spatial = path.is_spatial();
        let tree = if is_spatial { Tree::Space(RTree::new()) } else { Tree::Values(BTreeSet::new()) };
        let state = State { tree, values: AttributeValues::new(), window: None };
        Self { plan: AttributePlan::new([path]), state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the values of a record.
    ///
    /// # Errors
    /// `InvalidInput` for a record that is not JSON.
    pub fn add(&self, key: &[u8], record: &[u8], sequence: SequenceNumber) -> Result<()> {
        self.change(key, record, sequence, |tree, value, written| match tree {
            Tree::Values(values) => {
                values.insert((value.into(), written));
            }
            Tree::Space(space) => {
                if let Some(rect) = rectangle(value) {
                    space.insert(GeomWithData::new(rect, written));
                }
            }
        })
    }

    /// Removes the values of a replaced record.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    pub fn remove(&self, key: &[u8], record: &[u8], sequence: SequenceNumber) -> Result<()> {
        self.change(key, record, sequence, |tree, value, written| match tree {
            Tree::Values(values) => {
                values.remove(&(value.into(), written));
            }
            Tree::Space(space) => {
                if let Some(rect) = rectangle(value) {
                    space.remove(&GeomWithData::new(rect, written));
                }
            }
        })
    }

    fn change(
        &self,
        key: &[u8],
        record: &[u8],
        sequence: SequenceNumber,
        each: impl Fn(&mut Tree, &[u8], RecordVersion),
    ) -> Result<()> {
        let mut state = self.state();
        let State { tree, values, .. } = &mut *state;
        values.clear();
        JsonExtractor.extract_into(record, &self.plan, values)?;
        values.values(0).for_each(|value| each(tree, value, (key.into(), sequence)));
        Ok(())
    }

    /// Sets the window of the next query to an R-tree.
    pub fn set_window(&self, window: Rect) {
        self.state().window = Some(window);
    }

    /// Visits the records with an encoded value from `low` on and below `end`; for an R-tree those that intersect the
    /// [window](Self::set_window).
    pub fn find(&self, low: &[u8], end: &[u8], found: &mut dyn FnMut(&[u8], SequenceNumber)) {
        let state = self.state();
        match &state.tree {
            Tree::Values(values) => {
                let from = Bound::Included((Box::from(low), (Box::default(), 0)));
                let within = values.range((from, Bound::Unbounded));
                for (_, (key, sequence)) in within.take_while(|(value, _)| **value < *end) {
                    found(key, *sequence);
                }
            }
            Tree::Space(space) => {
                let Some(window) = state.window else { return };
                let [a, b, c, d] = window.corners();
                for met in space.locate_in_envelope_intersecting(&AABB::from_corners([a, b], [c, d])) {
                    found(&met.data.0, met.data.1);
                }
            }
        }
    }

    /// The approximate memory in bytes.
    pub fn memory_bytes(&self) -> usize {
        // Keys and values are allocations of their own; nodes are two thirds full.
        match &self.state().tree {
            Tree::Values(values) => {
                let each = size_of::<(Box<[u8]>, RecordVersion)>() * 3 / 2;
                values.iter().map(|(value, (key, _))| each + value.len() + key.len()).sum()
            }
            Tree::Space(space) => {
                let each = size_of::<GeomWithData<Rectangle<[f64; 2]>, RecordVersion>>() * 3 / 2;
                space.iter().map(|one| each + one.data.0.len()).sum()
            }
        }
    }
}

/// The rectangle of an encoded value.
fn rectangle(encoded: &[u8]) -> Option<Rectangle<[f64; 2]>> {
    match Value::decode(encoded) {
        Some((Value::Rect(rect), _)) => {
            let [a, b, c, d] = rect.corners();
            Some(Rectangle::from_corners([a, b], [c, d]))
        }
        _ => None,
    }
}
