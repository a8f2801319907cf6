//! Bolide: an embedded key-value store whose secondary indexes are first class
