//! Positions of buses as points to index: real ones, dense along lines and at stops, some of them many times.
//!
//! The data set `vehicles` is read beside the repository if no directory is given; where it is absent, the bundled part is used. Where more points are wanted
//! for than there are lines, lines are taken again, each time a little beside.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::random::Random;
use crate::error::Result;

/// The bundled part of the data set, compressed.
pub const BUNDLED: &[u8] = include_bytes!("../../data/vehicles.ndjson.zst");
/// Where whole data sets are looked for by default.
pub const BESIDE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data");
/// How far beside a line that is taken again lies at most, in degrees: about a hundred metres.
const BESIDE_DEGREES: f64 = 0.001;

/// A longitude and a latitude, in degrees.
pub type Position = [f64; 2];

/// The positions of a data set.
#[derive(Debug)]
pub struct Positions {
    known: Vec<Position>,
    random: Random,
    taken: usize,
}

#[derive(Deserialize)]
struct Line {
    lon: f64,
    lat: f64,
}

impl Positions {
    /// Those of the first lines, at most `most`, of the data set in the directory `data`, which it has to be in.
    ///
    /// # Errors
    /// Where the file does not read, or a line has no position.
    pub fn load(data: Option<&Path>, most: usize, seed: u64) -> Result<Self> {
        const NAME: &str = "vehicles.ndjson.zst";
        let beside = PathBuf::from(BESIDE).join(NAME);
        let lines: Box<dyn Read> = match data {
            Some(directory) => Box::new(open(&directory.join(NAME))?),
            None if beside.exists() => Box::new(open(&beside)?),
            None => Box::new(zstd::stream::read::Decoder::new(BUNDLED)?),
        };
        let mut known = Vec::new();
        for (number, line) in BufReader::new(lines).lines().take(most).enumerate() {
            let parsed = serde_json::from_str(&line?);
            let Line { lon, lat } =
                parsed.map_err(|error| format!("vehicles, line {}: {error}", number + 1))?;
            known.push([lon, lat]);
        }
        if known.is_empty() {
            return Err("vehicles has no lines".into());
        }
        Ok(Self { known, random: Random::new(seed ^ 79), taken: 0 })
    }

    /// How many there are before they come again.
    pub fn lines(&self) -> usize {
        self.known.len()
    }

    /// The next one, in the order of the lines.
    pub fn next(&mut self) -> Position {
        let at = self.taken % self.known.len();
        let is_again = self.taken >= self.known.len();
        self.taken += 1;
        if is_again { self.beside(at) } else { self.known[at] }
    }

    /// One beside a random one.
    pub fn any(&mut self) -> Position {
        let at = self.random.below(self.known.len() as u64) as usize;
        self.beside(at)
    }

    fn beside(&mut self, at: usize) -> Position {
        let random = &mut self.random;
        // Six decimals, as most have in the source.
        self.known[at].map(|degrees| {
            let moved = degrees + (random.unit() * 2.0 - 1.0) * BESIDE_DEGREES;
            (moved * 1e6).round() / 1e6
        })
    }
}

/// The lines of a compressed file.
///
/// # Errors
/// Where there is no such file.
pub fn open(file: &Path) -> Result<impl Read + use<>> {
    let plain = std::fs::File::open(file).map_err(|error| format!("{}: {error}", file.display()))?;
    Ok(zstd::stream::read::Decoder::new(plain)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_first_and_then_come_again_beside() {
        let mut positions = Positions::load(None, 100, 1).unwrap();
        let first: Vec<Position> = (0..100).map(|_| positions.next()).collect();
        assert_eq!(first, positions.known);
        for known in first {
            let again = positions.next();
            let apart = (0..2).map(|at| (again[at] - known[at]).abs()).fold(0.0, f64::max);
            assert!(apart > 0.0 && apart < BESIDE_DEGREES * 1.001, "{known:?} {again:?}");
        }
        assert_eq!(
            Positions::load(None, 100, 1).unwrap().any(),
            Positions::load(None, 100, 1).unwrap().any()
        );
        assert!(Positions::load(Some(Path::new("/nonexistent")), 100, 1).is_err());
    }
}
