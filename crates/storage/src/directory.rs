//! The spelling of directory paths.

use std::path::Path;

/// `path`, or `.` for the empty path, which [`Path::parent`] returns for a bare name.
pub(crate) fn directory_path(path: &Path) -> &Path {
    if path.as_os_str().is_empty() { Path::new(".") } else { path }
}
