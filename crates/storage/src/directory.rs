//! The directory that a path stands for.

use std::path::Path;

/// `path`, or `.` for the empty path that [`Path::parent`] gives for a bare name.
pub(crate) fn directory_path(path: &Path) -> &Path {
    if path.as_os_str().is_empty() { Path::new(".") } else { path }
}
