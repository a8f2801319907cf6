//! The secondary keys of a record in an index: all combinations of the values of its attributes.

use crate::attribute::TAG_ABSENT;
use crate::attribute_plan::{AttributeValues, ValueSlot};

/// The secondary keys of one record, as combinations: one value per attribute, concatenated. Without a value for the first
/// attribute there are none. Another absent attribute is encoded as a byte that sorts before all values.
#[derive(Clone, Copy)]
pub(crate) struct SecondaryKeys<'r> {
    pub(crate) values: &'r AttributeValues,
    pub(crate) slots: &'r [ValueSlot],
}

impl<'r> SecondaryKeys<'r> {
    /// Number of keys.
    pub(crate) fn count(&self) -> usize {
        let mut keys = 1_usize;
        for (position, slot) in self.slots.iter().enumerate() {
            let values = self.values.values(*slot).len();
            if values == 0 && position == 0 {
                return 0;
            }
            keys = keys.saturating_mul(values.max(1));
        }
        keys
    }

    /// The key, if there is one attribute with one value.
    #[inline]
    pub(crate) fn only(&self) -> Option<&'r [u8]> {
        let [slot] = self.slots else { return None };
        let mut values = self.values.values(*slot);
        values.next().filter(|_| values.len() == 0)
    }

    /// The values of the first attribute.
    pub(crate) fn first_values(&self) -> impl Iterator<Item = &'r [u8]> + use<'r> {
        let values = self.values;
        self.slots.first().into_iter().flat_map(move |slot| values.values(*slot))
    }

    /// Replaces `out` by the key number `ordinal`.
    pub(crate) fn write(&self, ordinal: usize, out: &mut Vec<u8>) {
        let mut rest = ordinal;
        self.write_chosen(out, |count| {
            let chosen = rest % count;
            rest /= count;
            chosen
        });
    }

    /// Writes the smallest key to `out`.
    pub(crate) fn write_smallest(&self, out: &mut Vec<u8>) {
        self.write_chosen(out, |_| 0);
    }

    /// Writes the largest key to `out`.
    pub(crate) fn write_largest(&self, out: &mut Vec<u8>) {
        self.write_chosen(out, |count| count - 1);
    }

    fn write_chosen(&self, out: &mut Vec<u8>, mut choose: impl FnMut(usize) -> usize) {
        out.clear();
        for slot in self.slots {
            let mut values = self.values.values(*slot);
            match values.len() {
                0 => out.push(TAG_ABSENT),
                count => out.extend_from_slice(values.nth(choose(count)).unwrap_or_default()),
            }
        }
    }

    /// The length of the longest key in bytes.
    pub(crate) fn longest(&self) -> usize {
        let longest = |slot: &ValueSlot| self.values.values(*slot).map(<[u8]>::len).max().unwrap_or(1);
        self.slots.iter().map(longest).sum()
    }

    /// Writes the smallest key from `low` on and below `end` to `out`, the largest if `descending`; false if there is none.
    /// Tries only values that can lead into the range, whatever the number of combinations.
    pub(crate) fn find(&self, low: &[u8], end: &[u8], descending: bool, out: &mut Vec<u8>) -> bool {
        out.clear();
        self.values_exist() && self.find_from(0, low, end, descending, out)
    }

    fn values_exist(&self) -> bool {
        self.slots.first().is_some_and(|slot| self.values.values(*slot).len() > 0)
    }

    fn find_from(
        &self,
        position: usize,
        low: &[u8],
        end: &[u8],
        descending: bool,
        out: &mut Vec<u8>,
    ) -> bool {
        let Some(slot) = self.slots.get(position) else {
            return low <= out.as_slice() && out.as_slice() < end;
        };
        let mark = out.len();
        let values = self.values.values(*slot);
        let count = values.len();
        for ordinal in 0..count.max(1) {
            let chosen = if descending { count.saturating_sub(ordinal + 1) } else { ordinal };
            match values.clone().nth(chosen) {
                Some(value) => out.extend_from_slice(value),
                None => out.push(TAG_ABSENT),
            }
            let leads_there = out.as_slice() < end && (out.as_slice() >= low || low.starts_with(out));
            if leads_there && self.find_from(position + 1, low, end, descending, out) {
                return true;
            }
            out.truncate(mark);
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attribute::Value;

    fn values(of: &[&[i64]]) -> AttributeValues {
        let mut values = AttributeValues::new();
        for (slot, numbers) in of.iter().enumerate() {
            for &number in *numbers {
                values.push(slot, &Value::Int(number)).unwrap();
            }
        }
        values.finish();
        values
    }

    #[test]
    fn find_equals_a_search_in_all_combinations() {
        let shapes: [&[&[i64]]; 5] =
            [&[&[1, 5, 9], &[2, 4]], &[&[3]], &[&[], &[1]], &[&[7, 8], &[]], &[&[1], &[2], &[3, 4]]];
        let bounds: Vec<Vec<u8>> = (0..11)
            .flat_map(|number| {
                let mut one = Vec::new();
                Value::Int(number).encode(&mut one).unwrap();
                let mut two = one.clone();
                Value::Int(3).encode(&mut two).unwrap();
                [one, two]
            })
            .collect();
        for shape in shapes {
            let values = values(shape);
            let slots: Vec<ValueSlot> = (0..shape.len()).collect();
            let keys = SecondaryKeys { values: &values, slots: &slots };
            let mut all: Vec<Vec<u8>> = Vec::new();
            for ordinal in 0..keys.count() {
                let mut key = Vec::new();
                keys.write(ordinal, &mut key);
                all.push(key);
            }
            all.sort();
            let mut out = Vec::new();
            if let (Some(first), Some(last)) = (all.first(), all.last()) {
                keys.write_smallest(&mut out);
                assert_eq!(&out, first);
                keys.write_largest(&mut out);
                assert_eq!(&out, last);
                assert_eq!(keys.longest(), all.iter().map(Vec::len).max().unwrap());
            }
            for low in &bounds {
                for end in &bounds {
                    let mut within = all.iter().filter(|key| low <= key && *key < end);
                    let smallest = within.clone().next();
                    assert_eq!(keys.find(low, end, false, &mut out).then_some(&out), smallest);
                    let largest = within.next_back();
                    assert_eq!(keys.find(low, end, true, &mut out).then_some(&out), largest);
                }
            }
        }
    }
}
