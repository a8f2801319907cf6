//! Advice on which index an attribute should have.

use bolide_base::Result;
use bolide_index::advisor::{Advice, AttributeProfile, AttributeProfiler, Workload, advise};
use bolide_index::{AttributePath, AttributePlan, AttributeValues};
use bolide_lsm::Bounds;

use crate::handle::Collection;

impl Collection {
    /// Measures an attribute: how many records have it, how many values there are, how often they recur,
    /// and how they follow the order of writes. Reads the whole collection once, in bounded memory.
    ///
    /// # Errors
    /// `InvalidInput` for a collection of bytes without an extractor; `Corruption` or `Io` from reading.
    ///
    /// ```
    /// use bolide::{Components, Db, Options};
    /// let db = Db::open_with("db", Options::default(), Components::in_memory())?;
    /// let posts = db.create_collection("posts", Default::default())?;
    /// posts.put(b"1", br#"{"user":"ann"}"#)?;
    /// posts.put(b"2", br#"{"text":"no user"}"#)?;
    /// let profile = posts.profile(&"user".parse()?)?;
    /// assert_eq!((profile.records, profile.with_attribute), (2, 1));
    /// # Ok::<(), bolide::Error>(())
    /// ```
    pub fn profile(&self, attribute: &AttributePath) -> Result<AttributeProfile> {
        self.state.check_live()?;
        let indexes = self.state.indexes();
        let extractor = indexes.extractor()?;
        let plan = AttributePlan::new([attribute.clone()]);
        let view = self.handle.engine.read_view();
        let mut records = view.cursor(self.state.tree, Bounds::all())?;
        let mut values = AttributeValues::new();
        let mut profiler = AttributeProfiler::new();
        records.seek_to_first()?;
        while records.valid() {
            // A malformed record has no values.
            extractor.extract_stored(records.value(), &plan, &mut values)?;
            let found = values.values(0);
            profiler.add(records.key(), records.sequence(), records.value().len(), found);
            records.next()?;
        }
        Ok(profiler.finish())
    }

    /// Advises an index for `attribute` under `workload`, with the reasons, by the decision tree of LevelDB++
    /// (Figure 2) and what [`profile`](Self::profile) measures.
    ///
    /// # Errors
    /// As [`profile`](Self::profile).
    ///
    /// ```
    /// use bolide::advisor::Workload;
    /// use bolide::{Components, Db, Options};
    /// let db = Db::open_with("db", Options::default(), Components::in_memory())?;
    /// let posts = db.create_collection("posts", Default::default())?;
    /// posts.put(b"1", br#"{"user":"ann"}"#)?;
    /// let advice = posts.advise(&"user".parse()?, &Workload::default())?;
    /// posts.create_index(advice.spec.parse()?)?;
    /// # Ok::<(), bolide::Error>(())
    /// ```
    pub fn advise(&self, attribute: &AttributePath, workload: &Workload) -> Result<Advice> {
        Ok(advise(attribute, &self.profile(attribute)?, workload))
    }
}
