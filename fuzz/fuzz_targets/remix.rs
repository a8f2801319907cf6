//! The parts of a REMIX, and complete files: rejected or decoded; a decoded part encodes to the same bytes.
#![no_main]

use bolide_lsm::remix::fuzzing;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    fuzzing::parts(input);
    fuzzing::file(input);
});
