//! Where the region of an index lies, and what the manifest says of it.
//!
//! ```text
//! root of a keeper := root of page segments | in place
//! in place         := 00, state (1 byte: 1 being made, 2 in use), tag (8 bytes), next tag (8 bytes), path of the file
//! ```
//! The root of page segments begins with the number of a file, which is not 0. The path of a file in place is a name in the
//! directory of the database, or an absolute path. The manifest names it before it is made, so that no file is lost sight of; while it is being
//! made, all that belongs into it is in the log and in the tree of the index.
//!
//! # Tags
//! A file in place changes, and so do its copies in copies of the database. So each opening for writing gives it a new random
//! tag: first the manifest names the tag that it has and the next one, then the region takes the next one. A region with
//! neither of the two tags is that of another copy: damage.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bolide_base::coding::{Decoder, put_u64};
use bolide_base::{Error, ErrorKind, Result, SequenceNumber, TreeId};
use bolide_lsm::external_tree::ExternalRoot;
use bolide_lsm::page_log::{LoadedRegion, PageLog, RootPointer};
use bolide_storage::pmem::{Region, RegionOptions, RegionWriter};
use bolide_storage::{Runtime, Vfs};
use parking_lot::Mutex;

use super::deleted_ranges::DeletedRanges;
use super::figures::PsTreeFigures;
use crate::spec::{IndexSpec, RegionPlace};

/// The root slot of a region in place with the sequence number through which it has every write whole.
const THROUGH_SLOT: usize = 30;
/// The root slot of a region in place with its tag; 0 before it has one.
const TAG_SLOT: usize = 29;
/// What files of regions in place are called at the end.
const EXTENSION: &str = "pmem";

const MARKER: u8 = 0;
const BEING_MADE: u8 = 1;
const IN_USE: u8 = 2;

/// Where the files of an index lie, and what it depends on.
#[derive(Debug, Clone)]
pub struct RegionLocation {
    /// The file system.
    pub vfs: Arc<dyn Vfs>,
    /// The threads that read a region.
    pub runtime: Arc<dyn Runtime>,
    /// The directory of the database.
    pub dir: PathBuf,
    /// The directory of regions in persistent memory: an absolute path; where it is not set, that of the database.
    pub dax_dir: Option<PathBuf>,
    /// The random number of the database.
    pub database_id: u64,
    /// A random number, the next tag of a region in place; not 0.
    pub tag: u64,
    /// A random number of the index's own, for the hash of primary keys and the name of its file.
    pub seed: u64,
    /// Nothing is to be written: what changes is gone with the process.
    pub read_only: bool,
    /// The deleted ranges of the records.
    pub deleted: Arc<dyn DeletedRanges>,
}

/// How a region becomes durable.
pub(super) enum Durability {
    /// Its pages are written to segments by cuts.
    Pages(Box<Mutex<PageLog>>),
    /// By itself.
    InPlace(InPlace),
}

/// A region that is changed in place, in persistent memory.
pub(super) struct InPlace {
    /// Its path as the manifest has it.
    named: String,
    /// The tag that it has, and the next one.
    tags: [u64; 2],
    /// The write that is being applied; 0 before the first.
    current: AtomicU64,
    /// The first write that was applied: a power cut may have cut it off before.
    first: AtomicU64,
    /// Bytes written back since the region was opened that the manifest has noted.
    pub(super) noted_bytes: AtomicU64,
}

/// What may help where a region is not found.
const MOVED: &str = "Options::dax_dir says where regions were moved to";

/// Bytes that were written back to persistent memory since `region` was opened.
pub(super) fn in_place_bytes(region: &Region) -> u64 {
    region.stats().persisted_lines * bolide_storage::pmem::LINE_BYTES as u64
}

/// A region, and what is known of it.
pub(super) struct Opened {
    pub(super) region: Arc<Region>,
    pub(super) durability: Durability,
    /// The region has every write through this number.
    pub(super) sequence: SequenceNumber,
    /// There is nothing in it yet.
    pub(super) is_new: bool,
}

/// The root of a region in place, decoded: its state, its tags, and the path of its file.
struct NamedInPlace<'r> {
    being_made: bool,
    tags: [u64; 2],
    path: &'r str,
}

fn in_place_of(root: &ExternalRoot) -> Option<NamedInPlace<'_>> {
    let [MARKER, state @ (BEING_MADE | IN_USE), rest @ ..] = root.root.as_slice() else { return None };
    let mut rest = Decoder::new(rest);
    let tags = [rest.u64()?, rest.u64()?];
    let path = std::str::from_utf8(rest.rest()).ok()?;
    let is_plain = Path::new(path).file_name().is_some()
        && (Path::new(path).is_absolute() || Path::new(path).components().count() == 1);
    is_plain.then_some(NamedInPlace { being_made: *state == BEING_MADE, tags, path })
}

/// Where the file is that the manifest has as `named`: in `dax_dir` if that is set, and else where it was made.
fn resolve(named: &str, dir: &Path, dax_dir: Option<&Path>) -> PathBuf {
    match (dax_dir, Path::new(named).file_name()) {
        (Some(dax_dir), Some(name)) => dax_dir.join(name),
        _ => dir.join(named),
    }
}

/// The path of the file in persistent memory that `root` names, of a database in `dir`; `None` for another root.
pub fn file_in_place(root: &ExternalRoot, dir: &Path, dax_dir: Option<&Path>) -> Option<PathBuf> {
    in_place_of(root).map(|named| resolve(named.path, dir, dax_dir))
}

/// Whether a file of this name in the directory of the database `database_id` is one of its regions in place.
pub fn is_file_in_place(name: &str, database_id: u64) -> bool {
    let rest = name.strip_prefix(&format!("{database_id:016x}-"));
    rest.is_some_and(|rest| rest.ends_with(&format!(".{EXTENSION}")))
}

impl RegionLocation {
    fn path_of(&self, named: &str) -> PathBuf {
        resolve(named, &self.dir, self.dax_dir.as_deref())
    }

    /// A name that was never used, as the manifest is to have it.
    fn new_name(&self, tree: TreeId) -> Result<String> {
        let name = format!("{:016x}-{tree:06}-{:08x}.{EXTENSION}", self.database_id, self.seed as u32);
        let Some(dax_dir) = &self.dax_dir else { return Ok(name) };
        let path = dax_dir.join(name);
        match path.to_str() {
            Some(text) if path.is_absolute() => Ok(text.to_owned()),
            _ => Err(Error::invalid_input(format!(
                "the directory of persistent memory, {}, is to be an absolute path in UTF-8",
                dax_dir.display()
            ))),
        }
    }
}

impl NamedInPlace<'_> {
    /// The tag of `region`, whose file is at `path`: one of those that the manifest names; 0 for one that is being made and
    /// has none yet.
    fn require_tag(&self, region: &Region, path: &Path) -> Result<u64> {
        let found = region.root(TAG_SLOT)?;
        if self.tags.contains(&found) || (self.being_made && found == 0) {
            return Ok(found);
        }
        let [tag, next] = self.tags;
        let what = format!(
            "the file is another one under this name: its tag is {found:016x}, not {tag:016x} or {next:016x}"
        );
        Err(Error::corruption(path.display(), 0, what))
    }
}

impl InPlace {
    fn new(named: &str, tags: [u64; 2]) -> Self {
        Self {
            named: named.into(),
            tags,
            current: AtomicU64::new(0),
            first: AtomicU64::new(0),
            noted_bytes: AtomicU64::new(0),
        }
    }

    fn root(&self, state: u8) -> ExternalRoot {
        let mut root = vec![MARKER, state];
        self.tags.iter().for_each(|tag| put_u64(&mut root, *tag));
        root.extend_from_slice(self.named.as_bytes());
        ExternalRoot { files: Vec::new(), root }
    }

    /// What the manifest is to name once the log lets go of what the region has.
    pub(super) fn root_in_use(&self) -> ExternalRoot {
        self.root(IN_USE)
    }

    /// Takes note that the writes before the one at `sequence` were applied whole. All they stored is durable: each
    /// ended with a fence.
    pub(super) fn begin(&self, writer: &RegionWriter<'_>, sequence: SequenceNumber) -> Result<()> {
        let before = self.current.swap(sequence, Ordering::Relaxed);
        if before == 0 {
            self.first.store(sequence, Ordering::Relaxed);
        }
        if before != 0 && before != sequence { note_through(writer, before) } else { Ok(()) }
    }

    /// Takes note that all that was applied is whole.
    pub(super) fn settle(&self, writer: &RegionWriter<'_>) -> Result<()> {
        match self.current.load(Ordering::Relaxed) {
            0 => Ok(()),
            sequence => note_through(writer, sequence),
        }
    }

    /// Whether the region may have a part of the write at `sequence` from before it was opened.
    pub(super) fn may_have_part_of(&self, sequence: SequenceNumber) -> bool {
        self.first.load(Ordering::Relaxed) == sequence
    }
}

/// The sequence number through which a region in place has every write whole.
pub(super) fn through(region: &Region) -> Result<SequenceNumber> {
    region.root(THROUGH_SLOT)
}

/// Gives a region in place its tag.
fn set_tag(region: &Region, tag: u64) -> Result<()> {
    let writer = region.writer();
    writer.set_root(TAG_SLOT, tag)?;
    writer.fence();
    Ok(())
}

fn note_through(writer: &RegionWriter<'_>, sequence: SequenceNumber) -> Result<()> {
    writer.set_root(THROUGH_SLOT, sequence)?;
    writer.fence();
    Ok(())
}

impl Opened {
    /// The region that `root` names, or a new one, of the index that `spec` declares. `name_root` makes the manifest
    /// name another root.
    pub(super) fn open(
        spec: &IndexSpec,
        tree: TreeId,
        root: Option<&ExternalRoot>,
        home: &RegionLocation,
        name_root: &dyn Fn(ExternalRoot) -> Result<()>,
    ) -> Result<Self> {
        let name = format!("index {}", spec.name());
        let options = RegionOptions::new().name(name.clone()).id(u64::from(tree));
        if let Some(named) = root.and_then(in_place_of) {
            return Self::open_in_place(options, &named, home, name_root);
        }
        let is_in_place = spec.region() == RegionPlace::Dax && !home.read_only;
        let Some(root) = root else {
            if is_in_place {
                let named = home.new_name(tree)?;
                name_root(InPlace::new(&named, [home.tag; 2]).root(BEING_MADE))?;
                return Self::create_in_place(options, &named, home);
            }
            return Self::in_memory(options, home);
        };
        let pointer = RootPointer::decode(&root.root)
            .ok_or_else(|| Error::new(ErrorKind::Corruption, format!("{name}: a malformed root")))?;
        let vfs = home.vfs.clone();
        let LoadedRegion { region, log, sequence } =
            PageLog::load_shared(&home.runtime, vfs, &home.dir, pointer, options.clone())?;
        // A checkpoint has pages of what was in place. Where there is no persistent memory it stays so.
        if is_in_place && let Some(moved) = Self::move_in_place(&region, sequence, options, home, name_root)?
        {
            return Ok(moved);
        }
        let durability = Durability::Pages(Box::new(Mutex::new(log)));
        Ok(Self { region: Arc::new(region), durability, sequence, is_new: false })
    }

    fn in_memory(options: RegionOptions, home: &RegionLocation) -> Result<Self> {
        let log = PageLog::create(home.vfs.clone(), &home.dir, options.id);
        let region = Arc::new(Region::in_memory(options)?);
        Ok(Self {
            region,
            durability: Durability::Pages(Box::new(Mutex::new(log))),
            sequence: 0,
            is_new: true,
        })
    }

    fn open_in_place(
        options: RegionOptions,
        named: &NamedInPlace<'_>,
        home: &RegionLocation,
        name_root: &dyn Fn(ExternalRoot) -> Result<()>,
    ) -> Result<Self> {
        let being_made = named.being_made;
        let path = home.path_of(named.path);
        let opened = home.vfs.open_region(&path, options.clone(), home.read_only);
        match opened.and_then(|region| named.require_tag(&region, &path).map(|tag| (region, tag))) {
            Ok((region, tag)) => {
                let is_new = being_made && region.root(0)? == 0;
                let mut place = InPlace::new(named.path, [tag, home.tag]);
                if !home.read_only {
                    name_root(place.root(if being_made { BEING_MADE } else { IN_USE }))?;
                    set_tag(&region, home.tag)?;
                    place.tags = [home.tag; 2];
                }
                let sequence = through(&region)?;
                Ok(Self { region, durability: Durability::InPlace(place), sequence, is_new })
            }
            // What belongs into it is all in the log and in the tree.
            Err(_) if being_made && home.read_only => Self::in_memory(options, home),
            Err(error) if being_made && error.kind() != ErrorKind::Unsupported => {
                match home.vfs.remove(&path) {
                    Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
                    _ => {
                        name_root(InPlace::new(named.path, [home.tag; 2]).root(BEING_MADE))?;
                        Self::create_in_place(options, named.path, home)
                    }
                }
            }
            // The manifest names it.
            Err(error) if error.kind() == ErrorKind::NotFound => Err(Error::corruption(
                path.display(),
                0,
                format!("the region of {} is missing ({MOVED})", options.name),
            )),
            Err(error) => Err(error.context(format!("{} ({MOVED})", options.name))),
        }
    }

    fn create_in_place(options: RegionOptions, named: &str, home: &RegionLocation) -> Result<Self> {
        let region = home.vfs.create_region(&home.path_of(named), options)?;
        set_tag(&region, home.tag)?;
        let durability = Durability::InPlace(InPlace::new(named, [home.tag; 2]));
        Ok(Self { region, durability, sequence: 0, is_new: true })
    }

    /// Makes a region in place of what a cut has, and has the manifest name it; `None` where there is no persistent
    /// memory.
    fn move_in_place(
        source: &Region,
        sequence: SequenceNumber,
        options: RegionOptions,
        home: &RegionLocation,
        name_root: &dyn Fn(ExternalRoot) -> Result<()>,
    ) -> Result<Option<Self>> {
        let named = home.new_name(options.id as TreeId)?;
        let opened = match Self::create_in_place(options, &named, home) {
            Err(error) if error.kind() == ErrorKind::Unsupported => return Ok(None),
            opened => opened?,
        };
        let filled = opened.region.fill_from(source).and_then(|()| {
            set_tag(&opened.region, home.tag)?;
            note_through(&opened.region.writer(), sequence)?;
            name_root(InPlace::new(&named, [home.tag; 2]).root(IN_USE))
        });
        if let Err(error) = filled {
            // Unless the manifest may name it.
            if matches!(error.kind(), ErrorKind::NoSpace | ErrorKind::InvalidInput) {
                let _ = home.vfs.remove(&home.path_of(&named));
            }
            return Err(error);
        }
        Ok(Some(Self { sequence, is_new: false, ..opened }))
    }
}

impl Durability {
    /// Adds what it takes.
    pub(super) fn add_figures(&self, region: &Region, figures: &mut PsTreeFigures) {
        match self {
            Self::Pages(log) => {
                let log = log.lock().stats();
                figures.disk_bytes = log.total_bytes;
                figures.disk_live_bytes = log.live_bytes;
                figures.segments = log.segments;
                figures.written_bytes = log.written_bytes + log.moved_bytes;
            }
            Self::InPlace(_) => {
                let stats = region.stats();
                figures.in_place = true;
                figures.disk_bytes = stats.reserved_bytes;
                figures.disk_live_bytes = stats.allocated_bytes;
                figures.written_bytes = in_place_bytes(region);
            }
        }
    }
}

impl fmt::Debug for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pages(_) => f.write_str("by cuts"),
            Self::InPlace(place) => write!(f, "in place in {}", place.named),
        }
    }
}

#[cfg(test)]
mod tests {
    use bolide_base::FileIdentity;

    use super::*;

    #[test]
    fn roots_in_place_are_told_from_roots_of_pages() {
        let name = "00000000000000ab-000003-0000cd12.pmem";
        let place = InPlace::new(name, [5, 6]);
        for (root, being_made) in [(place.root(BEING_MADE), true), (place.root_in_use(), false)] {
            let named = in_place_of(&root).unwrap();
            assert_eq!((named.being_made, named.tags, named.path), (being_made, [5, 6], name));
        }
        assert!(RootPointer::decode(&place.root_in_use().root).is_none());
        let pages =
            RootPointer { file: FileIdentity { file_number: 7, tag: 1 }, offset: 4160, len: 48 }.encode();
        let tagged = |state: u8, path: &[u8]| [&[0, state], [7; 16].as_slice(), path].concat();
        let others = [
            pages,
            tagged(3, b"a"),
            tagged(2, b""),
            tagged(2, b"../a"),
            tagged(2, b"a/b"),
            vec![0, 2, 1],
            vec![],
        ];
        for root in others {
            assert!(in_place_of(&ExternalRoot { files: Vec::new(), root: root.clone() }).is_none(), "{root:?}");
        }
        assert!(in_place_of(&ExternalRoot { files: Vec::new(), root: tagged(2, b"a") }).is_some());
        assert!(is_file_in_place(name, 0xab) && !is_file_in_place(name, 0xac));
        assert!(!is_file_in_place("00000000000000ab-000003.sst", 0xab));
    }

    #[test]
    fn a_file_is_where_it_was_made_unless_the_settings_say_otherwise() {
        let of = |named: &str, dax_dir: Option<&str>| {
            let root = InPlace::new(named, [1, 2]).root_in_use();
            file_in_place(&root, Path::new("/db"), dax_dir.map(Path::new))
        };
        assert_eq!(of("a.pmem", None), Some("/db/a.pmem".into()));
        assert_eq!(of("/mnt/a.pmem", None), Some("/mnt/a.pmem".into()));
        assert_eq!(of("/mnt/a.pmem", Some("/other")), Some("/other/a.pmem".into()));
    }
}
