//! What the manifest keeps about a tree: the descriptor of a collection or of an index.
//!
//! ```text
//! descriptor  kind     u8       1 collection, 2 index
//!             format   u8       1; a larger one was written by a newer version
//!             length   varint   of the fields that follow
//!             fields   …        later versions of format 1 may append fields; readers skip them
//!
//! collection  name     bytes    varint length, then UTF-8
//!             state    u8       0 creating, 1 live, 2 dropping
//!             records  u8       0 JSON objects, 1 bytes
//!             keys     u8       0 bytes, 1 typed
//!
//! index       owner    varint   tree of the collection
//!             name     bytes
//!             spec     bytes    the index's specification as text
//!             state    u8       0 building, 1 ready
//!             since    varint   sequence number of the snapshot that was back-filled: the index is
//!                               complete for every snapshot at or after it
//! ```
//!
//! Descriptors are small: names are at most 255 bytes and specifications at most [`MAX_SPEC_BYTES`].
//! Nothing is allocated before its length was checked.

use bolide_base::coding::{Decoder, put_bytes, put_varint};
use bolide_base::limits::MAX_NAME_BYTES;
use bolide_base::{Error, ErrorKind, Result, SequenceNumber, TreeId};

use crate::key::KeyFormat;

/// Longest text of an index specification, in bytes.
pub(crate) const MAX_SPEC_BYTES: usize = 65_536;

const KIND_COLLECTION: u8 = 1;
const KIND_INDEX: u8 = 2;
const FORMAT: u8 = 1;

/// What the records of a collection are.
///
/// Records of bytes can have indexes too, if the program says how to find attributes in them:
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
    /// Each record is any bytes; attributes come from the extractor that the program supplies, if
    /// any.
    Bytes,
}

/// Where a collection stands in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CollectionState {
    /// Its indexes are not all there yet; an open finds this only after a crash, and drops it.
    Creating,
    /// In use.
    Live,
    /// Being dropped; an open finishes that.
    Dropping,
}

/// Where an index stands in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum IndexState {
    /// Writes maintain it, but the records that were there before are still being added. Queries do
    /// not use it yet.
    Building,
    /// Complete: queries use it.
    Ready,
}

/// The descriptor of a collection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CollectionDescriptor {
    pub(crate) name: String,
    pub(crate) state: CollectionState,
    pub(crate) records: RecordKind,
    pub(crate) keys: KeyFormat,
}

/// The descriptor of an index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IndexDescriptor {
    pub(crate) owner: TreeId,
    pub(crate) name: String,
    pub(crate) spec: String,
    pub(crate) state: IndexState,
    pub(crate) since: SequenceNumber,
}

/// The descriptor of any tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Descriptor {
    Collection(CollectionDescriptor),
    Index(IndexDescriptor),
}

impl CollectionDescriptor {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut fields = Vec::with_capacity(8 + self.name.len());
        put_bytes(&mut fields, self.name.as_bytes());
        fields.push(match self.state {
            CollectionState::Creating => 0,
            CollectionState::Live => 1,
            CollectionState::Dropping => 2,
        });
        fields.push(match self.records {
            RecordKind::Json => 0,
            RecordKind::Bytes => 1,
        });
        fields.push(match self.keys {
            KeyFormat::Bytes => 0,
            KeyFormat::Typed => 1,
        });
        envelope(KIND_COLLECTION, &fields)
    }

    fn decode(fields: &mut Decoder<'_>) -> Option<Self> {
        Some(Self {
            name: decode_name(fields)?,
            state: match fields.u8()? {
                0 => CollectionState::Creating,
                1 => CollectionState::Live,
                2 => CollectionState::Dropping,
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
        let mut fields = Vec::with_capacity(32 + self.name.len() + self.spec.len());
        put_varint(&mut fields, u64::from(self.owner));
        put_bytes(&mut fields, self.name.as_bytes());
        put_bytes(&mut fields, self.spec.as_bytes());
        fields.push(match self.state {
            IndexState::Building => 0,
            IndexState::Ready => 1,
        });
        put_varint(&mut fields, self.since);
        envelope(KIND_INDEX, &fields)
    }

    fn decode(fields: &mut Decoder<'_>) -> Option<Self> {
        Some(Self {
            owner: TreeId::try_from(fields.varint()?).ok()?,
            name: decode_name(fields)?,
            spec: decode_text(fields, MAX_SPEC_BYTES)?,
            state: match fields.u8()? {
                0 => IndexState::Building,
                1 => IndexState::Ready,
                _ => return None,
            },
            since: fields.varint()?,
        })
    }
}

impl Descriptor {
    /// Reads the descriptor of `tree`.
    ///
    /// # Errors
    ///
    /// `Unsupported` where a newer version wrote it, `Corruption` where it is malformed.
    pub(crate) fn decode(tree: TreeId, bytes: &[u8]) -> Result<Self> {
        let mut decoder = Decoder::new(bytes);
        let damaged = || {
            Error::new(ErrorKind::Corruption, format!("manifest: the descriptor of tree {tree} is damaged"))
        };
        let (kind, format) = (decoder.u8().ok_or_else(damaged)?, decoder.u8().ok_or_else(damaged)?);
        if format != FORMAT || !matches!(kind, KIND_COLLECTION | KIND_INDEX) {
            let what = format!("tree {tree} has a descriptor of kind {kind}, format {format}");
            return Err(Error::unsupported("manifest", format!("{what}, which this version does not know")));
        }
        let mut fields = decoder.bytes().map(Decoder::new).ok_or_else(damaged)?;
        let descriptor = match kind {
            KIND_COLLECTION => CollectionDescriptor::decode(&mut fields).map(Self::Collection),
            _ => IndexDescriptor::decode(&mut fields).map(Self::Index),
        };
        descriptor.filter(|_| decoder.is_empty()).ok_or_else(damaged)
    }
}

/// Says in words what a descriptor from the manifest means, for programs that show files to people.
///
/// # Errors
/// `Unsupported` where a newer version wrote it, `Corruption` where it is malformed.
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
                CollectionState::Creating => "being created",
                CollectionState::Live => "live",
                CollectionState::Dropping => "being dropped",
            };
            format!("collection {:?}, {state}, records: {records}, keys: {keys}", found.name)
        }
        Descriptor::Index(found) => {
            let state = match found.state {
                IndexState::Building => "building".to_owned(),
                IndexState::Ready => format!("ready since {}", found.since),
            };
            format!("index {:?} of tree {}, {state}: {}", found.name, found.owner, found.spec)
        }
    })
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
            "the name of {what} must not hold control characters: {name:?}"
        )));
    }
    Ok(())
}

fn envelope(kind: u8, fields: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(fields.len() + 8);
    out.push(kind);
    out.push(FORMAT);
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

    fn samples() -> Vec<Descriptor> {
        let mut samples = Vec::new();
        for state in [CollectionState::Creating, CollectionState::Live, CollectionState::Dropping] {
            for (records, keys) in
                [(RecordKind::Json, KeyFormat::Typed), (RecordKind::Bytes, KeyFormat::Bytes)]
            {
                let name = "posts".to_owned();
                samples.push(Descriptor::Collection(CollectionDescriptor { name, state, records, keys }));
            }
        }
        for state in [IndexState::Building, IndexState::Ready] {
            samples.push(Descriptor::Index(IndexDescriptor {
                owner: 7,
                name: "é".repeat(MAX_NAME_BYTES / 2),
                spec: "user.id:composite".to_owned(),
                state,
                since: bolide_base::MAX_SEQUENCE,
            }));
        }
        samples
    }

    fn encode(descriptor: &Descriptor) -> Vec<u8> {
        match descriptor {
            Descriptor::Collection(collection) => collection.encode(),
            Descriptor::Index(index) => index.encode(),
        }
    }

    #[test]
    fn descriptors_round_trip_and_every_cut_is_found() {
        for sample in samples() {
            let bytes = encode(&sample);
            assert_eq!(Descriptor::decode(3, &bytes).unwrap(), sample);
            assert!(describe_descriptor(&bytes).unwrap().contains('"'));
            for cut in 0..bytes.len() {
                assert!(Descriptor::decode(3, &bytes[..cut]).unwrap_err().is_corruption());
            }
            let mut longer = bytes;
            longer.push(0);
            assert!(Descriptor::decode(3, &longer).unwrap_err().is_corruption());
        }
    }

    #[test]
    fn a_newer_format_is_unsupported_and_appended_fields_are_skipped() {
        let sample = &samples()[0];
        let mut newer = encode(sample);
        newer[1] = FORMAT + 1;
        assert_eq!(Descriptor::decode(3, &newer).unwrap_err().kind(), ErrorKind::Unsupported);
        let mut appended = encode(sample);
        appended[2] += 1;
        appended.push(9);
        assert_eq!(Descriptor::decode(3, &appended).unwrap(), *sample);
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
