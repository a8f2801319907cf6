//! The projected fields of a record, as a tree of names, and the prediction of the next name.
//!
//! Records of a collection mostly have the same fields in the same order. So an object of the tree stores the names that
//! it has met, each with the one that followed it last: the next name is compared with the predicted one as bytes,
//! quotes and colon included, and is searched only if that fails.

use std::collections::HashMap;

/// Maximum number of names of an object that are stored for prediction.
const MAX_KNOWN_NAMES: usize = 128;
/// Maximum length of a stored name, in bytes.
const MAX_KNOWN_NAME_BYTES: usize = 64;

/// What to do with the value of a field.
#[derive(Clone, Copy, Default)]
pub(crate) struct FieldTarget {
    /// The column of the value.
    pub(crate) column: Option<u32>,
    /// The object of the tree, if fields inside of the value are projected.
    pub(crate) object: Option<u32>,
}

impl FieldTarget {
    pub(crate) fn is_skipped(self) -> bool {
        self.column.is_none() && self.object.is_none()
    }
}

/// The tree; its first object is the record.
pub(crate) struct Projection {
    objects: Vec<ProjectedObject>,
}

#[derive(Default)]
struct ProjectedObject {
    fields: HashMap<Vec<u8>, FieldTarget>,
    known: Vec<KnownName>,
}

/// A name with its quotes and its colon.
struct KnownName {
    token: Vec<u8>,
    /// The first bytes of the token, and which bits of a word of the record they are compared with.
    head: u128,
    mask: u128,
    target: FieldTarget,
    /// The name that followed last.
    next: u32,
}

/// Bytes of a token that are compared at once.
const HEAD_BYTES: usize = size_of::<u128>();

impl KnownName {
    fn new(token: &[u8], target: FieldTarget, next: u32) -> Self {
        let (mut head, mut mask) = ([0; HEAD_BYTES], [0; HEAD_BYTES]);
        for ((byte, bits), of_token) in head.iter_mut().zip(&mut mask).zip(token) {
            (*byte, *bits) = (*of_token, 0xff);
        }
        let (head, mask) = (u128::from_le_bytes(head), u128::from_le_bytes(mask));
        Self { token: token.to_vec(), head, mask, target, next }
    }

    /// Whether `rest` starts with the token.
    #[inline]
    fn starts(&self, rest: &[u8]) -> bool {
        match rest.first_chunk::<HEAD_BYTES>() {
            Some(word) => {
                (u128::from_le_bytes(*word) ^ self.head) & self.mask == 0
                    && (self.token.len() <= HEAD_BYTES || rest.starts_with(&self.token))
            }
            None => rest.starts_with(&self.token),
        }
    }
}

/// A position in the order of the names of an object.
#[derive(Clone, Copy, Default)]
pub(crate) struct NamePosition {
    /// The name before, plus one; 0 at the start of the object and after names that are not stored.
    previous: u32,
    predicted: u32,
}

impl Projection {
    pub(crate) fn new<'p>(paths: impl IntoIterator<Item = (&'p [String], usize)>) -> Self {
        let mut projection = Self { objects: vec![ProjectedObject::default()] };
        for (path, column) in paths {
            projection.add(path, column);
        }
        projection
    }

    fn add(&mut self, path: &[String], column: usize) {
        let mut object = 0;
        for (at, name) in path.iter().enumerate() {
            let is_last = at + 1 == path.len();
            let next = self.objects.len() as u32;
            let Some(node) = self.objects.get_mut(object) else { return };
            let target = node.fields.entry(name.clone().into_bytes()).or_default();
            if is_last {
                target.column = Some(column as u32);
                return;
            }
            let is_new = target.object.is_none();
            object = *target.object.get_or_insert(next) as usize;
            if is_new {
                self.objects.push(ProjectedObject::default());
            }
        }
    }

    /// The target of the field whose name starts `rest`, and the length of the name with quotes and colon, if the name is
    /// stored.
    #[inline]
    pub(crate) fn predicted(
        &mut self,
        object: u32,
        position: &mut NamePosition,
        rest: &[u8],
    ) -> Option<(FieldTarget, usize)> {
        let node = self.objects.get_mut(object as usize)?;
        let is_at = |known: &KnownName| known.starts(rest);
        let found = match node.known.get(position.predicted as usize) {
            Some(known) if is_at(known) => position.predicted,
            _ => {
                let found = node.known.iter().position(is_at)? as u32;
                if let Some(previous) = position.previous.checked_sub(1) {
                    node.known.get_mut(previous as usize)?.next = found;
                }
                found
            }
        };
        let known = node.known.get(found as usize)?;
        *position = NamePosition { previous: found + 1, predicted: known.next };
        Some((known.target, known.token.len()))
    }

    /// The target of the field `name`. Stores it if its quoted text with the colon is `token`.
    pub(crate) fn target(
        &mut self,
        object: u32,
        position: &mut NamePosition,
        name: &[u8],
        token: Option<&[u8]>,
    ) -> FieldTarget {
        let Some(node) = self.objects.get_mut(object as usize) else { return FieldTarget::default() };
        let target = node.fields.get(name).copied().unwrap_or_default();
        let is_stored = node.known.len() < MAX_KNOWN_NAMES && name.len() <= MAX_KNOWN_NAME_BYTES;
        match token.filter(|_| is_stored) {
            Some(token) => {
                let added = node.known.len() as u32;
                if let Some(previous) =
                    position.previous.checked_sub(1).and_then(|at| node.known.get_mut(at as usize))
                {
                    previous.next = added;
                }
                node.known.push(KnownName::new(token, target, added + 1));
                *position = NamePosition { previous: added + 1, predicted: added + 1 };
            }
            None => *position = NamePosition::default(),
        }
        target
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_compared_as_a_whole() {
        for len in 1..40 {
            let name: Vec<u8> = (0..len).map(|at| b'a' + (at % 26) as u8).collect();
            let token = [b"\"", &name[..], b"\":"].concat();
            let known = KnownName::new(&token, FieldTarget::default(), 0);
            for behind in [&b""[..], b"1", b"\"a long value, longer than the word\""] {
                let rest = [&token[..], behind].concat();
                assert!(known.starts(&rest));
                for at in 0..token.len() {
                    let mut other = rest.clone();
                    other[at] ^= 0x20;
                    assert!(!known.starts(&other), "{len} {at}");
                    assert!(!known.starts(&rest[..at]));
                }
            }
        }
    }
}
