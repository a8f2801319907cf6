//! The location of the region of an index, and its root in the manifest.
//!
//! ```text
//! root of an external tree := root of page segments | in place
//! in place                 := 00, state (1 byte: 1 in creation, 2 in use), tag (8 bytes), next tag (8 bytes), file path
//! ```
//! The root of page segments begins with the number of a file, which is not 0. The path of a file in place is a name in the
//! directory of the database, or an absolute path. The manifest names the file before it is created, so that no file is
//! lost. During creation, all its content is also in the log and in the tree of the index.
//!
//! # Tags
//! A file in place changes, and so do its copies in copies of the database. So each opening for writing assigns a new random
//! tag: first the manifest names the present tag and the next one, then the region stores the next one. A region with
//! neither of the two tags belongs to another copy: this is reported as damage.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bolide_base::coding::{Decoder, put_u64};
use bolide_base::{Error, ErrorKind, Result, SequenceNumber, TreeId};
use bolide_lsm::external_tree::ExternalRoot;
use bolide_lsm::page_log::{LoadedRegion, PageLog, RootPointer};
use bolide_memory::{MemoryBudget, MemoryHolder, MemoryUse};
use bolide_storage::pmem::{Region, RegionOptions, RegionWriter};
use bolide_storage::{Runtime, Vfs};
use parking_lot::Mutex;

use super::deleted_ranges::DeletedRanges;
use super::figures::PsTreeFigures;
use crate::spec::{IndexSpec, RegionPlace};

/// The root slot of a region in place with the sequence number through which every write is complete.
const THROUGH_SLOT: usize = 30;
/// The root slot of a region in place with its tag; 0 before the first tag is set.
const TAG_SLOT: usize = 29;
/// The file name extension of regions in place.
const EXTENSION: &str = "pmem";

const MARKER: u8 = 0;
const BEING_MADE: u8 = 1;
const IN_USE: u8 = 2;

/// The location of the files of an index, and its environment.
#[derive(Debug, Clone)]
pub struct RegionLocation {
    /// The file system.
    pub vfs: Arc<dyn Vfs>,
    /// Starts the threads that read a region.
    pub runtime: Arc<dyn Runtime>,
    /// The directory of the database.
    pub dir: PathBuf,
    /// The directory of regions in persistent memory, an absolute path. `None`: the directory of the database.
    pub dax_dir: Option<PathBuf>,
    /// The random number of the database.
    pub database_id: u64,
    /// A random number, the next tag of a region in place; not 0.
    pub tag: u64,
    /// A random number of the index, for the hash of primary keys and the name of its file.
    pub seed: u64,
    /// Read-only mode: changes are lost when the process ends.
    pub read_only: bool,
    /// The deleted ranges of the records.
    pub deleted: Arc<dyn DeletedRanges>,
    /// Counts the memory of a region that is not in place.
    pub memory: RegionMemory,
    /// Receives the sequence number through which the region is durable.
    pub durable: Arc<AtomicU64>,
}

/// The budget of the memory of an index, and the name of the index in it.
#[derive(Debug, Clone)]
pub struct RegionMemory {
    /// The budget of the database.
    pub budget: Arc<MemoryBudget>,
    /// Collection and index.
    pub name: Arc<str>,
}

impl RegionMemory {
    /// A holder for one opening of the region, which it belongs to: a failed opening gives back what it counted.
    fn holder(&self) -> Arc<MemoryHolder> {
        Arc::new(self.budget.holder(MemoryUse::IndexRegions, Some(self.name.clone())))
    }
}

/// How a region becomes durable.
pub(super) enum Durability {
    /// Checkpoints write its pages to segments.
    Pages(Box<Mutex<PageLog>>),
    /// Writes are durable at once.
    InPlace(InPlace),
}

/// A region that is changed in place, in persistent memory.
pub(super) struct InPlace {
    /// The file path as in the manifest.
    named: String,
    /// The present tag, and the next one.
    tags: [u64; 2],
    /// The sequence number of the write that is being applied; 0 before the first.
    current: AtomicU64,
    /// The first write applied since the opening; a power cut may have interrupted it before.
    first: AtomicU64,
    /// Bytes written back since the region was opened, as of the last installed checkpoint.
    pub(super) noted_bytes: AtomicU64,
}

/// A hint in error messages about a missing region.
const MOVED: &str = "set Options::dax_dir to the directory that regions were moved to";

/// Bytes that were written back to persistent memory since `region` was opened.
pub(super) fn in_place_bytes(region: &Region) -> u64 {
    region.stats().persisted_lines * bolide_storage::pmem::LINE_BYTES as u64
}

/// An open region.
pub(super) struct OpenedRegion {
    pub(super) region: Arc<Region>,
    pub(super) durability: Durability,
    /// The region contains every write through this number.
    pub(super) sequence: SequenceNumber,
    /// The region is empty.
    pub(super) is_new: bool,
}

/// The decoded root of a region in place: its state, its tags, and the path of its file.
struct InPlaceRoot<'r> {
    being_made: bool,
    tags: [u64; 2],
    path: &'r str,
}

/// Whether `root` names a region in place.
pub(super) fn is_in_place(root: &ExternalRoot) -> bool {
    in_place_of(root).is_some()
}

fn in_place_of(root: &ExternalRoot) -> Option<InPlaceRoot<'_>> {
    let [MARKER, state @ (BEING_MADE | IN_USE), rest @ ..] = root.root.as_slice() else { return None };
    let mut rest = Decoder::new(rest);
    let tags = [rest.u64()?, rest.u64()?];
    let path = std::str::from_utf8(rest.rest()).ok()?;
    let is_valid = Path::new(path).file_name().is_some()
        && (Path::new(path).is_absolute() || Path::new(path).components().count() == 1);
    is_valid.then_some(InPlaceRoot { being_made: *state == BEING_MADE, tags, path })
}

/// The path of the file that is `named` in the manifest: in `dax_dir` if that is set, else where it was created.
fn resolve(named: &str, dir: &Path, dax_dir: Option<&Path>) -> PathBuf {
    match (dax_dir, Path::new(named).file_name()) {
        (Some(dax_dir), Some(name)) => dax_dir.join(name),
        _ => dir.join(named),
    }
}

/// The path of the file in persistent memory that `root` names, for a database in `dir`; `None` for another root.
pub fn file_in_place(root: &ExternalRoot, dir: &Path, dax_dir: Option<&Path>) -> Option<PathBuf> {
    in_place_of(root).map(|named| resolve(named.path, dir, dax_dir))
}

/// Whether `name`, in the directory of the database `database_id`, is the name of one of its regions in place.
pub fn is_file_in_place(name: &str, database_id: u64) -> bool {
    let rest = name.strip_prefix(&format!("{database_id:016x}-"));
    rest.is_some_and(|rest| rest.ends_with(&format!(".{EXTENSION}")))
}

impl RegionLocation {
    fn path_of(&self, named: &str) -> PathBuf {
        resolve(named, &self.dir, self.dax_dir.as_deref())
    }

    /// A name that was never used, as the manifest will name it.
    fn new_name(&self, tree: TreeId) -> Result<String> {
        let name = format!("{:016x}-{tree:06}-{:08x}.{EXTENSION}", self.database_id, self.seed as u32);
        let Some(dax_dir) = &self.dax_dir else { return Ok(name) };
        let path = dax_dir.join(name);
        match path.to_str() {
            Some(text) if path.is_absolute() => Ok(text.to_owned()),
            _ => Err(Error::invalid_input(format!(
                "the directory of persistent memory, {}, is not an absolute path in UTF-8",
                dax_dir.display()
            ))),
        }
    }
}

impl InPlaceRoot<'_> {
    /// The tag of `region`, whose file is at `path`: one of those in the manifest, or 0 for a region in creation without a
    /// tag.
    fn require_tag(&self, region: &Region, path: &Path) -> Result<u64> {
        let found = region.root(TAG_SLOT)?;
        if self.tags.contains(&found) || (self.being_made && found == 0) {
            return Ok(found);
        }
        let [tag, next] = self.tags;
        let what = format!(
            "the file does not belong to this database: its tag is {found:016x}, not {tag:016x} or {next:016x}"
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

    /// The root for the manifest once the log releases the writes that the region contains.
    pub(super) fn root_in_use(&self) -> ExternalRoot {
        self.root(IN_USE)
    }

    /// Begins a write, and notes that the writes before the one at `sequence` are complete. All their stores are durable:
    /// each write ended with a fence.
    pub(super) fn begin_write(&self, writer: &RegionWriter<'_>, sequence: SequenceNumber) -> Result<()> {
        let before = self.current.swap(sequence, Ordering::Relaxed);
        if before == 0 {
            self.first.store(sequence, Ordering::Relaxed);
        }
        if before != 0 && before != sequence { note_through(writer, before) } else { Ok(()) }
    }

    /// Notes that all applied writes are complete.
    pub(super) fn note_all_applied(&self, writer: &RegionWriter<'_>) -> Result<()> {
        match self.current.load(Ordering::Relaxed) {
            0 => Ok(()),
            sequence => note_through(writer, sequence),
        }
    }

    /// Whether the region may contain a part of the write at `sequence` from before it was opened.
    pub(super) fn may_have_part_of(&self, sequence: SequenceNumber) -> bool {
        self.first.load(Ordering::Relaxed) == sequence
    }
}

/// The sequence number through which every write is complete in a region in place.
pub(super) fn through(region: &Region) -> Result<SequenceNumber> {
    region.root(THROUGH_SLOT)
}

/// Stores the tag of a region in place.
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

impl OpenedRegion {
    /// Opens the region that `root` names, or creates one, for the index that `spec` declares. `name_root` makes the manifest
    /// name another root.
    pub(super) fn open(
        spec: &IndexSpec,
        tree: TreeId,
        root: Option<&ExternalRoot>,
        location: &RegionLocation,
        name_root: &dyn Fn(ExternalRoot) -> Result<()>,
    ) -> Result<Self> {
        let name = format!("index {}", spec.name());
        let options =
            RegionOptions::new().name(name.clone()).id(u64::from(tree)).memory(location.memory.holder());
        if let Some(named) = root.and_then(in_place_of) {
            return Self::open_in_place(options, &named, location, name_root);
        }
        let is_in_place = spec.region() == RegionPlace::Dax && !location.read_only;
        let Some(root) = root else {
            if is_in_place {
                let named = location.new_name(tree)?;
                name_root(InPlace::new(&named, [location.tag; 2]).root(BEING_MADE))?;
                return Self::create_in_place(options, &named, location);
            }
            return Self::in_memory(options, location);
        };
        let pointer = RootPointer::decode(&root.root)
            .ok_or_else(|| Error::new(ErrorKind::Corruption, format!("{name}: a malformed root")))?;
        let vfs = location.vfs.clone();
        let LoadedRegion { region, log, sequence } =
            PageLog::load_shared(&location.runtime, vfs, &location.dir, pointer, options.clone())?;
        // A checkpoint contains the pages of a region in place. Without persistent memory it stays on pages.
        if is_in_place
            && let Some(moved) = Self::move_in_place(&region, sequence, options, location, name_root)?
        {
            return Ok(moved);
        }
        let durability = Durability::Pages(Box::new(Mutex::new(log)));
        Ok(Self { region: Arc::new(region), durability, sequence, is_new: false })
    }

    fn in_memory(options: RegionOptions, location: &RegionLocation) -> Result<Self> {
        let log = PageLog::create(location.vfs.clone(), &location.dir, options.id);
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
        named: &InPlaceRoot<'_>,
        location: &RegionLocation,
        name_root: &dyn Fn(ExternalRoot) -> Result<()>,
    ) -> Result<Self> {
        let being_made = named.being_made;
        let path = location.path_of(named.path);
        let opened = location.vfs.open_region(&path, options.clone(), location.read_only);
        match opened.and_then(|region| named.require_tag(&region, &path).map(|tag| (region, tag))) {
            Ok((region, tag)) => {
                let is_new = being_made && region.root(0)? == 0;
                let mut place = InPlace::new(named.path, [tag, location.tag]);
                if !location.read_only {
                    name_root(place.root(if being_made { BEING_MADE } else { IN_USE }))?;
                    set_tag(&region, location.tag)?;
                    place.tags = [location.tag; 2];
                }
                let sequence = through(&region)?;
                Ok(Self { region, durability: Durability::InPlace(place), sequence, is_new })
            }
            // All its content is in the log and in the tree.
            Err(_) if being_made && location.read_only => Self::in_memory(options, location),
            Err(error) if being_made && error.kind() != ErrorKind::Unsupported => {
                match location.vfs.remove(&path) {
                    Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
                    _ => {
                        name_root(InPlace::new(named.path, [location.tag; 2]).root(BEING_MADE))?;
                        Self::create_in_place(options, named.path, location)
                    }
                }
            }
            // A missing file is damage: the manifest names it.
            Err(error) if error.kind() == ErrorKind::NotFound => Err(Error::corruption(
                path.display(),
                0,
                format!("the region of {} is missing ({MOVED})", options.name),
            )),
            Err(error) => Err(error.context(format!("{} ({MOVED})", options.name))),
        }
    }

    fn create_in_place(options: RegionOptions, named: &str, location: &RegionLocation) -> Result<Self> {
        let region = location.vfs.create_region(&location.path_of(named), options)?;
        set_tag(&region, location.tag)?;
        let durability = Durability::InPlace(InPlace::new(named, [location.tag; 2]));
        Ok(Self { region, durability, sequence: 0, is_new: true })
    }

    /// Moves the region of a checkpoint into persistent memory, and makes the manifest name it. `None` without persistent
    /// memory.
    fn move_in_place(
        source: &Region,
        sequence: SequenceNumber,
        options: RegionOptions,
        location: &RegionLocation,
        name_root: &dyn Fn(ExternalRoot) -> Result<()>,
    ) -> Result<Option<Self>> {
        let named = location.new_name(options.id as TreeId)?;
        let opened = match Self::create_in_place(options, &named, location) {
            Err(error) if error.kind() == ErrorKind::Unsupported => return Ok(None),
            opened => opened?,
        };
        let filled = opened.region.fill_from(source).and_then(|()| {
            set_tag(&opened.region, location.tag)?;
            note_through(&opened.region.writer(), sequence)?;
            name_root(InPlace::new(&named, [location.tag; 2]).root(IN_USE))
        });
        if let Err(error) = filled {
            // Keeps the file if the manifest may name it.
            if matches!(error.kind(), ErrorKind::NoSpace | ErrorKind::InvalidInput) {
                let _ = location.vfs.remove(&location.path_of(&named));
            }
            return Err(error);
        }
        Ok(Some(Self { sequence, is_new: false, ..opened }))
    }
}

impl Durability {
    /// Adds sizes and written bytes.
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
            Self::Pages(_) => f.write_str("by checkpoints"),
            Self::InPlace(place) => write!(f, "in place in {}", place.named),
        }
    }
}

#[cfg(test)]
mod tests {
    use bolide_base::FileIdentity;

    use super::*;

    #[test]
    fn roots_in_place_differ_from_roots_of_pages() {
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
        let invalid_roots = [
            pages,
            tagged(3, b"a"),
            tagged(2, b""),
            tagged(2, b"../a"),
            tagged(2, b"a/b"),
            vec![0, 2, 1],
            vec![],
        ];
        for root in invalid_roots {
            assert!(
                in_place_of(&ExternalRoot { files: Vec::new(), root: root.clone() }).is_none(),
                "{root:?}"
            );
        }
        assert!(in_place_of(&ExternalRoot { files: Vec::new(), root: tagged(2, b"a") }).is_some());
        assert!(is_file_in_place(name, 0xab) && !is_file_in_place(name, 0xac));
        assert!(!is_file_in_place("00000000000000ab-000003.sst", 0xab));
    }

    #[test]
    fn a_file_is_in_its_original_directory_unless_dax_dir_is_set() {
        let of = |named: &str, dax_dir: Option<&str>| {
            let root = InPlace::new(named, [1, 2]).root_in_use();
            file_in_place(&root, Path::new("/db"), dax_dir.map(Path::new))
        };
        assert_eq!(of("a.pmem", None), Some("/db/a.pmem".into()));
        assert_eq!(of("/mnt/a.pmem", None), Some("/mnt/a.pmem".into()));
        assert_eq!(of("/mnt/a.pmem", Some("/other")), Some("/other/a.pmem".into()));
    }
}
