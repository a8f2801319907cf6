//! A text description of the end of a record log.

use std::fmt::Write;

use bolide_base::{Error, Result};

use super::reader::{LogReader, LogStop, TailEnd};

/// Writes how the log ends.
pub(crate) fn describe_end(reader: &mut LogReader, out: &mut dyn Write) -> Result<()> {
    let end = reader.position();
    let left = reader.limit() - end;
    let line = match (reader.stop(), reader.classify_end()) {
        (_, Err(error)) if error.is_corruption() => format!("damaged: {error}"),
        (_, Err(error)) => return Err(error),
        (Some(LogStop::Invalid(what)), Ok(TailEnd::Torn)) => {
            format!(
                "@{end} {left} bytes that are not a record ({what}): a torn tail unless the log was sealed"
            )
        }
        (_, Ok(_)) => format!("@{end} end"),
    };
    writeln!(out, "{line}").map_err(|_| Error::internal("the description could not be written"))
}
