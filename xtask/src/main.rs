//! Checks that keep the layers, the names and the file sizes in order.

fn main() {}
