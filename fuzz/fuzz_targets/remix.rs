//! The parts of a REMIX, and whole files: refused or read, and what is read is written again as it was.
#![no_main]

use bolide_lsm::remix::fuzzing;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    fuzzing::parts(input);
    fuzzing::file(input);
});
