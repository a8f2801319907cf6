//! The registry of index kinds: those of this library, and those that a program registers.
//!
//! To add a kind to this library, write its module and list its method in `BUILT_IN`. A program calls [`register`] with
//! the method of a kind of its own.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::OnceLock;

use bolide_base::{Error, ErrorKind, Result, Trailer};
use bolide_lsm::external_tree::ExternalRoot;
use parking_lot::RwLock;

use crate::embedded::EMBEDDED;
use crate::method::{IndexMethod, OwnFiles};
use crate::next::NEXT;
use crate::path::AttributePath;
use crate::ps_tree_index::PS_TREE;
use crate::spec::{IndexKind, IndexSpec, Maintenance};
use crate::standalone::composite::COMPOSITE;
use crate::standalone::eager::EAGER;
use crate::standalone::lazy::LAZY;

/// Their methods.
pub(crate) static BUILT_IN: [&IndexMethod; 6] = [&COMPOSITE, &LAZY, &EAGER, &EMBEDDED, &NEXT, &PS_TREE];

type Methods = RwLock<Vec<&'static IndexMethod>>;

static METHODS: OnceLock<Methods> = OnceLock::new();

fn methods() -> &'static Methods {
    METHODS.get_or_init(|| RwLock::new(BUILT_IN.to_vec()))
}

/// The methods of all kinds: those of this library, then registered ones.
pub fn all() -> Vec<&'static IndexMethod> {
    methods().read().clone()
}

/// Adds an index kind to those that specifications may name, for this process. A program registers its kinds before it opens
/// a database with indexes of them. A method that is registered already is not added again.
///
/// # Errors
/// `Unsupported` for a kind that is spatial or covers its key: the parts of an access that it needs are not public yet.
/// `Conflict` if there is another kind of this name; `InvalidInput` for a name with other characters than lower-case
/// letters, digits and `-`.
pub fn register(method: &'static IndexMethod) -> Result<IndexKind> {
    let name = method.properties.name;
    let is_word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if name.is_empty() || !name.bytes().all(is_word) {
        return Err(Error::invalid_input(format!(
            "the name `{name}` of an index kind must consist of lower-case letters, digits and `-`"
        )));
    }
    if method.properties.is_spatial || method.properties.covers_key {
        let what =
            format!("the index kind {name} is spatial or covers its key: only kinds of the library can");
        return Err(Error::new(ErrorKind::Unsupported, what));
    }
    let mut methods = methods().write();
    match methods.iter().find(|other| other.properties.name == name) {
        Some(other) if std::ptr::eq(*other, method) => {}
        Some(_) => {
            return Err(Error::new(ErrorKind::Conflict, format!("there is an index kind {name} already")));
        }
        None => methods.push(method),
    }
    Ok(method.kind())
}

/// Describes a meta block of an index of any kind, in one line; `None` if it is of no kind.
pub fn describe_meta_block(name: &str, bytes: &[u8]) -> Option<String> {
    all()
        .into_iter()
        .filter_map(|method| method.describe_meta_block)
        .find_map(|describe| describe(name, bytes))
}

/// Describes an entry of the tree of the index that `spec` declares in one line of text. `None` if it is malformed, or its
/// kind has no description. The format may change.
///
/// ```
/// use bolide_base::{EntryKind, Trailer};
/// use bolide_index::{Value, kinds::describe_entry};
/// let mut key = Vec::new();
/// Value::from("red").encode(&mut key)?;
/// let written = Trailer::new(7, EntryKind::Merge);
/// let text = describe_entry(&"color:lazy".parse()?, &key, written, &[0, 1, b'k']);
/// assert_eq!(text.as_deref(), Some(r#""red": #7 of "k""#));
/// # Ok::<(), bolide_base::Error>(())
/// ```
pub fn describe_entry(spec: &IndexSpec, key: &[u8], trailer: Trailer, value: &[u8]) -> Option<String> {
    IndexMethod::find(spec.kind()).ok()?.describe_entry?(spec, key, trailer, value)
}

/// The path of the file outside of the store that the root of an external tree names, whatever its kind is.
pub fn own_file_of(root: &ExternalRoot, dir: &Path, dax_dir: Option<&Path>) -> Option<PathBuf> {
    own_files().find_map(|files| (files.of_root)(root, dir, dax_dir))
}

/// Whether `name` is that of a file of an index in the directory of a database, which the store does not manage.
pub fn is_own_file(name: &str, database_id: u64) -> bool {
    own_files().any(|files| (files.is_own)(name, database_id))
}

fn own_files() -> impl Iterator<Item = OwnFiles> {
    all().into_iter().filter_map(|method| method.own_files)
}

impl IndexMethod {
    /// The method of `kind`.
    ///
    /// # Errors
    /// `Unsupported` if it is not registered.
    pub fn find(kind: IndexKind) -> Result<&'static Self> {
        let method = all().into_iter().find(|method| method.kind() == kind);
        method.ok_or_else(|| {
            let what = format!("the index kind {} is not registered in this program", kind.name());
            Error::new(ErrorKind::Unsupported, what)
        })
    }
}

impl IndexKind {
    /// One entry per record in a tree of its own, under the secondary key, the sequence number and the primary key.
    pub const COMPOSITE: Self = COMPOSITE.kind();
    /// Posting lists whose fragments are appended blindly and merged by compactions (LevelDB++ §4.1.2).
    pub const LAZY: Self = LAZY.kind();
    /// Posting lists that each write reads, changes and writes back (LevelDB++ §4.1.1).
    pub const EAGER: Self = EAGER.kind();
    /// No tree of its own: Bloom filters and zone maps in the sstables of the table (LevelDB++ §3).
    pub const EMBEDDED: Self = EMBEDDED.kind();
    /// No tree of its own: blocks of sorted entries in the sstables of the table, below a global index in memory (NEXT).
    pub const NEXT: Self = NEXT.kind();
    /// An in-memory structure of its own, written to disk by checkpoints, with a version table (Perseid). The default kind.
    pub const PS_TREE: Self = PS_TREE.kind();

    /// The kinds of this library.
    pub const BUILT_IN: [Self; 6] =
        [Self::COMPOSITE, Self::LAZY, Self::EAGER, Self::EMBEDDED, Self::NEXT, Self::PS_TREE];

    /// The kind of this name, of this library or [registered](register).
    ///
    /// # Errors
    /// `InvalidInput` if there is none; the message lists all.
    fn parse(name: &str) -> Result<Self> {
        let all = all();
        if let Some(method) = all.iter().find(|method| method.properties.name == name) {
            return Ok(method.kind());
        }
        let names: Vec<&str> = all.iter().map(|method| method.properties.name).collect();
        Err(Error::invalid_input(format!(
            "there is no index kind `{name}`; there are {} (a program registers its own kinds with `kinds::register`)",
            names.join(", ")
        )))
    }

    fn default_for(attributes: &[AttributePath]) -> Self {
        if attributes.iter().any(AttributePath::is_spatial) { Self::NEXT } else { Self::PS_TREE }
    }
}

/// [`IndexKind::PS_TREE`].
impl Default for IndexKind {
    fn default() -> Self {
        Self::PS_TREE
    }
}

impl IndexSpec {
    /// An index of the default kind and options over `attributes`, named after them: of kind `next` for points and
    /// rectangles, else `ps-tree`.
    ///
    /// # Errors
    /// `InvalidInput` without attributes or for a repeated one, `LimitExceeded` for more than
    /// [`MAX_ATTRIBUTES`](crate::spec::MAX_ATTRIBUTES) or for a name over its limit.
    pub fn new(attributes: impl IntoIterator<Item = AttributePath>) -> Result<Self> {
        let attributes: Vec<AttributePath> = attributes.into_iter().collect();
        let kind = IndexKind::default_for(&attributes);
        Self::of_kind(attributes, kind)
    }

    /// The same index with another maintenance. Default: [`Maintenance::Validation`]. An index of a kind without this option
    /// becomes composite.
    ///
    /// ```
    /// use bolide_index::{IndexKind, IndexSpec, Maintenance};
    /// let spec = IndexSpec::new(["a".parse()?])?;
    /// assert_eq!(spec.kind(), IndexKind::PS_TREE);
    /// assert_eq!(spec.with_maintenance(Maintenance::Synchronous).to_string(), "a:composite:maintenance=synchronous");
    /// # Ok::<(), bolide_base::Error>(())
    /// ```
    #[must_use]
    pub fn with_maintenance(self, maintenance: Maintenance) -> Self {
        let has_option = self.kind().properties().options.contains(&"maintenance");
        let spec = if has_option { self } else { self.with_kind(IndexKind::COMPOSITE) };
        spec.maintained(maintenance)
    }
}

impl FromStr for IndexSpec {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let parsed = Self::parse_with(text, IndexKind::parse, IndexKind::default_for);
        parsed.map_err(|error| error.context(format_args!("index `{text}`")))
    }
}
