//! Secondary indexes of Bolide and the lookup driver.
//!
//! An index proposes [candidates](candidate); the [driver](lookup) decides. An index turns writes into entries that join the
//! same atomic batch, and the predicates of a query into a stream of `(primary key, sequence number)`. The driver, the same
//! for all kinds, retains the first candidates, validates each at the view of the query, fetches records and evaluates the
//! predicates on them. So all kinds of index return the same answers as a scan of the table.
//!
//! ```text
//! put     record → extractor → values → SecondaryIndex::derive → batch → commit → SecondaryIndex::stage
//! query   Query → Access → SecondaryIndex::candidates → TopK → Validator → table → predicates → Row
//! ```
#![forbid(unsafe_code)]

pub mod access;
pub mod advisor;
pub mod attribute;
pub mod attribute_plan;
pub mod candidate;
pub mod check;
pub mod compiled_query;
mod condition_set;
pub mod costs;
pub mod cursor_token;
pub mod embedded;
pub mod explain;
mod explain_json;
pub mod extractor;
pub mod fetch;
pub mod figures;
pub mod filter;
pub mod hooks;
pub mod in_sstable;
pub mod json;
mod json_names;
mod json_scan;
pub mod kinds;
pub mod lookup;
pub mod method;
pub mod newest_keys;
pub mod next;
pub mod path;
pub mod predicate;
pub mod ps_tree;
pub mod ps_tree_index;
pub mod query;
mod query_memory;
mod recent_scan;
mod record_check;
mod record_parts;
mod record_query;
mod scan;
pub mod secondary_index;
mod short_bytes;
pub mod source;
pub mod space;
pub mod spec;
pub mod standalone;
mod store_source;
mod sync;
mod top_k;
pub mod validation;
pub mod version_table;

#[cfg(test)]
mod model;

pub use access::Access;
pub use attribute::Value;
pub use attribute_plan::{AttributePlan, AttributeValues, ValueSlot};
pub use candidate::{Candidate, CandidateCursor, CandidateOrigin};
pub use check::{CheckedTable, IndexCheck};
pub use compiled_query::CompiledQuery;
pub use condition_set::ConditionSet;
pub use cursor_token::CursorToken;
pub use embedded::{EmbeddedCosts, EmbeddedFigures, EmbeddedIndex};
pub use explain::{Alternative, Explain};
pub use extractor::AttributeExtractor;
pub use fetch::{FetchCosts, FetchOptions, FetchPool, FetchPoolStats};
pub use filter::Filter;
pub use in_sstable::{SstableIndex, TableCollectors};
pub use json::JsonExtractor;
pub use lookup::{
    AnswerProgress, Lookup, LookupOptions, NewestRows, PlannedLookup, QueryEstimate, Row, RowCursor,
    RowRecord, RowSource, newest_rows,
};
pub use newest_keys::{FetchStatistics, NewestKeys, NewestQuery, NewestStatistics};
pub use next::{NextCosts, NextFigures, NextIndex};
pub use path::AttributePath;
pub use predicate::{Condition, Predicate, ValueRange};
pub use ps_tree_index::{PsCosts, PsTreeIndex};
pub use query::{Order, Projection, Query, SortDirection};
pub use record_check::{RecordCheck, check_record};
pub use record_parts::{each_record_part, record_parts};
pub use record_query::{Rank, RecordQuery};
pub use secondary_index::{
    DeletedRange, IndexWrites, IndexedRecord, Retraction, SecondaryIndex, StagedBatch, StagedChange,
    StaleEntry, slots_of,
};
pub use source::{EntryCursor, ForwardCursor, ReadSource, TreeSource};
pub use space::{Point, Rect};
pub use spec::{
    EntryOrder, GlobalIndexUse, IndexKind, IndexSpec, KindProperties, Maintenance, RepairStrategy, Split,
    ValidationStrategy,
};
pub use standalone::composite::CompositeIndex;
pub use standalone::lazy::LazyIndex;
pub use validation::{KeyIndex, Validator, Verdict};
