//! Keys of records: between their bytes, the values of a key column, and JSON.

use bolide::key::{self, KeyFormat, PrimaryKey};
use bolide_arrow::{ColumnSource, EncodedKey, RecordKey};

/// The type of the key column of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyType {
    Text,
    Int,
    Binary,
}

impl KeyType {
    pub(crate) fn source(self) -> ColumnSource {
        match self {
            Self::Text => ColumnSource::TextKey,
            Self::Int => ColumnSource::IntKey,
            Self::Binary => ColumnSource::BinaryKey,
        }
    }

    /// The name in a declaration.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Text => "string",
            Self::Int => "int64",
            Self::Binary => "binary",
        }
    }

    pub(crate) fn parse(name: &str) -> Option<Self> {
        [Self::Text, Self::Int, Self::Binary].into_iter().find(|one| one.name() == name)
    }
}

/// The first byte of typed keys that are texts.
pub(crate) const TEXT_KEY: u8 = 0x1c;

/// Calls `then` with the key as the decoder takes it.
pub(crate) fn with_record_key<T>(key: &[u8], format: KeyFormat, then: impl FnOnce(RecordKey<'_>) -> T) -> T {
    if format != KeyFormat::Typed {
        return then(RecordKey::Bytes(key));
    }
    // Without a copy of the text: most keys are texts, with one byte before.
    if let Some(text) = key.strip_prefix(&[TEXT_KEY]).and_then(|text| std::str::from_utf8(text).ok()) {
        return then(RecordKey::Text(text));
    }
    match key::decode(key) {
        PrimaryKey::Int(value) => then(RecordKey::Int(value)),
        PrimaryKey::Uint(value) => then(RecordKey::Uint(value)),
        PrimaryKey::String(text) => then(RecordKey::Text(&text)),
        PrimaryKey::Bytes(bytes) => then(RecordKey::Bytes(&bytes)),
    }
}

/// Calls `then` with the key as a key column of this type has it. A binary one has the stored bytes of every key.
pub(crate) fn with_column_key<T>(
    key: &[u8],
    format: KeyFormat,
    key_type: KeyType,
    then: impl FnOnce(RecordKey<'_>) -> T,
) -> T {
    match key_type {
        KeyType::Binary => then(RecordKey::Bytes(key)),
        KeyType::Text | KeyType::Int => with_record_key(key, format, then),
    }
}

/// The keys whose text in a key column is `text`. In a collection of typed keys the digits of an integer are the text of two
/// keys.
pub(crate) fn keys_of_text(text: &str, format: KeyFormat) -> Vec<Vec<u8>> {
    if format != KeyFormat::Typed {
        return vec![text.as_bytes().to_vec()];
    }
    let mut keys = vec![key::encode_string(text)];
    if let Ok(value) = text.parse::<i64>()
        && value.to_string() == text
    {
        keys.push(key::encode_int(value));
    } else if let Ok(value) = text.parse::<u64>()
        && value.to_string() == text
    {
        keys.push(key::encode_uint(value));
    }
    // Untyped bytes that are this text.
    if matches!(key::decode(text.as_bytes()), PrimaryKey::Bytes(_)) && !text.is_empty() {
        keys.push(text.as_bytes().to_vec());
    }
    keys
}

/// The key that a value of a key column is stored under.
pub(crate) fn stored_key(value: EncodedKey<'_>, format: KeyFormat) -> Vec<u8> {
    match (value, format) {
        (EncodedKey::Int(value), KeyFormat::Typed) => key::encode_int(value),
        (EncodedKey::Uint(value), KeyFormat::Typed) => key::encode_uint(value),
        (EncodedKey::Text(text), KeyFormat::Typed) => key::encode_string(text),
        (EncodedKey::Int(value), _) => value.to_string().into_bytes(),
        (EncodedKey::Uint(value), _) => value.to_string().into_bytes(),
        (EncodedKey::Text(text), _) => text.as_bytes().to_vec(),
        (EncodedKey::Bytes(bytes), _) => bytes.to_vec(),
        (_, _) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_finds_every_key_that_reads_as_it() {
        let text_of = |key: &[u8]| {
            with_record_key(key, KeyFormat::Typed, |key| match key {
                RecordKey::Text(text) => text.to_owned(),
                RecordKey::Int(value) => value.to_string(),
                RecordKey::Uint(value) => value.to_string(),
                RecordKey::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
                _ => String::new(),
            })
        };
        for text in ["", "a", "42", "-7", "007", "18446744073709551615", "1.0", "ä"] {
            let keys = keys_of_text(text, KeyFormat::Typed);
            assert!(!keys.is_empty());
            for key in keys {
                assert_eq!(text_of(&key), text, "{key:?}");
            }
        }
        assert_eq!(
            keys_of_text("42", KeyFormat::Typed).len(),
            2 + usize::from(key::decode(b"42") == PrimaryKey::Bytes(b"42".to_vec()))
        );
        assert_eq!(keys_of_text("42", KeyFormat::Bytes), [b"42"]);
    }
}
