//! The options of a specification.

use bolide_base::{Error, Result};

use super::kind::IndexKind;
use crate::path::{self, AttributePath};

/// Default bits of the Bloom filters of an embedded index per value.
pub const DEFAULT_BLOOM_BITS: u32 = 20;

/// Maximum bits of Bloom filter per value.
pub const MAX_BLOOM_BITS: u32 = 200;

/// Default size of a page of a ps-tree, in bytes.
const DEFAULT_PAGE_BYTES: u32 = 4096;

/// Minimum memory of a ps-tree, in bytes: one page.
const MIN_MEMORY_BYTES: u64 = 4096;

/// Default approximate size of an index block of kind `next`, in bytes.
const DEFAULT_BLOCK_BYTES: u32 = 4096;

/// Maximum number of included attributes of an index.
pub const MAX_INCLUDED: usize = 16;

/// An option with a fixed set of words as values.
trait Choice: Copy + Default + PartialEq + 'static {
    /// The name of the option.
    const OPTION: &'static str;
    /// All values with their words.
    const WORDS: &'static [(Self, &'static str)];

    fn word(self) -> &'static str {
        Self::WORDS.iter().find(|(value, _)| *value == self).map_or("", |(_, word)| word)
    }

    fn parse(text: &str) -> Result<Self> {
        Self::WORDS.iter().find(|(_, word)| *word == text).map(|(value, _)| *value).ok_or_else(|| {
            let words: Vec<String> = Self::WORDS.iter().map(|(_, word)| format!("`{word}`")).collect();
            Error::invalid_input(format!("option {}: `{text}` is none of {}", Self::OPTION, words.join(", ")))
        })
    }
}

/// The maintenance of the entries of replaced and deleted records (Perseid §2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Maintenance {
    /// Writes are blind: they do not read the record that they replace. Stale entries are detected by queries and removed
    /// by compactions. For collections with more writes than queries.
    #[default]
    Validation,
    /// A write reads the record that it replaces and deletes its entries. Keys-only queries then do not read the
    /// table. For collections with more queries than writes.
    Synchronous,
}

impl Choice for Maintenance {
    const OPTION: &'static str = "maintenance";
    const WORDS: &'static [(Self, &'static str)] =
        &[(Self::Validation, "validation"), (Self::Synchronous, "synchronous")];
}

impl Maintenance {
    /// The name in specifications.
    pub fn name(self) -> &'static str {
        self.word()
    }
}

/// The validation of candidates whose records are not fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum ValidationStrategy {
    /// By the newest sequence number of the primary key in the table.
    #[default]
    Primary,
    /// By the in-memory filters of components newer than the candidate; reads the table if they do not decide (LevelDB++
    /// §3.2, `GetLite`).
    GetLite,
    /// By a tree of primary keys and sequence numbers beside the table (the primary key index of Luo and
    /// Carey, to which Perseid §2.2 compares itself). It costs one more write per record.
    KeyIndex,
}

impl Choice for ValidationStrategy {
    const OPTION: &'static str = "validation";
    const WORDS: &'static [(Self, &'static str)] =
        &[(Self::Primary, "primary"), (Self::GetLite, "get-lite"), (Self::KeyIndex, "key-index")];
}

impl ValidationStrategy {
    /// The name in specifications.
    pub fn name(self) -> &'static str {
        self.word()
    }
}

/// The order of the entries of one secondary key in a composite index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum EntryOrder {
    /// By sequence number, newest first: the newest K are read without reading the rest.
    #[default]
    Newest,
    /// By primary key, as in LevelDB++ §4.2: a lookup reads all entries of the secondary key.
    PrimaryKey,
}

impl Choice for EntryOrder {
    const OPTION: &'static str = "order";
    const WORDS: &'static [(Self, &'static str)] =
        &[(Self::Newest, "newest"), (Self::PrimaryKey, "primary-key")];
}

/// Whether an eager index splits long posting lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Split {
    /// Lists are split into pieces of a few KiB, so that a write to a popular secondary key rewrites one.
    #[default]
    On,
    /// A list is one value, as in LevelDB++ §4.1.1: each write rewrites the whole list.
    Off,
}

impl Choice for Split {
    const OPTION: &'static str = "split";
    const WORDS: &'static [(Self, &'static str)] = &[(Self::On, "on"), (Self::Off, "off")];
}

/// Whether an index of kind `next` has a global index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum GlobalIndexUse {
    /// Queries find index blocks through it.
    #[default]
    On,
    /// No global index: each query reads the directory of every sstable, as for trees inside of sstables (He and Chen,
    /// 2022).
    Off,
}

impl Choice for GlobalIndexUse {
    const OPTION: &'static str = "global";
    const WORDS: &'static [(Self, &'static str)] = &[(Self::On, "on"), (Self::Off, "off")];
}

/// The structure over the secondary keys of a ps-tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum SkeyLayerKind {
    /// A B+-tree after FAST&FAIR.
    #[default]
    BTree,
    /// A trie after P-Masstree.
    Trie,
}

impl Choice for SkeyLayerKind {
    const OPTION: &'static str = "skey";
    const WORDS: &'static [(Self, &'static str)] = &[(Self::BTree, "btree"), (Self::Trie, "trie")];
}

/// The location of the region of a ps-tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum RegionPlace {
    /// In memory, written to disk by checkpoints. For every disk.
    #[default]
    Disk,
    /// In a mapped file on persistent memory that is modified in place (Perseid §2.3). Needs a file system that maps files
    /// synchronously (DAX). The log is synced before each commit reaches the index.
    Dax,
}

impl Choice for RegionPlace {
    const OPTION: &'static str = "region";
    const WORDS: &'static [(Self, &'static str)] = &[(Self::Disk, "disk"), (Self::Dax, "dax")];
}

/// The compactions that remove stale entries of blind writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum RepairStrategy {
    /// Those of the index: they check each entry against the table.
    #[default]
    IndexCompaction,
    /// Those of the table: for each version that they drop they delete its entries (the deferred
    /// maintenance of DELI).
    PrimaryCompaction,
}

impl Choice for RepairStrategy {
    const OPTION: &'static str = "repair";
    const WORDS: &'static [(Self, &'static str)] =
        &[(Self::IndexCompaction, "index-compaction"), (Self::PrimaryCompaction, "primary-compaction")];
}

/// The threshold δ of an index of kind `next`: a positive number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Delta(pub(crate) f64);

/// The value is never NaN.
impl Eq for Delta {}

impl Delta {
    fn parse(text: &str) -> Result<Self> {
        text.parse()
            .ok()
            .filter(|delta: &f64| delta.is_finite() && *delta > 0.0)
            .map(Self)
            .ok_or_else(|| Error::invalid_input(format!("option delta: `{text}` is not a positive number")))
    }
}

/// The options of an index. Options that its kind does not have are at their defaults.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) maintenance: Maintenance,
    pub(crate) validation: ValidationStrategy,
    pub(crate) order: EntryOrder,
    pub(crate) split: Split,
    pub(crate) repair: RepairStrategy,
    /// Further attributes stored with each entry.
    pub(crate) include: Vec<AttributePath>,
    pub(crate) bloom_bits: u32,
    /// Minimum distance of keys at which a range of an index block is split; determined per block if `None`.
    pub(crate) delta: Option<Delta>,
    /// Approximate size of an index block of kind `next`, in bytes.
    pub(crate) block_bytes: u32,
    pub(crate) global: GlobalIndexUse,
    /// Size of a page of a ps-tree, in bytes.
    pub(crate) page_bytes: u32,
    pub(crate) skey: SkeyLayerKind,
    pub(crate) region: RegionPlace,
    /// Bound of the memory of a ps-tree in bytes; `None` for a share of the memory budget.
    pub(crate) memory: Option<u64>,
    /// Options that only the kind has, with their text.
    pub(crate) own: Vec<(&'static str, String)>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            maintenance: Maintenance::default(),
            validation: ValidationStrategy::default(),
            order: EntryOrder::default(),
            split: Split::default(),
            repair: RepairStrategy::default(),
            include: Vec::new(),
            bloom_bits: DEFAULT_BLOOM_BITS,
            delta: None,
            block_bytes: DEFAULT_BLOCK_BYTES,
            global: GlobalIndexUse::default(),
            page_bytes: DEFAULT_PAGE_BYTES,
            skey: SkeyLayerKind::default(),
            region: RegionPlace::default(),
            memory: None,
            own: Vec::new(),
        }
    }
}

impl Settings {
    /// Parses one option of an index of `kind`.
    pub(crate) fn set(&mut self, kind: IndexKind, option: &str) -> Result<()> {
        let Some((name, value)) = path::split_once_unescaped(option, '=') else {
            return Err(Error::invalid_input(format!(
                "option `{option}` has no value: write `{option}=VALUE`"
            )));
        };
        let options = kind.properties().options;
        let Some(known) = options.iter().find(|option| **option == name) else {
            let options = if options.is_empty() { "none".to_owned() } else { options.join(", ") };
            return Err(Error::invalid_input(format!(
                "an index of kind {} has no option `{name}`; it has {options}",
                kind.name(),
            )));
        };
        match name {
            "maintenance" => self.maintenance = Maintenance::parse(value)?,
            "validation" => self.validation = ValidationStrategy::parse(value)?,
            "order" => self.order = EntryOrder::parse(value)?,
            "split" => self.split = Split::parse(value)?,
            "repair" => self.repair = RepairStrategy::parse(value)?,
            "include" => self.include = parse_include(value)?,
            "skey" => self.skey = SkeyLayerKind::parse(value)?,
            "region" => self.region = RegionPlace::parse(value)?,
            "page_bytes" => self.page_bytes = parse_page_bytes(value)?,
            "memory" => self.memory = Some(parse_memory(value)?),
            "delta" => self.delta = Some(Delta::parse(value)?),
            "block_bytes" => self.block_bytes = parse_block_bytes(value)?,
            "global" => self.global = GlobalIndexUse::parse(value)?,
            "bloom_bits" => self.bloom_bits = parse_bloom_bits(value)?,
            _ => {
                self.own.push((known, path::unescape(value)));
                self.own.sort_unstable();
            }
        }
        Ok(())
    }

    /// Checks conditions on several options.
    pub(crate) fn check(&self, attributes: &[AttributePath]) -> Result<()> {
        if self.maintenance == Maintenance::Synchronous && self.validation != ValidationStrategy::default() {
            return Err(Error::invalid_input(
                "option validation: with maintenance=synchronous there is nothing to validate",
            ));
        }
        if self.maintenance == Maintenance::Synchronous && self.repair != RepairStrategy::default() {
            return Err(Error::invalid_input(
                "option repair: with maintenance=synchronous writes remove stale entries themselves",
            ));
        }
        if self.memory.is_some() && self.region == RegionPlace::Dax {
            return Err(Error::invalid_input(
                "option memory: with region=dax the index is in persistent memory, and no entries move to sstables",
            ));
        }
        for (position, path) in self.include.iter().enumerate() {
            if attributes.contains(path) || self.include[..position].contains(path) {
                return Err(Error::invalid_input(format!(
                    "option include: `{path}` is an attribute of the index already"
                )));
            }
            if path.is_spatial() {
                return Err(Error::invalid_input(format!(
                    "option include: `{path}` is spatial; include the attributes that are its coordinates"
                )));
            }
            if path.is_repeated() {
                return Err(Error::invalid_input(format!(
                    "option include: `{path}` may have several values; include the attributes that have one"
                )));
            }
        }
        Ok(())
    }

    /// The options that differ from their defaults, as text, separated by commas.
    pub(crate) fn text(&self) -> String {
        let mut parts = Vec::new();
        add_choice(&mut parts, self.maintenance);
        add_choice(&mut parts, self.validation);
        add_choice(&mut parts, self.order);
        add_choice(&mut parts, self.split);
        add_choice(&mut parts, self.repair);
        if !self.include.is_empty() {
            let paths: Vec<String> = self.include.iter().map(AttributePath::to_string).collect();
            parts.push(format!("include={}", paths.join("|")));
        }
        if self.bloom_bits != DEFAULT_BLOOM_BITS {
            parts.push(format!("bloom_bits={}", self.bloom_bits));
        }
        if let Some(Delta(delta)) = self.delta {
            parts.push(format!("delta={delta}"));
        }
        if self.block_bytes != DEFAULT_BLOCK_BYTES {
            parts.push(format!("block_bytes={}", self.block_bytes));
        }
        add_choice(&mut parts, self.global);
        add_choice(&mut parts, self.skey);
        add_choice(&mut parts, self.region);
        if self.page_bytes != DEFAULT_PAGE_BYTES {
            parts.push(format!("page_bytes={}", self.page_bytes));
        }
        if let Some(bytes) = self.memory {
            parts.push(format!("memory={bytes}"));
        }
        parts.extend(self.own.iter().map(|(name, value)| format!("{name}={}", escaped(value))));
        parts.join(",")
    }
}

/// The text of an own option, as the grammar has it.
fn escaped(value: &str) -> String {
    let is_special = |character: &char| matches!(character, '\\' | ',' | ':');
    value.chars().flat_map(|c| Some('\\').filter(|_| is_special(&c)).into_iter().chain([c])).collect()
}

fn add_choice<C: Choice>(parts: &mut Vec<String>, value: C) {
    if value != C::default() {
        parts.push(format!("{}={}", C::OPTION, value.word()));
    }
}

fn parse_include(text: &str) -> Result<Vec<AttributePath>> {
    let paths: Result<Vec<AttributePath>> = path::split_unescaped(text, '|').map(str::parse).collect();
    let paths = paths?;
    if paths.len() > MAX_INCLUDED {
        return Err(Error::limit_exceeded(
            "the number of included attributes of an index",
            paths.len() as u64,
            MAX_INCLUDED as u64,
        ));
    }
    Ok(paths)
}

fn parse_memory(text: &str) -> Result<u64> {
    text.parse().ok().filter(|bytes| *bytes >= MIN_MEMORY_BYTES).ok_or_else(|| {
        Error::invalid_input(format!(
            "option memory: `{text}` is not a number of bytes from {MIN_MEMORY_BYTES} on"
        ))
    })
}

fn parse_page_bytes(text: &str) -> Result<u32> {
    text.parse().ok().filter(|bytes| [512, 1024, 2048, 4096].contains(bytes)).ok_or_else(|| {
        Error::invalid_input(format!("option page_bytes: `{text}` is none of 512, 1024, 2048, 4096"))
    })
}

fn parse_block_bytes(text: &str) -> Result<u32> {
    text.parse().ok().filter(|bytes| (64..=65_536).contains(bytes)).ok_or_else(|| {
        Error::invalid_input(format!("option block_bytes: `{text}` is not a number from 64 to 65536"))
    })
}

fn parse_bloom_bits(text: &str) -> Result<u32> {
    let max_bits = MAX_BLOOM_BITS;
    text.parse().ok().filter(|bits| (1..=max_bits).contains(bits)).ok_or_else(|| {
        Error::invalid_input(format!("option bloom_bits: `{text}` is not a number from 1 to {max_bits}"))
    })
}
