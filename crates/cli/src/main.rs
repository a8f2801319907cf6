//! The bolide program
fn main() {}
