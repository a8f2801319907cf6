//! Log-structured trees over one write-ahead log and one manifest
