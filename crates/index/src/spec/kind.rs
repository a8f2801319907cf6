//! The index kinds of specifications.

use std::fmt;
use std::hash::{Hash, Hasher};

/// The properties of an index kind that a specification and the lookup driver depend on. The
/// [method](crate::method::IndexMethod) of the kind contains them, beside its callbacks.
#[derive(Debug)]
pub struct KindProperties {
    /// The name in specifications, unique among all kinds: lower-case letters, digits and `-`.
    pub name: &'static str,
    /// The options that a specification may have: those of this library (such as `maintenance` or `include`), which it
    /// parses, and options of the kind alone, whose text [`IndexSpec::own_option`](crate::IndexSpec::own_option) returns.
    pub options: &'static [&'static str],
    /// Whether its entries are in a tree of their own; else they are in the sstables of the records.
    pub has_tree: bool,
    /// Whether its candidates contain the attributes of the secondary key, before the included ones, if a query selects
    /// them. A kind whose cursor reads the records need not.
    pub covers_key: bool,
    /// Whether it supports points and rectangles.
    pub is_spatial: bool,
    /// The name of its validation if the option `validation` does not choose it.
    pub validation: Option<&'static str>,
}

impl KindProperties {
    /// A kind with a tree of its own, validated as the option `validation` chooses.
    pub const fn with_tree(name: &'static str, options: &'static [&'static str]) -> Self {
        Self { name, options, has_tree: true, covers_key: false, is_spatial: false, validation: None }
    }

    /// A kind in the sstables of the records, validated by the components that are newer than the candidate.
    pub const fn in_sstables(name: &'static str, options: &'static [&'static str]) -> Self {
        Self { has_tree: false, validation: Some("get-lite"), ..Self::with_tree(name, options) }
    }
}

/// The structure of an index, for example [`IndexKind::PS_TREE`].
///
/// The kinds of this library are constants. A program may [register](crate::kinds::register) further ones.
///
/// ```
/// use bolide_index::IndexKind;
/// assert_eq!(IndexKind::COMPOSITE.name(), "composite");
/// assert!(IndexKind::COMPOSITE.has_tree() && !IndexKind::NEXT.has_tree());
/// assert_eq!(IndexKind::BUILT_IN.len(), 6);
/// ```
#[derive(Clone, Copy)]
pub struct IndexKind(&'static KindProperties);

impl IndexKind {
    /// The kind with these properties.
    pub const fn of(properties: &'static KindProperties) -> Self {
        Self(properties)
    }

    /// The name in specifications.
    pub fn name(self) -> &'static str {
        self.0.name
    }

    /// Whether its entries are in a tree of their own.
    pub fn has_tree(self) -> bool {
        self.0.has_tree
    }

    /// Its properties.
    pub fn properties(self) -> &'static KindProperties {
        self.0
    }
}

/// Names are unique.
impl PartialEq for IndexKind {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for IndexKind {}

impl Hash for IndexKind {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name().hash(state);
    }
}

impl fmt::Debug for IndexKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("IndexKind").field(&self.name()).finish()
    }
}
