//! `scan`: records in key order.

use std::ops::Bound;

use bolide::IterOptions;

use super::database::{self, LineMaker};
use crate::arguments::Scan;
use crate::failure::Failure;
use crate::output::Printer;

/// Reads from one key to another, both included.
pub(super) fn run(arguments: &Scan) -> Result<(), Failure> {
    let db = database::open_to_read(&arguments.db)?;
    let collection = database::collection(&db, &arguments.collection)?;
    let format = collection.key_format();
    let bound = |text: &Option<String>| {
        text.as_ref().map_or(Bound::Unbounded, |text| Bound::Included(format.parse(text)))
    };
    let range = (bound(&arguments.from), bound(&arguments.to));
    let mut cursor = collection.cursor(&IterOptions::default().range(range))?;
    let lines = LineMaker::new(&collection);
    let mut printer = Printer::new(arguments.output.form());
    if arguments.reverse {
        cursor.seek_to_last()?;
    } else {
        cursor.seek_to_first()?;
    }
    let mut left = arguments.limit.unwrap_or(usize::MAX);
    while cursor.valid() && left > 0 {
        let (key, sequence, record) = (cursor.key(), Some(cursor.sequence()), Some(cursor.value()));
        lines.with_line(key, sequence, record, |line| printer.line(line))?;
        left -= 1;
        if arguments.reverse {
            cursor.prev()?;
        } else {
            cursor.next()?;
        }
    }
    printer.finish()
}
