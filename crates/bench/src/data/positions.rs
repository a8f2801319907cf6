//! Positions of buses as points to index: real positions, dense along lines and at stops, with duplicates.
//!
//! The data set `vehicles` is read from a directory, by default the shared data directory. Without it the bundled part is used.
//! If more points are needed than the data set has lines, lines are repeated with a small random offset.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::random::Random;
use crate::error::Result;

/// The bundled part of the data set, compressed.
pub const BUNDLED: &[u8] = include_bytes!("../../data/vehicles.ndjson.zst");
/// The default directory of whole data sets.
pub const SHARED_DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data");
/// The maximum offset of a repeated line in degrees, about a hundred metres.
const MAX_OFFSET_DEGREES: f64 = 0.001;

/// A longitude and a latitude, in degrees.
pub type Position = [f64; 2];

/// The positions of a data set.
#[derive(Debug)]
pub struct Positions {
    positions: Vec<Position>,
    random: Random,
    returned: usize,
}

#[derive(Deserialize)]
struct Line {
    lon: f64,
    lat: f64,
}

impl Positions {
    /// Loads the positions of the first lines, at most `max_lines`. With `data`, the data set must be in that directory.
    ///
    /// # Errors
    /// An unreadable file, and a line without a position.
    pub fn load(data: Option<&Path>, max_lines: usize, seed: u64) -> Result<Self> {
        const NAME: &str = "vehicles.ndjson.zst";
        let shared = PathBuf::from(SHARED_DATA).join(NAME);
        let lines: Box<dyn Read> = match data {
            Some(directory) => Box::new(open(&directory.join(NAME))?),
            None if shared.exists() => Box::new(open(&shared)?),
            None => Box::new(zstd::stream::read::Decoder::new(BUNDLED)?),
        };
        let mut positions = Vec::new();
        for (number, line) in BufReader::new(lines).lines().take(max_lines).enumerate() {
            let parsed = serde_json::from_str(&line?);
            let Line { lon, lat } =
                parsed.map_err(|error| format!("vehicles, line {}: {error}", number + 1))?;
            positions.push([lon, lat]);
        }
        if positions.is_empty() {
            return Err("vehicles has no lines".into());
        }
        Ok(Self { positions, random: Random::new(seed ^ 79), returned: 0 })
    }

    /// The number of lines, after which positions are repeated.
    pub fn lines(&self) -> usize {
        self.positions.len()
    }

    /// The next position, in the order of the lines.
    pub fn next(&mut self) -> Position {
        let at = self.returned % self.positions.len();
        let is_repeated = self.returned >= self.positions.len();
        self.returned += 1;
        if is_repeated { self.near(at) } else { self.positions[at] }
    }

    /// A position near that of a random line.
    pub fn any(&mut self) -> Position {
        let at = self.random.below(self.positions.len() as u64) as usize;
        self.near(at)
    }

    fn near(&mut self, at: usize) -> Position {
        let random = &mut self.random;
        // Six decimals, as most positions of the source have.
        self.positions[at].map(|degrees| {
            let moved = degrees + (random.unit() * 2.0 - 1.0) * MAX_OFFSET_DEGREES;
            (moved * 1e6).round() / 1e6
        })
    }
}

/// The lines of a compressed file.
///
/// # Errors
/// A missing file.
pub fn open(file: &Path) -> Result<impl Read + use<>> {
    let plain = std::fs::File::open(file).map_err(|error| format!("{}: {error}", file.display()))?;
    Ok(zstd::stream::read::Decoder::new(plain)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_repeated_with_small_offsets() {
        let mut positions = Positions::load(None, 100, 1).unwrap();
        let first: Vec<Position> = (0..100).map(|_| positions.next()).collect();
        assert_eq!(first, positions.positions);
        for original in first {
            let again = positions.next();
            let apart = (0..2).map(|at| (again[at] - original[at]).abs()).fold(0.0, f64::max);
            assert!(apart > 0.0 && apart < MAX_OFFSET_DEGREES * 1.001, "{original:?} {again:?}");
        }
        assert_eq!(
            Positions::load(None, 100, 1).unwrap().any(),
            Positions::load(None, 100, 1).unwrap().any()
        );
        assert!(Positions::load(Some(Path::new("/nonexistent")), 100, 1).is_err());
    }
}
