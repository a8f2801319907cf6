//! Secondary indexes of Bolide and the one lookup driver.
#![forbid(unsafe_code)]

pub mod attribute;
pub mod attribute_plan;
pub mod extractor;
pub mod json;
pub mod path;
pub mod predicate;
pub mod query;
pub mod spec;

pub use attribute::Value;
pub use attribute_plan::{AttributePlan, AttributeValues, Slot};
pub use extractor::AttributeExtractor;
pub use json::JsonExtractor;
pub use path::AttributePath;
pub use predicate::{Condition, Predicate, ValueRange};
pub use query::{CompiledQuery, Order, Projection, Query};
pub use spec::{IndexKind, IndexSpec, Maintenance};
