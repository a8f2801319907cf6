//! The descriptor of a collection or of an index in the manifest.
//!
//! ```text
//! descriptor  kind     u8       1 collection, 2 index, 3 key index
//!             format   u8       collection 1; index and key index 2. Others are refused
//!             length   varint   of the fields that follow
//!             fields   …        later versions of a format may append fields; readers skip them
//!
//! collection  name     bytes    varint length, then UTF-8
//!             state    u8       0 creating, 1 live, 2 dropping
//!             records  u8       0 JSON objects, 1 bytes
//!             keys     u8       0 bytes, 1 typed
//!
//! index       owner    varint   tree of the collection
//!             name     bytes
//!             spec     bytes    the index's specification as text
//!             life     …
//!
//! key index   owner    varint   tree of the collection; see [`bolide_index::KeyIndex`]
//!             life     …
//!
//! life        state    u8       0 building, 1 ready, 2 failed, 3 damaged
//!             since    varint   the index is complete for every snapshot at or after this sequence number
//!             replaces varint   tree of the index that this one takes the place of once it is ready, or 0
//!             filled   u8       1 if the two fields that follow are there, else 0
//!               key    bytes    the records up to this primary key, itself included, are back-filled
//!               through varint  sequence number of the view that they were read from
//!             records  varint   back-filled so far
//!             bytes    varint   of their keys and records
//!             entries  varint   that they have in the index
//!             most_records, most_bytes  varint   a second that the back-fill may read; 0 for no limit
//!             problem  bytes    why the build failed, or the damage, UTF-8; else empty
//! ```
//!
//! Descriptors are small: names are at most 255 bytes and specifications at most [`MAX_SPEC_BYTES`].
//! Nothing is allocated before its length was checked.

use bolide_base::coding::{Decoder, put_bytes, put_varint};
use bolide_base::limits::{MAX_KEY_BYTES, MAX_NAME_BYTES};
use bolide_base::{Error, ErrorKind, Result, SequenceNumber, TreeId};
use bolide_index::IndexSpec;
use bolide_lsm::TreeOptions;

pub use crate::index_state::IndexState;
use crate::key::KeyFormat;

/// The maximum length of an index specification's text, in bytes.
pub(crate) const MAX_SPEC_BYTES: usize = 65_536;

const KIND_COLLECTION: u8 = 1;
const KIND_INDEX: u8 = 2;
const KIND_KEY_INDEX: u8 = 3;
/// The format of the descriptor of a collection.
const COLLECTION_FORMAT: u8 = 1;
/// The format of the descriptors of indexes and key indexes.
const INDEX_FORMAT: u8 = 2;
/// The maximum length of the text of a problem, in bytes.
const MAX_PROBLEM_BYTES: usize = 4_096;

/// The type of the records of a collection.
///
/// Records of bytes can have indexes too, with an extractor that finds attributes in them:
///
/// ```
/// use std::sync::Arc;
/// use bolide::{
///     AttributeExtractor, AttributePlan, AttributeValues, CollectionOptions, Components, Db, Options, Query,
///     Value,
/// };
///
/// /// The attribute `first` of records that are lines of text: their first word.
/// #[derive(Debug)]
/// struct FirstWord;
///
/// impl AttributeExtractor for FirstWord {
///     fn extract_into(
///         &self,
///         record: &[u8],
///         plan: &AttributePlan,
///         out: &mut AttributeValues,
///     ) -> bolide::Result<()> {
///         let line = String::from_utf8_lossy(record);
///         if let (Some(slot), Some(word)) = (plan.slot(&"first".parse()?), line.split(' ').next()) {
///             out.push(slot, &Value::from(word))?;
///         }
///         Ok(())
///     }
/// }
///
/// let components = Components::in_memory().extractor("lines", Arc::new(FirstWord));
/// let db = Db::open_with("db", Options::default(), components)?;
/// let lines = db.create_collection("lines", CollectionOptions::bytes().index("first".parse()?))?;
/// lines.put(b"1", b"hello world")?;
/// lines.put(b"2", b"goodbye world")?;
/// assert_eq!(lines.find(&Query::new().eq("first", "hello"))?.len(), 1);
/// # Ok::<(), bolide::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum RecordKind {
    /// Each record is a JSON object in UTF-8; attributes are named by their path. Every record is
    /// checked when it is written.
    #[default]
    Json,
    /// Each record is any bytes; attributes come from the extractor of the program, if there is one.
    Bytes,
}

/// The state of a collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CollectionLifecycle {
    /// Its indexes are not all created yet. An open finds this state only after a crash, and drops the collection.
    Creating,
    /// In use.
    Live,
    /// Being dropped; an open completes the drop.
    Dropping,
}

/// The descriptor of a collection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CollectionDescriptor {
    pub(crate) name: String,
    pub(crate) state: CollectionLifecycle,
    pub(crate) records: RecordKind,
    pub(crate) keys: KeyFormat,
}

/// The descriptor of an index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IndexDescriptor {
    pub(crate) owner: TreeId,
    pub(crate) name: String,
    pub(crate) spec: String,
    pub(crate) life: IndexLife,
}

/// The descriptor of the key index of a collection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyIndexDescriptor {
    pub(crate) owner: TreeId,
    pub(crate) life: IndexLife,
}

/// The state of an index and the progress of its build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IndexLife {
    pub(crate) state: IndexState,
    pub(crate) since: SequenceNumber,
    /// The tree of the index that this one replaces once it is ready.
    pub(crate) replaces: Option<TreeId>,
    pub(crate) filled: Option<Filled>,
    pub(crate) done: BuildPosition,
    /// Records and bytes a second that the build may read; 0 for no limit.
    pub(crate) limits: (u64, u64),
    /// The cause of a failure, a damage or a new build; empty without a cause.
    pub(crate) problem: String,
}

/// The position of a back-fill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Filled {
    /// The last primary key whose record is indexed.
    pub(crate) key: Vec<u8>,
    /// The sequence number of the view that the record was read from.
    pub(crate) through: SequenceNumber,
}

/// The work of a back-fill so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct BuildPosition {
    pub(crate) records: u64,
    pub(crate) bytes: u64,
    pub(crate) entries: u64,
}

/// The descriptor of any tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Descriptor {
    Collection(CollectionDescriptor),
    Index(IndexDescriptor),
    KeyIndex(KeyIndexDescriptor),
}

impl CollectionDescriptor {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut fields = Vec::with_capacity(8 + self.name.len());
        put_bytes(&mut fields, self.name.as_bytes());
        fields.push(match self.state {
            CollectionLifecycle::Creating => 0,
            CollectionLifecycle::Live => 1,
            CollectionLifecycle::Dropping => 2,
        });
        fields.push(match self.records {
            RecordKind::Json => 0,
            RecordKind::Bytes => 1,
        });
        fields.push(match self.keys {
            KeyFormat::Bytes => 0,
            KeyFormat::Typed => 1,
        });
        envelope(KIND_COLLECTION, COLLECTION_FORMAT, &fields)
    }

    fn decode(fields: &mut Decoder<'_>) -> Option<Self> {
        Some(Self {
            name: decode_name(fields)?,
            state: match fields.u8()? {
                0 => CollectionLifecycle::Creating,
                1 => CollectionLifecycle::Live,
                2 => CollectionLifecycle::Dropping,
                _ => return None,
            },
            records: match fields.u8()? {
                0 => RecordKind::Json,
                1 => RecordKind::Bytes,
                _ => return None,
            },
            keys: match fields.u8()? {
                0 => KeyFormat::Bytes,
                1 => KeyFormat::Typed,
                _ => return None,
            },
        })
    }
}

impl IndexDescriptor {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut fields = Vec::with_capacity(64 + self.name.len() + self.spec.len());
        put_varint(&mut fields, u64::from(self.owner));
        put_bytes(&mut fields, self.name.as_bytes());
        put_bytes(&mut fields, self.spec.as_bytes());
        self.life.encode(&mut fields);
        envelope(KIND_INDEX, INDEX_FORMAT, &fields)
    }

    fn decode(fields: &mut Decoder<'_>) -> Option<Self> {
        Some(Self {
            owner: TreeId::try_from(fields.varint()?).ok()?,
            name: decode_name(fields)?,
            spec: decode_text(fields, MAX_SPEC_BYTES)?,
            life: IndexLife::decode(fields)?,
        })
    }
}

impl KeyIndexDescriptor {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut fields = Vec::with_capacity(64);
        put_varint(&mut fields, u64::from(self.owner));
        self.life.encode(&mut fields);
        envelope(KIND_KEY_INDEX, INDEX_FORMAT, &fields)
    }

    fn decode(fields: &mut Decoder<'_>) -> Option<Self> {
        Some(Self { owner: TreeId::try_from(fields.varint()?).ok()?, life: IndexLife::decode(fields)? })
    }
}

impl IndexLife {
    /// Of an index that starts in `state`, complete since the first write if it is ready.
    pub(crate) fn begins(state: IndexState) -> Self {
        Self {
            state,
            since: 0,
            replaces: None,
            filled: None,
            done: BuildPosition::default(),
            limits: (0, 0),
            problem: String::new(),
        }
    }

    fn encode(&self, fields: &mut Vec<u8>) {
        fields.push(match self.state {
            IndexState::Building => 0,
            IndexState::Ready => 1,
            IndexState::Failed => 2,
            IndexState::Damaged => 3,
        });
        put_varint(fields, self.since);
        put_varint(fields, u64::from(self.replaces.unwrap_or(0)));
        fields.push(u8::from(self.filled.is_some()));
        if let Some(filled) = &self.filled {
            put_bytes(fields, &filled.key);
            put_varint(fields, filled.through);
        }
        let BuildPosition { records, bytes, entries } = self.done;
        for number in [records, bytes, entries, self.limits.0, self.limits.1] {
            put_varint(fields, number);
        }
        let whole = |end: &usize| self.problem.is_char_boundary(*end);
        let end = (0..=self.problem.len().min(MAX_PROBLEM_BYTES)).rev().find(whole).unwrap_or(0);
        put_bytes(fields, self.problem.get(..end).unwrap_or_default().as_bytes());
    }

    fn decode(fields: &mut Decoder<'_>) -> Option<Self> {
        let state = match fields.u8()? {
            0 => IndexState::Building,
            1 => IndexState::Ready,
            2 => IndexState::Failed,
            3 => IndexState::Damaged,
            _ => return None,
        };
        let mut life = Self { since: fields.varint()?, ..Self::begins(state) };
        let replaces = TreeId::try_from(fields.varint()?).ok()?;
        life.replaces = (replaces != 0).then_some(replaces);
        life.filled = match fields.u8()? {
            0 => None,
            1 => {
                let length = fields.length(MAX_KEY_BYTES)?;
                Some(Filled { key: fields.take(length)?.to_vec(), through: fields.varint()? })
            }
            _ => return None,
        };
        life.done =
            BuildPosition { records: fields.varint()?, bytes: fields.varint()?, entries: fields.varint()? };
        life.limits = (fields.varint()?, fields.varint()?);
        life.problem = decode_text(fields, MAX_PROBLEM_BYTES)?;
        Some(life)
    }

    /// As text.
    fn describe(&self) -> String {
        let mut text = match self.state {
            IndexState::Building => format!("building, {} records done", self.done.records),
            IndexState::Ready => format!("ready since {}", self.since),
            IndexState::Failed => format!("failed: {}", self.problem),
            IndexState::Damaged => format!("damaged: {}", self.problem),
        };
        if let Some(tree) = self.replaces {
            text.push_str(&format!(", to replace tree {tree}"));
        }
        text
    }
}

impl Descriptor {
    /// Reads the descriptor of `tree`.
    ///
    /// # Errors
    ///
    /// `Unsupported` for another format, `Corruption` for malformed bytes.
    pub(crate) fn decode(tree: TreeId, bytes: &[u8]) -> Result<Self> {
        let mut decoder = Decoder::new(bytes);
        let damaged = || {
            Error::new(ErrorKind::Corruption, format!("manifest: the descriptor of tree {tree} is damaged"))
        };
        let (kind, format) = (decoder.u8().ok_or_else(damaged)?, decoder.u8().ok_or_else(damaged)?);
        let known = match kind {
            KIND_COLLECTION => COLLECTION_FORMAT,
            KIND_INDEX | KIND_KEY_INDEX => INDEX_FORMAT,
            _ => {
                let what = format!("tree {tree} has a descriptor of the unknown kind {kind}");
                return Err(Error::unsupported("manifest", what));
            }
        };
        if format != known {
            let what = format!(
                "tree {tree} has a descriptor of kind {kind}, format version {format}; this program reads {known}"
            );
            return Err(Error::unsupported("manifest", what));
        }
        let mut fields = decoder.bytes().map(Decoder::new).ok_or_else(damaged)?;
        let descriptor = match kind {
            KIND_COLLECTION => CollectionDescriptor::decode(&mut fields).map(Self::Collection),
            KIND_INDEX => IndexDescriptor::decode(&mut fields).map(Self::Index),
            _ => KeyIndexDescriptor::decode(&mut fields).map(Self::KeyIndex),
        };
        descriptor.filter(|_| decoder.is_empty()).ok_or_else(damaged)
    }
}

/// Describes a descriptor from the manifest as text, for programs that show files.
///
/// # Errors
/// `Unsupported` for another format, `Corruption` for malformed bytes.
///
/// ```
/// assert!(bolide::describe_descriptor(b"").unwrap_err().is_corruption());
/// ```
pub fn describe_descriptor(bytes: &[u8]) -> Result<String> {
    Ok(match Descriptor::decode(0, bytes)? {
        Descriptor::Collection(found) => {
            let records = match found.records {
                RecordKind::Json => "JSON objects",
                RecordKind::Bytes => "bytes",
            };
            let keys = match found.keys {
                KeyFormat::Bytes => "bytes",
                KeyFormat::Typed => "typed",
            };
            let state = match found.state {
                CollectionLifecycle::Creating => "being created",
                CollectionLifecycle::Live => "live",
                CollectionLifecycle::Dropping => "being dropped",
            };
            format!("collection {:?}, {state}, records: {records}, keys: {keys}", found.name)
        }
        Descriptor::Index(found) => {
            let life = found.life.describe();
            format!("index {:?} of tree {}, {life}: {}", found.name, found.owner, found.spec)
        }
        Descriptor::KeyIndex(found) => {
            format!("key index of tree {}, {}", found.owner, found.life.describe())
        }
    })
}

/// The specification in the descriptor of an index from the manifest, for programs that show files; `None` for the
/// descriptor of a collection or of a key index.
///
/// # Errors
/// As [`describe_descriptor`]; `InvalidInput` or `Unsupported` for a specification that this version does not know.
///
/// ```
/// assert!(bolide::index_spec_of_descriptor(b"").unwrap_err().is_corruption());
/// ```
pub fn index_spec_of_descriptor(bytes: &[u8]) -> Result<Option<IndexSpec>> {
    match Descriptor::decode(0, bytes)? {
        Descriptor::Index(found) => found.spec.parse().map(Some),
        Descriptor::Collection(_) | Descriptor::KeyIndex(_) => Ok(None),
    }
}

/// The settings and the descriptor of the tree of an index over the collection in tree `owner`, which has the settings
/// `options`.
pub(crate) fn index_tree(
    mut options: TreeOptions,
    owner: TreeId,
    spec: &IndexSpec,
    life: IndexLife,
) -> (TreeOptions, Vec<u8>) {
    // No lookup is for whole keys of it.
    options.bloom_bits_per_key = 0;
    (options, index_descriptor(owner, spec, life))
}

/// The descriptor of the tree of an index over the collection in tree `owner`.
pub(crate) fn index_descriptor(owner: TreeId, spec: &IndexSpec, life: IndexLife) -> Vec<u8> {
    let (name, spec) = (spec.name().to_owned(), spec.to_string());
    IndexDescriptor { owner, name, spec, life }.encode()
}

/// The descriptor of the tree of the key index of the collection in tree `owner`.
pub(crate) fn key_index_descriptor(owner: TreeId, state: IndexState) -> Vec<u8> {
    KeyIndexDescriptor { owner, life: IndexLife::begins(state) }.encode()
}

/// Checks the name of a collection or an index.
///
/// # Errors
///
/// `LimitExceeded` over 255 bytes; `InvalidInput` for an empty name or one with control characters.
pub(crate) fn check_name(what: &str, name: &str) -> Result<()> {
    if name.is_empty() {
        return Err(Error::invalid_input(format!("the name of {what} must not be empty")));
    }
    if name.len() > MAX_NAME_BYTES {
        let subject = format!("the length in bytes of the name of {what}");
        return Err(Error::limit_exceeded(subject, name.len() as u64, MAX_NAME_BYTES as u64));
    }
    if name.chars().any(char::is_control) {
        return Err(Error::invalid_input(format!(
            "the name of {what} must not contain control characters: {name:?}"
        )));
    }
    Ok(())
}

fn envelope(kind: u8, format: u8, fields: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(fields.len() + 8);
    out.push(kind);
    out.push(format);
    put_bytes(&mut out, fields);
    out
}

fn decode_name(fields: &mut Decoder<'_>) -> Option<String> {
    decode_text(fields, MAX_NAME_BYTES).filter(|name| !name.is_empty())
}

fn decode_text(fields: &mut Decoder<'_>, limit: usize) -> Option<String> {
    let length = fields.length(limit)?;
    String::from_utf8(fields.take(length)?.to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn life(state: IndexState) -> IndexLife {
        let mut life = IndexLife { since: bolide_base::MAX_SEQUENCE, ..IndexLife::begins(state) };
        match state {
            IndexState::Ready => {}
            IndexState::Building => {
                life.replaces = Some(3);
                life.filled = Some(Filled { key: vec![0xff; MAX_KEY_BYTES], through: 12 });
                life.done = BuildPosition { records: 1, bytes: 300, entries: u64::MAX };
                life.limits = (0, 1 << 20);
            }
            IndexState::Failed => life.problem = "the record \"x\" has no end".to_owned(),
            IndexState::Damaged => life.problem = "000007.sst is missing".to_owned(),
        }
        life
    }

    fn samples() -> Vec<Descriptor> {
        let mut samples = Vec::new();
        for state in [CollectionLifecycle::Creating, CollectionLifecycle::Live, CollectionLifecycle::Dropping]
        {
            for (records, keys) in
                [(RecordKind::Json, KeyFormat::Typed), (RecordKind::Bytes, KeyFormat::Bytes)]
            {
                let name = "posts".to_owned();
                samples.push(Descriptor::Collection(CollectionDescriptor { name, state, records, keys }));
            }
        }
        for state in [IndexState::Building, IndexState::Ready, IndexState::Failed, IndexState::Damaged] {
            let life = life(state);
            samples.push(Descriptor::KeyIndex(KeyIndexDescriptor { owner: 7, life: life.clone() }));
            samples.push(Descriptor::Index(IndexDescriptor {
                owner: 7,
                name: "é".repeat(MAX_NAME_BYTES / 2),
                spec: "user.id:composite".to_owned(),
                life,
            }));
        }
        samples
    }

    fn encode(descriptor: &Descriptor) -> Vec<u8> {
        match descriptor {
            Descriptor::Collection(collection) => collection.encode(),
            Descriptor::Index(index) => index.encode(),
            Descriptor::KeyIndex(index) => index.encode(),
        }
    }

    #[test]
    fn descriptors_round_trip_and_every_truncation_is_detected() {
        for sample in samples() {
            let bytes = encode(&sample);
            assert_eq!(Descriptor::decode(3, &bytes).unwrap(), sample);
            assert!(describe_descriptor(&bytes).unwrap().contains("index") || bytes[0] == KIND_COLLECTION);
            for len in (0..bytes.len()).filter(|len| len % 97 == 0 || len + 64 > bytes.len()) {
                assert!(Descriptor::decode(3, &bytes[..len]).unwrap_err().is_corruption());
            }
            let mut longer = bytes;
            longer.push(0);
            assert!(Descriptor::decode(3, &longer).unwrap_err().is_corruption());
        }
    }

    #[test]
    fn another_format_is_unsupported_and_appended_fields_are_skipped() {
        for sample in samples() {
            let mut other = encode(&sample);
            for (kind, format) in [(other[0], other[1] - 1), (other[0], other[1] + 1), (9, other[1])] {
                (other[0], other[1]) = (kind, format);
                let error = Descriptor::decode(3, &other).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
            }
        }
        let sample = &samples()[0];
        let mut appended = encode(sample);
        appended[2] += 1;
        appended.push(9);
        assert_eq!(Descriptor::decode(3, &appended).unwrap(), *sample);
    }

    #[test]
    fn a_long_problem_is_truncated_between_characters() {
        let mut life = life(IndexState::Failed);
        life.problem = "é".repeat(MAX_PROBLEM_BYTES);
        let bytes = KeyIndexDescriptor { owner: 1, life }.encode();
        let Descriptor::KeyIndex(found) = Descriptor::decode(1, &bytes).unwrap() else { unreachable!() };
        assert_eq!(found.life.problem.len(), MAX_PROBLEM_BYTES);
    }

    #[test]
    fn names_are_checked_at_their_edges() {
        assert_eq!(check_name("a collection", "").unwrap_err().kind(), ErrorKind::InvalidInput);
        assert!(check_name("a collection", "a").is_ok());
        for over in [0, 1] {
            let name = "x".repeat(MAX_NAME_BYTES + over);
            assert_eq!(check_name("a collection", &name).is_ok(), over == 0);
        }
        assert!(check_name("a collection", &"x".repeat(MAX_NAME_BYTES - 1)).is_ok());
        assert_eq!(check_name("an index", "a\nb").unwrap_err().kind(), ErrorKind::InvalidInput);
    }
}
