//! Settings as text.

use bolide::key::KeyFormat;
use bolide::{Compression, Isolation, Layout, RecordKind, SyncMode};
use pyo3::prelude::*;

use crate::errors;

/// The value with the name `name`, of these.
fn named<T: Copy>(what: &str, name: &str, values: &[(&str, T)]) -> PyResult<T> {
    values.iter().find(|(known, _)| *known == name).map(|(_, value)| *value).ok_or_else(|| {
        let known: Vec<&str> = values.iter().map(|(known, _)| *known).collect();
        errors::invalid_input(format!("{what} {name:?}: the values are {}", known.join(", ")))
    })
}

pub(crate) fn sync_mode(name: &str) -> PyResult<SyncMode> {
    named("sync", name, &[("batch", SyncMode::Batch), ("always", SyncMode::Always), ("none", SyncMode::None)])
}

pub(crate) fn optional_sync_mode(name: Option<&str>) -> PyResult<Option<SyncMode>> {
    name.map(sync_mode).transpose()
}

pub(crate) fn layout(name: &str) -> PyResult<Layout> {
    named("layout", name, &Layout::ALL.map(|layout| (layout.name(), layout)))
}

pub(crate) fn compression(name: &str) -> PyResult<Compression> {
    named(
        "compression",
        name,
        &[("none", Compression::None), ("lz4", Compression::Lz4), ("zstd", Compression::Zstd(3))],
    )
}

pub(crate) fn key_format(name: &str) -> PyResult<KeyFormat> {
    named("keys", name, &[("typed", KeyFormat::Typed), ("bytes", KeyFormat::Bytes)])
}

pub(crate) fn record_kind(name: &str) -> PyResult<RecordKind> {
    named("records", name, &[("json", RecordKind::Json), ("bytes", RecordKind::Bytes)])
}

pub(crate) fn isolation(name: &str) -> PyResult<Isolation> {
    named("isolation", name, &[("serializable", Isolation::Serializable), ("snapshot", Isolation::Snapshot)])
}
