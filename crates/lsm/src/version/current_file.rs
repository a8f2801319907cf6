//! `CURRENT`: the file that names the manifest in force.
//!
//! One line of text, so that people can read it:
//!
//! ```text
//! bolide-current 2 MANIFEST-000003 9ae1f0c2d4b5a687 00000000000000b0 4711 open 0123456789abcdef\n
//! │              │ │               │                │                │    │    └ checksum, 16 hex digits
//! │              │ │               │                │                │    └ "open", or "closed" after a clean close
//! │              │ │               │                │                └ length of the manifest that is durable, bytes
//! │              │ │               │                └ database id, 16 hex digits
//! │              │ │               └ tag of the manifest, 16 hex digits
//! │              │ └ the manifest
//! │              └ format version
//! └ magic
//! ```
//!
//! The checksum is that of the bytes before it at offset 0 of a file with the manifest's tag.
//!
//! * `open`: the manifest is durable at least through the length; edits may follow, the last one torn.
//! * `closed`: the manifest ends at the length, and nothing in the database may have a torn tail.
//!
//! The file is replaced as a whole: temporary file, sync, rename, sync of the directory.

use std::path::Path;

use bolide_base::{Error, FileIdentity, Result};
use bolide_storage::Vfs;

use crate::file_name::FileName;
use crate::record_log::in_doubt;

const MAGIC: &str = "bolide-current";
const FORMAT_VERSION: &str = "2";
/// Far above the length of any such line.
const MAX_BYTES: u64 = 256;

/// The content of `CURRENT`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CurrentFile {
    /// The manifest in force.
    pub(crate) manifest: FileIdentity,
    /// The random number that was chosen when the database was created.
    pub(super) database_id: u64,
    /// The durable length of the manifest in bytes.
    pub(crate) len: u64,
    /// Whether the database was closed cleanly.
    pub(crate) closed: bool,
}

impl CurrentFile {
    fn encode(&self) -> String {
        let state = if self.closed { "closed" } else { "open" };
        let name = FileName::Manifest(self.manifest.file_number);
        let (tag, database_id, len) = (self.manifest.tag, self.database_id, self.len);
        let body = format!("{MAGIC} {FORMAT_VERSION} {name} {tag:016x} {database_id:016x} {len} {state} ");
        let checksum = self.manifest.checksum(0, body.as_bytes());
        format!("{body}{checksum:016x}\n")
    }

    fn decode(bytes: &[u8], name: &str) -> Result<Self> {
        let damaged = || Error::corruption(name, 0, "the line that names the manifest is not valid");
        let text = std::str::from_utf8(bytes).map_err(|_| damaged())?;
        let mut words = text.split(' ');
        if words.next() != Some(MAGIC) {
            return Err(damaged());
        }
        let version = words.next().ok_or_else(damaged)?;
        if version != FORMAT_VERSION && version.parse::<u32>().is_ok() {
            let what = format!("format version {version}; this program reads {FORMAT_VERSION}");
            return Err(Error::unsupported(name, what));
        }
        let current = Self::decode_words(words).ok_or_else(damaged)?;
        // The encoding is unique: any difference from it, checksum included, is damage.
        if current.encode() == text { Ok(current) } else { Err(damaged()) }
    }

    fn decode_words<'a>(mut words: impl Iterator<Item = &'a str>) -> Option<Self> {
        let FileName::Manifest(file_number) = FileName::parse(words.next()?)? else { return None };
        let tag = u64::from_str_radix(words.next()?, 16).ok()?;
        let database_id = u64::from_str_radix(words.next()?, 16).ok()?;
        let len = words.next()?.parse().ok()?;
        let closed = match words.next()? {
            "open" => false,
            "closed" => true,
            _ => return None,
        };
        Some(Self { manifest: FileIdentity { file_number, tag }, database_id, len, closed })
    }

    /// Reads `CURRENT` in `dir`; `None` if there is none.
    ///
    /// # Errors
    /// Corruption, Unsupported, and those of the file system.
    pub(super) fn read(vfs: &dyn Vfs, dir: &Path) -> Result<Option<Self>> {
        let path = FileName::Current.path(dir);
        if vfs.exists(&path)? { Self::read_file(vfs, &path).map(Some) } else { Ok(None) }
    }

    /// Reads the file at `path`.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub(crate) fn read_file(vfs: &dyn Vfs, path: &Path) -> Result<Self> {
        let file = vfs.open(path)?;
        let name = path.display().to_string();
        let len = file.len()?;
        if len > MAX_BYTES {
            return Err(Error::corruption(name, MAX_BYTES, "the file is too long"));
        }
        let mut bytes = vec![0; len as usize];
        file.read_exact_at(0, &mut bytes)?;
        Self::decode(&bytes, &name)
    }

    /// Replaces `CURRENT` in `dir` durably. `temp` is a file number that was never used.
    ///
    /// # Errors
    /// NoSpace: `CURRENT` is unchanged. Other errors of the file system: it is the old or the new one.
    pub(super) fn write(&self, vfs: &dyn Vfs, dir: &Path, temp: u64) -> Result<()> {
        let temp = FileName::Temp(temp).path(dir);
        let file = vfs.create(&temp)?;
        file.append(self.encode().as_bytes())?;
        file.sync()?;
        vfs.rename(&temp, &FileName::Current.path(dir))?;
        vfs.sync_dir(dir).map_err(in_doubt)
    }
}

#[cfg(test)]
mod tests {
    use bolide_base::ErrorKind;

    use super::*;

    #[test]
    fn the_line_round_trips_and_every_damage_is_found() {
        for closed in [false, true] {
            let current = CurrentFile {
                manifest: FileIdentity { file_number: 3, tag: 9 },
                database_id: 0xb0,
                len: 4711,
                closed,
            };
            let line = current.encode();
            assert!(line.len() < MAX_BYTES as usize);
            assert_eq!(CurrentFile::decode(line.as_bytes(), "CURRENT").unwrap(), current);
            for bit in 0..line.len() * 8 {
                let mut damaged = line.clone().into_bytes();
                damaged[bit / 8] ^= 1 << (bit % 8);
                assert!(CurrentFile::decode(&damaged, "CURRENT").is_err(), "bit {bit}");
            }
            for cut in 0..line.len() {
                let error = CurrentFile::decode(&line.as_bytes()[..cut], "CURRENT").unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Corruption);
            }
        }
        for version in ["1", "3"] {
            let line = format!("bolide-current {version} whatever");
            let error = CurrentFile::decode(line.as_bytes(), "CURRENT").unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(error.message().contains(&format!("version {version}")), "{error}");
        }
    }
}
