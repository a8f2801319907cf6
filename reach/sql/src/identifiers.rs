//! Names of statements.

use datafusion::sql::sqlparser::ast::{Ident, ObjectName};

use crate::error::{Result, SqlError};

/// A name in double quotes.
pub(crate) fn quoted(name: &str) -> Ident {
    Ident::with_quote('"', name)
}

/// A name as the catalog has it: in lower case without quotes.
pub(crate) fn plain_ident(ident: &Ident) -> String {
    match ident.quote_style {
        Some(_) => ident.value.clone(),
        None => ident.value.to_lowercase(),
    }
}

/// The last part of a name of one part, or of the schema `public`.
///
/// # Errors
/// For a name of another schema.
pub(crate) fn plain_name(name: &ObjectName) -> Result<String> {
    let parts: Vec<String> = name.0.iter().filter_map(|part| part.as_ident().map(plain_ident)).collect();
    match &parts[..] {
        [only] => Ok(only.clone()),
        [schema, only] if schema == "public" => Ok(only.clone()),
        [_, schema, only] if schema == "public" => Ok(only.clone()),
        _ => Err(SqlError::unsupported(format!("{name} cannot be written"))),
    }
}
