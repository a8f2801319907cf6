//! An index kind outside of the library: `hash`, which spreads its entries over buckets by the hash of their secondary keys.
//!
//! ```text
//! key      bucket (2, big-endian)
//!          secondary key                 concatenated encoded values of the attributes
//!          inverted sequence number (8)  big-endian
//!          primary key
//! value    empty
//! ```
//!
//! A query for one secondary key reads its entries in one bucket; any other query reads all buckets. Writes are blind:
//! validation by the table finds obsolete entries. The option `buckets` is their number, 1 to 65,536.
//!
//! It proves that a kind needs no change of the library: it uses only what is public, and one call of
//! [`bolide::kinds::register`] makes it available. The [conformance suite](crate::conformance) runs it as any other kind.

use std::fmt;
use std::sync::Once;

use bolide::kinds;
use bolide_base::checksum::hash_key;
use bolide_base::{Error, ErrorKind, Result, SequenceNumber, TreeId};
use bolide_index::costs::IndexCosts;
use bolide_index::hooks::IndexHooks;
use bolide_index::method::{IndexMethod, IndexParts, NewIndex};
use bolide_index::standalone::checked_records::{CheckedRecords, show};
use bolide_index::standalone::entry_key::{EntryKey, EntryLayout, put_sequence};
use bolide_index::standalone::secondary_key;
use bolide_index::validation::PrimaryValidator;
use bolide_index::{
    Access, Candidate, CandidateCursor, CheckedTable, Explain, ForwardCursor, IndexCheck, IndexSpec,
    IndexWrites, IndexedRecord, KindProperties, Order, ReadSource, SecondaryIndex, TreeSource, Validator,
};

/// Bytes of the number of a bucket.
const BUCKET_BYTES: usize = 2;
/// Buckets without the option.
const DEFAULT_BUCKETS: u32 = 16;
const MAX_BUCKETS: u32 = 1 << 16;

/// The kind `hash`.
pub static HASH: IndexMethod = IndexMethod {
    check: |spec| buckets_of(spec).map(drop),
    ..IndexMethod::new(PROPERTIES, |new| HashIndex::new(new).map(IndexParts::of))
};

const PROPERTIES: KindProperties =
    KindProperties { validation: Some("primary"), ..KindProperties::with_tree("hash", &["buckets"]) };

/// The kind with options, as the part of a specification after its attributes.
pub const SPECIFICATIONS: [&str; 2] = ["hash", "hash:buckets=1"];

/// Makes the kind available to specifications.
pub fn register() {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        kinds::register(&HASH).expect("no other kind has this name");
    });
}

bolide_index::index_costs! {
    /// What queries on an index of kind `hash` read.
    struct HashCosts for "hash" {
        /// Entries of other secondary keys.
        others,
        /// Entries of the secondary keys of the query.
        entries,
    }
}

impl fmt::Display for HashCosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "hash          {} entries, and {} of other values", self.entries, self.others)
    }
}

/// An index of kind `hash`; see the [module](self).
#[derive(Debug)]
struct HashIndex {
    spec: IndexSpec,
    tree: [TreeId; 1],
    layout: EntryLayout,
    buckets: u32,
}

/// The number of buckets of the index that `spec` declares.
fn buckets_of(spec: &IndexSpec) -> Result<u32> {
    let Some(text) = spec.own_option("buckets") else { return Ok(DEFAULT_BUCKETS) };
    let buckets = text.parse().ok().filter(|buckets| (1..=MAX_BUCKETS).contains(buckets));
    buckets.ok_or_else(|| {
        Error::invalid_input(format!("option buckets: `{text}` is not a number from 1 to {MAX_BUCKETS}"))
    })
}

impl HashIndex {
    fn new(new: NewIndex) -> Result<Self> {
        let (layout, buckets) = (EntryLayout::of(&new.spec), buckets_of(&new.spec)?);
        Ok(Self { spec: new.spec, tree: [new.tree], layout, buckets })
    }

    /// The prefix of all entries of `secondary_key`, up to and including it.
    fn prefix_of(&self, secondary_key: &[u8]) -> Vec<u8> {
        let bucket = (hash_key(secondary_key) % u64::from(self.buckets)) as u16;
        [&bucket.to_be_bytes()[..], secondary_key].concat()
    }

    /// The first key and the exclusive end of the entries of `secondary_key`: encoded values are prefix-free, and no write
    /// has the number 0, the inverse of which is the end.
    fn range_of(&self, secondary_key: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let start = self.prefix_of(secondary_key);
        let mut end = start.clone();
        put_sequence(&mut end, 0);
        (start, end)
    }

    /// Calls `visit` with the key of every entry of `record`, and the offset of its sequence number.
    fn for_each_entry(
        &self,
        record: &IndexedRecord<'_>,
        key: &mut Vec<u8>,
        mut visit: impl FnMut(&[u8], usize) -> Result<()>,
    ) -> Result<()> {
        secondary_key::for_each(&self.spec, record, key, |secondary_key, _| {
            let mut entry = self.prefix_of(secondary_key);
            let sequence_at = entry.len();
            put_sequence(&mut entry, record.sequence.unwrap_or(0));
            entry.extend_from_slice(record.primary_key);
            visit(&entry, sequence_at)
        })
    }

    fn parse<'k>(&self, key: &'k [u8], sequence: SequenceNumber) -> Result<EntryKey<'k>> {
        let entry = key.get(BUCKET_BYTES..).and_then(|key| self.layout.parse(key, sequence));
        entry.ok_or_else(|| {
            let what = format!("index {}: an entry has a malformed key", self.spec.name());
            Error::new(ErrorKind::Corruption, what)
        })
    }
}

impl IndexHooks for HashIndex {}

impl<S: ReadSource> SecondaryIndex<S> for HashIndex {
    fn spec(&self) -> &IndexSpec {
        &self.spec
    }

    fn trees(&self) -> &[TreeId] {
        &self.tree
    }

    fn derive(&self, record: &IndexedRecord<'_>, key: &mut Vec<u8>, out: &mut dyn IndexWrites) -> Result<()> {
        self.for_each_entry(record, key, |entry, sequence_at| {
            out.put(self.tree[0], entry, &[], record.sequence.is_none().then_some(sequence_at))
        })
    }

    fn candidates<'v>(
        &'v self,
        access: &'v Access,
        _order: Order,
        view: &'v S,
    ) -> Result<Box<dyn CandidateCursor + 'v>> {
        let tree = view.tree(self.tree[0])?;
        let (low, _) = access.bounds();
        let entries = if access.is_point() {
            let (start, end) = self.range_of(low);
            tree.cursor(&start, Some(&end))?
        } else {
            tree.cursor(&[], None)?
        };
        Ok(Box::new(HashCursor { index: self, access, entries, started: false, costs: HashCosts::default() }))
    }

    /// Entries of other values count too, unless the access is to one.
    fn estimate(&self, access: &Access, view: &S) -> Result<Option<u64>> {
        let tree = view.tree(self.tree[0])?;
        let (start, end) = self.range_of(access.bounds().0);
        match access.is_point() {
            true => tree.estimate(&start, Some(&end)).map(Some),
            false => tree.estimate(&[], None).map(Some),
        }
    }

    fn validator(&self) -> &dyn Validator<S::Tree> {
        &PrimaryValidator
    }

    fn check(&self, view: &S, table: &CheckedTable<'_>, report: &mut IndexCheck) -> Result<()> {
        let (own, records) = (view.tree(self.tree[0])?, view.tree(table.tree)?);
        let mut checked = CheckedRecords::new(&self.spec, table)?;
        let mut key = Vec::new();
        checked.for_each(view, |record| {
            report.records += 1;
            self.for_each_entry(record, &mut key, |entry, _| {
                if own.newest_sequence(entry)? != record.sequence {
                    report.missing += 1;
                    let (name, key) = (self.spec.name(), show(record.primary_key));
                    report.describe(|| format!("index {name} lacks an entry of key {key:?}"));
                }
                Ok(())
            })
        })?;
        let mut entries = own.cursor(&[], None)?;
        entries.seek_to_first()?;
        while entries.valid() {
            report.entries += 1;
            let entry = self.parse(entries.key(), entries.sequence())?;
            match records.get(entry.primary_key)? {
                Some((sequence, record)) if sequence == entry.sequence => {
                    let record = checked.indexed(entry.primary_key, sequence, &record)?;
                    let mut found = false;
                    self.for_each_entry(&record, &mut key, |entry, _| {
                        found |= entry == entries.key();
                        Ok(())
                    })?;
                    report.wrong += u64::from(!found);
                }
                _ => report.stale += 1,
            }
            entries.next()?;
        }
        Ok(())
    }
}

/// Reads one secondary key, or all entries of which it skips those outside of the access.
struct HashCursor<'v, C> {
    index: &'v HashIndex,
    access: &'v Access,
    entries: C,
    started: bool,
    costs: HashCosts,
}

impl<C: ForwardCursor + Send> CandidateCursor for HashCursor<'_, C> {
    fn next(&mut self) -> Result<Option<Candidate<'_>>> {
        let (low, end) = self.access.bounds();
        loop {
            match std::mem::replace(&mut self.started, true) {
                false => self.entries.seek_to_first()?,
                true => self.entries.next()?,
            }
            if !self.entries.valid() {
                return Ok(None);
            }
            let key = self.index.parse(self.entries.key(), self.entries.sequence())?.secondary_key;
            if low <= key && key < end {
                break;
            }
            self.costs.others += 1;
        }
        self.costs.entries += 1;
        let entry = self.index.parse(self.entries.key(), self.entries.sequence())?;
        let mut candidate = Candidate::new(entry.primary_key, entry.sequence);
        candidate.order_value = self.access.order_value(entry.secondary_key);
        candidate.repeated = !self.access.is_point();
        Ok(Some(candidate))
    }

    fn sequence_bound(&self) -> SequenceNumber {
        SequenceNumber::MAX
    }

    /// Entries of one secondary key are sorted newest first.
    fn order(&self) -> Option<Order> {
        self.access.is_point().then_some(Order::Newest)
    }

    fn report(&self, explain: &mut Explain) {
        explain.add_costs(IndexCosts::of(&self.costs));
    }
}

#[cfg(test)]
mod tests {
    use bolide::{CollectionOptions, Components, Db, IndexKind, Options, Query};

    use super::*;

    #[test]
    fn a_registered_kind_is_like_any_other() -> Result<()> {
        register();
        assert_eq!(kinds::register(&HASH)?, HASH.kind());
        let db = Db::open_with("db", Options::default(), Components::in_memory())?;
        let spec: IndexSpec = "color:hash:buckets=7".parse()?;
        assert_eq!(
            (spec.to_string(), spec.validation_name()),
            ("color:hash:buckets=7".to_owned(), "primary")
        );
        let cars = db.create_collection("cars", CollectionOptions::json().index(spec))?;
        for (key, color) in [("1", "red"), ("2", "blue"), ("3", "red")] {
            cars.put(key.as_bytes(), format!(r#"{{"color":"{color}"}}"#).as_bytes())?;
        }
        let red = cars.find(&Query::new().eq("color", "red"))?;
        assert_eq!(red.iter().map(|answer| &answer.key[..]).collect::<Vec<_>>(), [b"3", b"1"]);
        assert_eq!(red.explain().costs_of::<HashCosts>().entries, 2);
        assert!(red.explain().to_string().contains("hash          2 entries"), "{}", red.explain());
        Ok(())
    }

    fn never(_: NewIndex) -> Result<IndexParts> {
        Err(Error::internal("never created"))
    }

    #[test]
    fn invalid_kinds_and_options_are_refused() -> Result<()> {
        register();
        static OTHER: IndexMethod = IndexMethod::new(KindProperties::with_tree("hash", &[]), never);
        assert_eq!(kinds::register(&OTHER).unwrap_err().kind(), ErrorKind::Conflict);
        static UNNAMED: IndexMethod = IndexMethod::new(KindProperties::with_tree("no:name", &[]), never);
        assert_eq!(kinds::register(&UNNAMED).unwrap_err().kind(), ErrorKind::InvalidInput);
        let db = Db::open_with("db", Options::default(), Components::in_memory())?;
        let refused = db.create_collection("c", CollectionOptions::json().index("a:hash:buckets=0".parse()?));
        let error = refused.unwrap_err();
        assert!(error.message().contains("option buckets: `0` is not a number from 1 to 65536"), "{error}");
        let spatial = "point(x,y):hash".parse::<IndexSpec>().unwrap_err();
        assert!(spatial.message().contains("spatial"), "{spatial}");
        assert_ne!(HASH.kind(), IndexKind::COMPOSITE);
        static COVERING: IndexMethod = IndexMethod::new(
            KindProperties { covers_key: true, ..KindProperties::with_tree("covering", &[]) },
            never,
        );
        assert_eq!(kinds::register(&COVERING).unwrap_err().kind(), ErrorKind::Unsupported);
        let escaped: IndexSpec = r"a:hash:buckets=7\:\,".parse()?;
        assert_eq!(escaped.own_option("buckets"), Some("7:,"));
        assert_eq!(escaped.to_string().parse::<IndexSpec>()?, escaped);
        Ok(())
    }
}
