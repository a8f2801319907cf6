//! The declaration of an index, as text and as a type.
//!
//! ```text
//! spec        [name "="] attributes [":" kind [":" option ("," option)*]]
//! attributes  path ("+" path)* | "rect(" path ")" | "point(" path "," path ")"
//! option      name "=" value
//! ```
//!
//! A backslash escapes the next character. The default of the name is the text of the attributes. The default of the kind is
//! `ps-tree`, for points and rectangles `next`. An index of several attributes sorts by the first, then the second, and so
//! on; it contains the records that have the first.

use std::fmt;

use bolide_base::limits::MAX_NAME_BYTES;
use bolide_base::{Error, Result};

use crate::path::{self, AttributePath};

mod kind;
mod settings;

pub use kind::{IndexKind, KindProperties};
use settings::Settings;
pub use settings::{
    DEFAULT_BLOOM_BITS, EntryOrder, GlobalIndexUse, MAX_BLOOM_BITS, MAX_INCLUDED, Maintenance, RegionPlace,
    RepairStrategy, SkeyLayerKind, Split, ValidationStrategy,
};

/// Maximum number of attributes of one index.
pub const MAX_ATTRIBUTES: usize = 16;

/// The declaration of an index; see the [module](self) for its text form.
///
/// ```
/// use bolide_index::{IndexSpec, Maintenance};
/// let spec: IndexSpec = "by_user=user.id:composite:maintenance=synchronous".parse()?;
/// assert_eq!(spec.name(), "by_user");
/// assert_eq!(spec.maintenance(), Maintenance::Synchronous);
/// assert_eq!(spec.to_string().parse::<IndexSpec>()?, spec);
/// assert_eq!("tags[*]".parse::<IndexSpec>()?.to_string(), "tags[*]:ps-tree");
/// # Ok::<(), bolide_base::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexSpec {
    name: String,
    attributes: Vec<AttributePath>,
    kind: IndexKind,
    settings: Settings,
}

impl IndexSpec {
    /// An index of `kind` with its default options, named after its attributes.
    pub(crate) fn of_kind(attributes: Vec<AttributePath>, kind: IndexKind) -> Result<Self> {
        let name = attributes_text(&attributes);
        let spec = Self { name, attributes, kind, settings: Settings::default() };
        spec.check_attributes()?;
        spec.check_name()?;
        Ok(spec)
    }

    /// The same index under another name.
    ///
    /// # Errors
    /// `InvalidInput` for an empty name, `LimitExceeded` for one over its limit.
    pub fn with_name(mut self, name: impl Into<String>) -> Result<Self> {
        self.name = name.into();
        self.check_name()?;
        Ok(self)
    }

    /// The same index with another kind and its default options.
    #[must_use]
    pub fn with_kind(self, kind: IndexKind) -> Self {
        Self { kind, settings: Settings::default(), ..self }
    }

    /// The same index with this maintenance, which its kind supports.
    pub(crate) fn maintained(mut self, maintenance: Maintenance) -> Self {
        self.settings.maintenance = maintenance;
        self
    }

    /// The name, unique in its collection.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The attributes, at least one, in the order of the key.
    pub fn attributes(&self) -> &[AttributePath] {
        &self.attributes
    }

    /// The attributes as written in a specification.
    pub fn attributes_text(&self) -> String {
        attributes_text(&self.attributes)
    }

    /// The kind of the structure.
    pub fn kind(&self) -> IndexKind {
        self.kind
    }

    /// The maintenance of stale entries.
    pub fn maintenance(&self) -> Maintenance {
        self.settings.maintenance
    }

    /// The validation strategy for candidates.
    pub fn validation(&self) -> ValidationStrategy {
        self.settings.validation
    }

    /// The order of the entries of one secondary key.
    pub fn entry_order(&self) -> EntryOrder {
        self.settings.order
    }

    /// Whether long posting lists are split.
    pub fn split(&self) -> Split {
        self.settings.split
    }

    /// The compactions that remove stale entries.
    pub fn repair(&self) -> RepairStrategy {
        self.settings.repair
    }

    /// Further attributes stored with each entry, so that queries for them need no record.
    pub fn included(&self) -> &[AttributePath] {
        &self.settings.include
    }

    /// All paths to extract from a record: its attributes, then its included attributes.
    pub fn paths(&self) -> impl Iterator<Item = &AttributePath> {
        self.attributes.iter().chain(self.included())
    }

    /// Bits of Bloom filter per value, of an embedded index.
    pub fn bloom_bits(&self) -> u32 {
        self.settings.bloom_bits
    }

    /// Minimum distance between neighbouring keys of an index of kind `next` at which the range of their index block is split
    /// (NEXT §4); `None` if it is determined per block.
    pub fn delta(&self) -> Option<f64> {
        self.settings.delta.map(|delta| delta.0)
    }

    /// Approximate size of an index block of an index of kind `next`, in bytes.
    pub fn block_bytes(&self) -> u32 {
        self.settings.block_bytes
    }

    /// Whether an index of kind `next` has a global index.
    pub fn global(&self) -> GlobalIndexUse {
        self.settings.global
    }

    /// The name of the validation strategy for candidates whose records are not fetched.
    pub fn validation_name(&self) -> &'static str {
        self.kind.properties().validation.unwrap_or_else(|| self.validation().name())
    }

    /// The text of an option that only the kind of this index has.
    pub fn own_option(&self, name: &str) -> Option<&str> {
        self.settings.own.iter().find(|(own, _)| *own == name).map(|(_, value)| value.as_str())
    }

    /// The structure over the secondary keys of an index of kind `ps-tree`.
    pub fn skey(&self) -> SkeyLayerKind {
        self.settings.skey
    }

    /// The location of the region of an index of kind `ps-tree`.
    pub fn region(&self) -> RegionPlace {
        self.settings.region
    }

    /// Bound of the memory of an index of kind `ps-tree` in bytes: its oldest entries move to sstables before. `None` for a quarter of
    /// the memory budget.
    pub fn memory_bytes(&self) -> Option<u64> {
        self.settings.memory
    }

    /// Size of a PKey page of an index of kind `ps-tree`, in bytes.
    pub fn page_bytes(&self) -> u32 {
        self.settings.page_bytes
    }

    /// Rejects a kind that does not support the attributes, which [`with_kind`](Self::with_kind) does not.
    ///
    /// # Errors
    /// `InvalidInput` for points or rectangles in an index of a kind that does not support them.
    pub fn check_kind(&self) -> Result<()> {
        self.check_attributes()
    }

    /// Parses a declaration. `kind_of` returns the kind of a name, `default_kind` that of attributes.
    ///
    /// # Errors
    /// `InvalidInput` for text that is malformed, or options that do not fit; those of `kind_of`.
    pub(crate) fn parse_with(
        text: &str,
        kind_of: impl FnOnce(&str) -> Result<IndexKind>,
        default_kind: impl FnOnce(&[AttributePath]) -> IndexKind,
    ) -> Result<Self> {
        let mut parts = path::split_unescaped(text, ':');
        let head = parts.next().unwrap_or_default();
        let (name, attributes) = match path::split_once_unescaped(head, '=') {
            Some((name, attributes)) => (Some(path::unescape(name)), attributes),
            None => (None, head),
        };
        let paths: Result<Vec<AttributePath>> =
            path::split_unescaped(attributes, '+').map(str::parse).collect();
        let attributes = paths?;
        let name = name.unwrap_or_else(|| attributes_text(&attributes));
        let kind = match parts.next() {
            Some(kind) => kind_of(kind)?,
            None => default_kind(&attributes),
        };
        let mut spec = IndexSpec { name, attributes, kind, settings: Settings::default() };
        if let Some(options) = parts.next() {
            let options: Vec<&str> = path::split_unescaped(options, ',').collect();
            for (position, option) in options.iter().enumerate() {
                let name = option.split('=').next();
                if options[..position].iter().any(|earlier| earlier.split('=').next() == name) {
                    return Err(Error::invalid_input(format!(
                        "the option `{}` is given twice",
                        name.unwrap_or_default()
                    )));
                }
                spec.settings.set(kind, option)?;
            }
        }
        if parts.next().is_some() {
            return Err(Error::invalid_input(
                "no text may follow the options; write `\\:` for a colon inside a field name",
            ));
        }
        spec.check_attributes()?;
        spec.settings.check(&spec.attributes)?;
        spec.check_name()?;
        Ok(spec)
    }

    fn check_attributes(&self) -> Result<()> {
        if self.attributes.is_empty() {
            return Err(Error::invalid_input("an index needs an attribute"));
        }
        if self.attributes.len() > MAX_ATTRIBUTES {
            return Err(Error::limit_exceeded(
                "the number of attributes of an index",
                self.attributes.len() as u64,
                MAX_ATTRIBUTES as u64,
            ));
        }
        for (position, attribute) in self.attributes.iter().enumerate() {
            if self.attributes[..position].contains(attribute) {
                return Err(Error::invalid_input(format!(
                    "the attribute `{attribute}` occurs twice in one index"
                )));
            }
            if attribute.is_spatial() && (!self.kind.properties().is_spatial || self.attributes.len() > 1) {
                return Err(Error::invalid_input(format!(
                    "`{attribute}` is spatial and has no order: of the kinds of the library only next supports it, \
                     without another attribute beside it"
                )));
            }
        }
        Ok(())
    }

    fn check_name(&self) -> Result<()> {
        if self.name.is_empty() {
            return Err(Error::invalid_input("the name of an index is empty"));
        }
        if self.name.len() > MAX_NAME_BYTES {
            return Err(Error::limit_exceeded(
                "the name of an index in bytes",
                self.name.len() as u64,
                MAX_NAME_BYTES as u64,
            ));
        }
        Ok(())
    }
}

fn attributes_text(attributes: &[AttributePath]) -> String {
    attributes.iter().map(AttributePath::to_string).collect::<Vec<_>>().join("+")
}

impl fmt::Display for IndexSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let attributes = self.attributes_text();
        if self.name != attributes {
            for character in self.name.chars() {
                if matches!(character, '\\' | '=' | ':') {
                    f.write_str("\\")?;
                }
                write!(f, "{character}")?;
            }
            f.write_str("=")?;
        }
        write!(f, "{attributes}:{}", self.kind.name())?;
        let options = self.settings.text();
        if !options.is_empty() {
            write!(f, ":{options}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use bolide_base::ErrorKind;
    use proptest::prelude::*;

    use super::*;

    fn spec(text: &str) -> IndexSpec {
        text.parse().unwrap()
    }

    fn rejection(text: &str) -> Error {
        text.parse::<IndexSpec>().unwrap_err()
    }

    #[test]
    fn every_part_is_parsed() {
        let full = spec("recent=user.id+created_ms:composite:maintenance=synchronous,order=newest");
        assert_eq!(full.name(), "recent");
        assert_eq!(full.attributes(), ["user.id".parse().unwrap(), "created_ms".parse().unwrap()]);
        assert_eq!(full.kind(), IndexKind::COMPOSITE);
        assert_eq!(full.maintenance(), Maintenance::Synchronous);
        assert_eq!(full.to_string(), "recent=user.id+created_ms:composite:maintenance=synchronous");
        assert_eq!(spec("a+b").name(), "a+b");
        assert_eq!(spec("a:ps-tree"), spec("a"));
        assert_eq!(spec("a:ps-tree:skey=btree,region=disk"), spec("a"));
        assert_eq!(spec("a:composite:maintenance=validation"), spec("a:composite"));
        assert_eq!(spec(r"n\=1=a\:b").name(), "n=1");
        assert_eq!(spec(r"n\=1=a\:b").attributes(), [AttributePath::field("a:b")]);
    }

    #[test]
    fn the_options_of_each_kind_round_trip() {
        for text in [
            "a:composite:validation=key-index,order=primary-key,repair=primary-compaction,include=b|c.d",
            "a:lazy:validation=get-lite",
            "n=a+b:eager:maintenance=synchronous,split=off",
            "tags[*]:embedded:bloom_bits=30",
            "a:next:delta=0.5",
            "a+b:next:delta=1000,block_bytes=64",
            "a:next:delta=3,global=off",
            "a:ps-tree:include=b,skey=trie,region=dax,page_bytes=512",
            "a:ps-tree:memory=65536",
        ] {
            assert_eq!(spec(text).to_string(), text);
        }
        let covering = spec("a:composite:include=b|c.d");
        assert_eq!(covering.included(), ["b".parse().unwrap(), "c.d".parse().unwrap()]);
        assert_eq!(spec("a:embedded").bloom_bits(), DEFAULT_BLOOM_BITS);
        for kind in IndexKind::BUILT_IN {
            assert_eq!(spec(&format!("a:{}", kind.name())).kind(), kind);
        }
    }

    #[test]
    fn points_and_rectangles_have_indexes_of_kind_next() {
        for text in ["point(lon,lat)", "rect(bbox)", "by_place=point(a.x,a.y):next:delta=0.5"] {
            let spec = spec(text);
            assert_eq!(spec.kind(), IndexKind::NEXT);
            assert_eq!(spec.to_string().parse::<IndexSpec>().unwrap(), spec);
            assert_eq!(IndexSpec::new(spec.attributes().to_vec()).unwrap().kind(), IndexKind::NEXT);
        }
        assert_eq!(spec("rect(bbox)").name(), "rect(bbox)");
        assert_eq!(spec("point(lon,lat)").to_string(), "point(lon,lat):next");
    }

    #[test]
    fn errors_contain_the_rejected_text() {
        for text in [
            "",
            "=a",
            "a:",
            "a:btree",
            "a:composite:",
            "a:composite:maintenance",
            "a:composite:maintenance=never",
            "a:composite:order=oldest",
            "a:composite:skey=trie",
            "a:composite:split=off",
            "a:lazy:order=primary-key",
            "a:eager:split=maybe",
            "a:embedded:maintenance=synchronous",
            "a:ps-tree:page_bytes=256",
            "a:ps-tree:page_bytes=4097",
            "a:ps-tree:skey=hash",
            "a:ps-tree:memory=4095",
            "a:ps-tree:memory=",
            "a:ps-tree:memory=1e6",
            "a:ps-tree:maintenance=synchronous",
            "a:embedded:bloom_bits=0",
            "a:next:delta=0",
            "a:next:delta=NaN",
            "a:next:delta=inf",
            "a:next:bloom_bits=3",
            "a:next:block_bytes=63",
            "a:next:global=maybe",
            "a:next:block_bytes=65537",
            "a:embedded:bloom_bits=201",
            "a:composite:include=a",
            "a:composite:include=b|b",
            "a:composite:include=tags[*]",
            "a:composite:include=rect(b)",
            "rect(a):composite",
            "point(a,b):ps-tree",
            "rect(a)+b:embedded",
            "rect(a[*):lazy",
            "point(a)",
            "a:composite:include=",
            "a:composite:validation=maybe",
            "a:composite:maintenance=synchronous,validation=get-lite",
            "a:lazy:maintenance=synchronous,repair=primary-compaction",
            "a:composite:order=newest,order=newest",
            "a:composite:order=newest:more",
            "a+",
            "a+a",
            "a..b",
            "n=",
        ] {
            let error = rejection(text);
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{text}: {error}");
            assert!(error.message().contains(&format!("`{text}`")), "{error}");
        }
    }

    #[test]
    fn names_and_attributes_are_limited_at_their_edges() {
        for over in [0, 1] {
            let name = "n".repeat(MAX_NAME_BYTES + over);
            assert_eq!(format!("{name}=a").parse::<IndexSpec>().is_ok(), over == 0);
            let attributes: Vec<String> =
                (0..MAX_ATTRIBUTES + over).map(|number| format!("a{number}")).collect();
            let outcome = attributes.join("+").parse::<IndexSpec>();
            assert_eq!(
                outcome.map_err(|error| error.kind()).err(),
                (over == 1).then_some(ErrorKind::LimitExceeded)
            );
            let included: Vec<String> = (0..MAX_INCLUDED + over).map(|number| format!("b{number}")).collect();
            let outcome = format!("a:composite:include={}", included.join("|")).parse::<IndexSpec>();
            assert_eq!(
                outcome.map_err(|error| error.kind()).err(),
                (over == 1).then_some(ErrorKind::LimitExceeded)
            );
            let bits = format!("a:embedded:bloom_bits={}", MAX_BLOOM_BITS as usize + over);
            assert_eq!(bits.parse::<IndexSpec>().is_ok(), over == 0);
        }
    }

    proptest! {
        #[test]
        fn text_round_trips(
            name in "[a-c:=+.\\\\é]{1,5}",
            fields in proptest::collection::btree_set("[a-c.:=+\\\\é ]{1,4}", 1..4),
            synchronous in any::<bool>(),
        ) {
            let mut spec = IndexSpec::new(fields.into_iter().map(AttributePath::field)).unwrap();
            prop_assert_eq!(&spec.to_string().parse::<IndexSpec>().unwrap(), &spec);
            if synchronous {
                spec = spec.with_maintenance(Maintenance::Synchronous);
            }
            let spec = spec.with_name(name).unwrap();
            prop_assert_eq!(spec.to_string().parse::<IndexSpec>().unwrap(), spec);
        }

        #[test]
        fn any_text_is_parsed_or_rejected(text in ".{0,30}") {
            if let Ok(spec) = text.parse::<IndexSpec>() {
                prop_assert_eq!(spec.to_string().parse::<IndexSpec>().unwrap(), spec);
            }
        }
    }
}
