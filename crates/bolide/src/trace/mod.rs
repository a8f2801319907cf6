//! Captured trace: what a program does with its collections, as counts by operation and form of query.
//!
//! A trace has no keys, no values and no times, so its size depends on the number of different queries alone.
//!
//! ```text
//! {"bolide_trace":1}
//! {"collection":"posts","puts":10,"deletes":0,"range_deletes":0,"gets":4,"scans":1,"other_queries":0}
//! {"collection":"posts","attributes":["user"],"condition":"equal","order":"newest","answers":"records","limit":10,"count":7}
//! ```
//!
//! The first line has the version. A line with `attributes` follows the line of its collection.

mod format;
mod recorder;

use bolide_base::{Error, ErrorKind, Result};
use bolide_index::AttributePath;
use bolide_index::advisor::Workload;

pub(crate) use recorder::{CollectionTraffic, TraceRecorder};

/// The operations of a program on a database since it was opened: [`Db::trace`](crate::Db::trace) takes it. Its `Display` is the
/// file format, lines of JSON, and `FromStr` reads it; a text of another form is an error that names the line.
///
/// ```
/// use bolide::{Components, Db, Options, Query, Trace};
/// let db = Db::open_with("db", Options::default().trace(true), Components::in_memory())?;
/// let posts = db.create_collection("posts", Default::default())?;
/// posts.put(b"1", br#"{"user":"ann"}"#)?;
/// posts.find(&Query::new().eq("user", "ann").limit(10))?;
/// let text = db.trace().expect("it was switched on").to_string();
/// let trace: Trace = text.parse()?;
/// let workload = trace.workload("posts", &"user".parse()?)?;
/// assert_eq!((workload.writes, workload.lookups, workload.limit), (0.5, 1.0, Some(10)));
/// # Ok::<(), bolide::Error>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Trace {
    /// The collections, by name.
    pub collections: Vec<CollectionTrace>,
}

/// The operations on one collection.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CollectionTrace {
    /// The name of the collection.
    pub name: String,
    /// Records that were put.
    pub puts: u64,
    /// Deletes of one key.
    pub deletes: u64,
    /// Deletes of a range of keys.
    pub range_deletes: u64,
    /// Keys that were read.
    pub gets: u64,
    /// Iterators and cursors that were opened.
    pub scans: u64,
    /// Queries by form, in no certain order.
    pub queries: Vec<TracedQuery>,
    /// Queries of forms beyond the limit of the trace: 1,024 forms, or a mebibyte of their attributes.
    pub other_queries: u64,
}

impl CollectionTrace {
    /// The number of writes.
    pub fn writes(&self) -> u64 {
        self.puts.saturating_add(self.deletes).saturating_add(self.range_deletes)
    }

    /// The number of reads: keys, scans and queries.
    pub fn reads(&self) -> u64 {
        let queries =
            self.queries.iter().fold(self.other_queries, |sum, query| sum.saturating_add(query.count));
        queries.saturating_add(self.gets).saturating_add(self.scans)
    }
}

/// The queries of one form.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TracedQuery {
    /// The attributes of its predicates, sorted; none for queries without predicates.
    pub attributes: Vec<String>,
    /// The conditions on them.
    pub condition: TracedCondition,
    /// The order of the answers.
    pub order: TracedOrder,
    /// The content of the answers.
    pub answers: TracedAnswers,
    /// The mean limit of queries whose limits have the same number of binary digits; `None` without a limit.
    pub limit: Option<u64>,
    /// The number of queries.
    pub count: u64,
}

/// Declares a class of queries with the names of its variants in the file.
macro_rules! class {
    ($(#[$of_class:meta])* $class:ident { $($(#[$of_variant:meta])* $variant:ident = $name:literal,)* }) => {
        $(#[$of_class])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum $class {
            $($(#[$of_variant])* $variant,)*
        }

        impl $class {
            pub(crate) fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            pub(crate) fn parse(name: &str) -> Option<Self> {
                match name {
                    $($name => Some(Self::$variant),)*
                    _ => None,
                }
            }
        }
    };
}

class! {
    /// The conditions of a query.
    TracedCondition {
        /// Each attribute equals a value.
        Equal = "equal",
        /// Each attribute equals a value or lies in a range.
        Range = "range",
        /// Others: windows, filters, none.
        Other = "other",
    }
}

class! {
    /// The order of the answers of a query.
    TracedOrder {
        /// The newest first.
        Newest = "newest",
        /// The oldest first.
        Oldest = "oldest",
        /// By values.
        Value = "value",
    }
}

class! {
    /// The content of the answers of a query.
    TracedAnswers {
        /// Records, or attributes of them.
        Records = "records",
        /// Keys alone.
        Keys = "keys",
        /// Their number alone.
        Count = "count",
    }
}

impl Trace {
    /// The trace of the collection with this name, if it was used.
    pub fn collection(&self, name: &str) -> Option<&CollectionTrace> {
        self.collections.iter().find(|collection| collection.name == name)
    }

    /// The workload of an attribute, for [`Collection::advise`](crate::Collection::advise): the shares of writes and of lookups with
    /// the attribute, the mean limit if most of these lookups have one, and whether most select keys alone.
    ///
    /// # Errors
    /// `NotFound` if the trace has no operation on the collection; the message lists the collections that it has.
    pub fn workload(&self, collection: &str, attribute: &AttributePath) -> Result<Workload> {
        let used = self.collection(collection).filter(|found| found.writes() > 0 || found.reads() > 0);
        let trace = used.ok_or_else(|| {
            let names: Vec<&str> = self.collections.iter().map(|found| found.name.as_str()).collect();
            let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            let what =
                format!("the trace has no operation on the collection {collection:?}; it has: {names}");
            Error::new(ErrorKind::NotFound, what)
        })?;
        let attribute = attribute.to_string();
        let (mut lookups, mut limited, mut limits, mut keys) = (0_u64, 0_u64, 0.0, 0_u64);
        for query in trace.queries.iter().filter(|query| query.attributes.contains(&attribute)) {
            lookups = lookups.saturating_add(query.count);
            if let Some(limit) = query.limit {
                limited = limited.saturating_add(query.count);
                limits += limit as f64 * query.count as f64;
            }
            if query.answers != TracedAnswers::Records {
                keys = keys.saturating_add(query.count);
            }
        }
        let share = |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
        let all = trace.writes().saturating_add(trace.reads());
        let mut workload = Workload::default();
        workload.writes = share(trace.writes(), all);
        workload.lookups = share(lookups, trace.reads());
        if lookups > 0 {
            let mean = (limits / limited.max(1) as f64).round().max(1.0);
            workload.limit = (share(limited, lookups) >= 0.5).then_some(mean as usize);
            workload.keys_only = share(keys, lookups) > 0.5;
        }
        Ok(workload)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(attribute: &str, limit: Option<u64>, answers: TracedAnswers, count: u64) -> TracedQuery {
        let attributes = vec![attribute.to_owned()];
        let (condition, order) = (TracedCondition::Equal, TracedOrder::Newest);
        TracedQuery { attributes, condition, order, answers, limit, count }
    }

    fn trace(queries: Vec<TracedQuery>) -> Trace {
        let posts =
            CollectionTrace { name: "posts".into(), puts: 60, gets: 20, queries, ..Default::default() };
        Trace { collections: vec![posts] }
    }

    #[test]
    fn shares_and_limits_are_those_of_most_lookups() {
        let user: AttributePath = "user".parse().unwrap();
        let most_limited = trace(vec![
            query("user", Some(10), TracedAnswers::Records, 12),
            query("user", None, TracedAnswers::Keys, 3),
            query("other", Some(900), TracedAnswers::Keys, 5),
        ]);
        let workload = most_limited.workload("posts", &user).unwrap();
        assert_eq!((workload.writes, workload.lookups), (0.6, 0.375));
        assert_eq!((workload.limit, workload.keys_only), (Some(10), false));
        let most_whole = trace(vec![
            query("user", None, TracedAnswers::Keys, 3),
            query("user", Some(10), TracedAnswers::Count, 2),
        ]);
        let workload = most_whole.workload("posts", &user).unwrap();
        assert_eq!((workload.limit, workload.keys_only), (None, true));
        let never = trace(Vec::new()).workload("posts", &user).unwrap();
        assert_eq!((never.writes, never.lookups, never.limit), (0.75, 0.0, Some(10)));
        let error = most_whole.workload("none", &user).unwrap_err();
        assert!(error.kind() == ErrorKind::NotFound && error.message().contains("posts"), "{error}");
    }
}
