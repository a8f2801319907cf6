//! The immutable sstable of Bolide: blocks, filters, builder, reader, cursor, block cache
