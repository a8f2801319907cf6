//! Backends of trees: the structures that store their writes.

pub(super) mod external;
