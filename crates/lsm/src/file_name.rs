//! The names of the files in a database's directory.
//!
//! ```text
//! 000123.sst        an sstable          000125.tmp   a file being written, worthless after a crash
//! 000124.wal        a WAL segment       CURRENT      names the manifest in force
//! 000126.region     pages of a region   LOCK         locked while the database is open
//! 000128.tail       a WAL segment with a cut tail     SYNCED   the synced lengths of logs
//! 000127.remix      a sorted view      MANIFEST-000003   a manifest
//! RESERVE      space for a full disk
//! ```
//!
//! All numbers come from one counter and are never reused, so a number alone identifies a file. Names that users choose
//! never become file names.

use std::fmt;
use std::path::{Path, PathBuf};

/// A file of a database, by its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileName {
    /// An sstable.
    Table(u64),
    /// A segment of the WAL.
    Wal(u64),
    /// A WAL segment that is not needed any more except for the tail that recovery cut off.
    Tail(u64),
    /// A file of an external tree: pages of a region.
    Region(u64),
    /// A REMIX file: the order of the entries of some sstables.
    View(u64),
    /// A manifest: the log of version edits.
    Manifest(u64),
    /// A file that is renamed once it is whole.
    Temp(u64),
    /// The file that names the manifest in force.
    Current,
    /// The file that is locked while the database is open.
    Lock,
    /// The file whose space is released when the disk is full.
    Reserve,
    /// The file with the synced lengths of the logs.
    Marker,
}

impl FileName {
    /// The kind and number of the directory entry `name`; `None` for a file that is not Bolide's.
    ///
    /// Only the exact spelling that [`FileName`] displays is accepted (`1.sst` is not), so that no number has two names.
    ///
    /// ```
    /// use bolide_lsm::file_name::FileName;
    /// assert_eq!(FileName::parse("000123.sst"), Some(FileName::Table(123)));
    /// assert_eq!(FileName::parse("MANIFEST-000003"), Some(FileName::Manifest(3)));
    /// assert_eq!(FileName::parse("123.sst"), None);
    /// assert_eq!(FileName::Wal(7).to_string(), "000007.wal");
    /// ```
    pub fn parse(name: &str) -> Option<Self> {
        let parsed = match name {
            "CURRENT" => Self::Current,
            "LOCK" => Self::Lock,
            "RESERVE" => Self::Reserve,
            "SYNCED" => Self::Marker,
            _ => {
                if let Some(number) = name.strip_prefix("MANIFEST-") {
                    Self::Manifest(parse_number(number)?)
                } else {
                    let (number, extension) = name.split_once('.')?;
                    let number = parse_number(number)?;
                    match extension {
                        "sst" => Self::Table(number),
                        "wal" => Self::Wal(number),
                        "tail" => Self::Tail(number),
                        "region" => Self::Region(number),
                        "remix" => Self::View(number),
                        "tmp" => Self::Temp(number),
                        _ => return None,
                    }
                }
            }
        };
        Some(parsed)
    }

    /// The path of this file in the directory `dir`.
    pub fn path(self, dir: &Path) -> PathBuf {
        dir.join(self.to_string())
    }

    /// The number of the file; `None` for `CURRENT`, `LOCK`, `RESERVE` and `SYNCED`.
    pub fn number(self) -> Option<u64> {
        match self {
            Self::Table(number)
            | Self::Wal(number)
            | Self::Tail(number)
            | Self::Region(number)
            | Self::View(number)
            | Self::Manifest(number)
            | Self::Temp(number) => Some(number),
            Self::Current | Self::Lock | Self::Reserve | Self::Marker => None,
        }
    }
}

/// A decimal number of at least six digits, without superfluous leading zeros.
fn parse_number(text: &str) -> Option<u64> {
    let plain = text.len() >= 6
        && text.bytes().all(|byte| byte.is_ascii_digit())
        && (text.len() == 6 || !text.starts_with('0'));
    if plain { text.parse().ok() } else { None }
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Table(number) => write!(f, "{number:06}.sst"),
            Self::Wal(number) => write!(f, "{number:06}.wal"),
            Self::Tail(number) => write!(f, "{number:06}.tail"),
            Self::Region(number) => write!(f, "{number:06}.region"),
            Self::View(number) => write!(f, "{number:06}.remix"),
            Self::Manifest(number) => write!(f, "MANIFEST-{number:06}"),
            Self::Temp(number) => write!(f, "{number:06}.tmp"),
            Self::Current => f.write_str("CURRENT"),
            Self::Lock => f.write_str("LOCK"),
            Self::Reserve => f.write_str("RESERVE"),
            Self::Marker => f.write_str("SYNCED"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_at_every_width() {
        for number in [0, 1, 999_999, 1_000_000, u64::MAX] {
            for name in [
                FileName::Table(number),
                FileName::Wal(number),
                FileName::Tail(number),
                FileName::Region(number),
                FileName::View(number),
                FileName::Manifest(number),
                FileName::Temp(number),
            ] {
                assert_eq!(FileName::parse(&name.to_string()), Some(name));
                assert_eq!(name.number(), Some(number));
            }
        }
        for name in [FileName::Current, FileName::Lock, FileName::Reserve, FileName::Marker] {
            assert_eq!(FileName::parse(&name.to_string()), Some(name));
        }
    }

    #[test]
    fn foreign_names_are_rejected() {
        for name in [
            "",
            ".",
            "1.sst",
            "0000001.sst",
            "00001a.sst",
            "+00001.sst",
            "000001.sst.bak",
            "000001",
            "MANIFEST-",
            "MANIFEST-3",
            "current",
            "99999999999999999999999.wal",
            "000001.WAL",
            "-00001.wal",
        ] {
            assert_eq!(FileName::parse(name), None, "{name}");
        }
    }
}
