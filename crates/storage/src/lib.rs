//! The only crate of Bolide that touches files, clocks, random numbers and threads
