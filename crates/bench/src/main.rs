//! Benchmarks of Bolide against its peers
fn main() {}
