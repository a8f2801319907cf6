//! Snapshots.

use bolide::Snapshot;

use crate::code::bolide_code;
use crate::error::bolide_error;
use crate::guard::call;
use crate::handle::{self, object};
use crate::output;
use crate::session::Member;
use crate::session::bolide_db;

/// All collections as they were at one moment. May be used by many threads. Compactions retain its versions until it is freed.
pub struct bolide_snapshot {
    _opaque: [u8; 0],
}

object!(bolide_snapshot, Member<Snapshot>, "the snapshot");

/// Makes a snapshot of all collections as they are now.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_snapshot_new(
    db: *const bolide_db,
    snapshot: *mut *mut bolide_snapshot,
    error: *mut *mut bolide_error,
) -> bolide_code {
    call(error, || {
        let out = output::object(snapshot, "snapshot")?;
        let session = handle::borrow(db)?;
        out.set(handle::into_pointer(Member::new(session, session.db.snapshot())));
        Ok(())
    })
}

/// The sequence number of the last write that the snapshot contains; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_snapshot_sequence(snapshot: *const bolide_snapshot) -> u64 {
    handle::borrow(snapshot).map_or(0, |snapshot| snapshot.sequence())
}

/// Frees a snapshot. What was opened with it stays valid. Does nothing for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_snapshot_free(snapshot: *mut bolide_snapshot) {
    handle::free(snapshot);
}
