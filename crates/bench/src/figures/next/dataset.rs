//! The data sets: real data, and numbers of a distribution (§6.1, §6.5).
//!
//! ```text
//! in the paper      data set   numbers                       space           order of the writes
//! OSM Buildings     areas      perimeter_m                   rect(bbox)      random
//! tweets            posts      user (see below)                              time
//! tweets            vehicles   route                         point(lon,lat)  time
//! ```
//!
//! Posts have no user numbers. The number of a user is the hash of the web site that the post links to, as in the figures of
//! LevelDB++. A site with more than one post in a thousand is divided into several users. If there are more records than
//! lines, lines are repeated with slightly changed coordinates and numbers.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;

use serde_json::{Map, Value};

use crate::data::positions::{BUNDLED as VEHICLES, SHARED_DATA, open};
use crate::data::random::{Random, mix};
use crate::error::Result;
use crate::figures::Scale;
use crate::next_baselines::{Attribute, with_cell};

const AREAS: &[u8] = include_bytes!("../../../data/areas.ndjson.zst");
const POSTS: &[u8] = include_bytes!("../../../../cli/data/posts.ndjson.zst");

/// User numbers are below this.
const USERS: u64 = 100_000_000;

/// A data set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataSource {
    /// Rectangles of areas.
    Areas,
    /// Positions of buses.
    Vehicles,
    /// Posts.
    Posts,
}

/// A record.
#[derive(Debug, Clone, PartialEq)]
pub struct DataRecord {
    /// The primary key.
    pub key: [u8; 12],
    /// The record.
    pub json: Vec<u8>,
    /// Its number.
    pub value: f64,
    /// Its rectangle; that of a point has no extent.
    pub rect: [f64; 4],
}

/// Records of one data set, by primary key.
#[derive(Debug, Clone)]
pub struct DataSet {
    /// Their data set.
    pub source: DataSource,
    /// The records.
    pub rows: Vec<DataRecord>,
    /// A description: the number of records and of lines.
    pub summary: String,
    /// Positions in `rows` in the order of the writes.
    order: Vec<u32>,
}

impl DataSource {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Areas => "areas",
            Self::Vehicles => "vehicles",
            Self::Posts => "posts",
        }
    }

    /// The attribute with numbers.
    pub fn number(self) -> Attribute {
        Attribute {
            path: match self {
                Self::Areas => "perimeter_m",
                Self::Vehicles => "route",
                Self::Posts => "user",
            },
        }
    }

    /// The attribute with points or rectangles. Posts have none.
    pub fn space(self) -> Attribute {
        Attribute { path: if self == Self::Areas { "rect(bbox)" } else { "point(lon,lat)" } }
    }

    /// The data set with so many records.
    ///
    /// # Errors
    /// An unreadable file, and a line that is not of the data set.
    pub fn rows(self, scale: &Scale, records: u64) -> Result<DataSet> {
        let name = format!("{}.ndjson.zst", self.name());
        let explicit = scale.data.as_ref().map(|directory| directory.join(&name));
        let shared = Some(PathBuf::from(SHARED_DATA).join(&name)).filter(|file| file.exists());
        let file = explicit.or(shared);
        let lines = match &file {
            Some(file) => self.lines(open(file)?, records)?,
            None => self.lines(zstd::stream::read::Decoder::new(self.bundled())?, records)?,
        };
        let part = if file.is_some() { "the whole data set" } else { "the bundled part" };
        let summary = format!("{} records from {} lines of {part} of {}", records, lines.len(), self.name());
        let rows = self.grow(lines, records, scale.seed)?;
        let mut order: Vec<u32> = (0..rows.len() as u32).collect();
        if self == Self::Areas {
            let mut random = Random::new(scale.seed ^ 77);
            for position in (1..order.len()).rev() {
                order.swap(position, random.below(position as u64 + 1) as usize);
            }
        }
        Ok(DataSet { source: self, rows, summary, order })
    }

    fn bundled(self) -> &'static [u8] {
        match self {
            Self::Areas => AREAS,
            Self::Vehicles => VEHICLES,
            Self::Posts => POSTS,
        }
    }

    /// The first `max_lines` lines, or all if there are fewer.
    fn lines(self, from: impl Read, max_lines: u64) -> Result<Vec<Map<String, Value>>> {
        let mut lines = Vec::new();
        for (number, line) in BufReader::new(from).lines().take(max_lines as usize).enumerate() {
            let parsed = serde_json::from_str(&line?);
            lines.push(parsed.map_err(|error| format!("{}, line {}: {error}", self.name(), number + 1))?);
        }
        if lines.is_empty() {
            return Err(format!("{} has no lines", self.name()).into());
        }
        Ok(lines)
    }

    /// Records from the lines, which are repeated with changed values.
    fn grow(self, lines: Vec<Map<String, Value>>, records: u64, seed: u64) -> Result<Vec<DataRecord>> {
        let mut random = Random::new(seed ^ 78);
        let users = if self == Self::Posts { users_of(&lines) } else { Vec::new() };
        let mut rows = Vec::with_capacity(records as usize);
        for number in 0..records {
            let at = number as usize % lines.len();
            let is_repeated = number as usize >= lines.len();
            let mut record = lines[at].clone();
            let (value, rect) = match self {
                Self::Areas => area(&mut record, is_repeated, &mut random)?,
                Self::Vehicles => vehicle(&mut record, is_repeated, &mut random)?,
                Self::Posts => {
                    let sharing = mix(users[at].1 ^ random.below(users[at].0));
                    let user = sharing % USERS;
                    record.insert("user".into(), user.into());
                    (user as f64, [0.0; 4])
                }
            };
            let json = serde_json::to_vec(&record)?;
            let json = if self == Self::Posts { json } else { with_cell(&json, rect) };
            rows.push(DataRecord { key: key_of(number), json, value, rect });
        }
        Ok(rows)
    }
}

impl DataSet {
    /// These records, written in this order.
    #[cfg(test)]
    pub fn of(source: DataSource, rows: Vec<DataRecord>) -> Self {
        let order = (0..rows.len() as u32).collect();
        Self { source, rows, summary: String::new(), order }
    }

    /// The records in the order of the writes.
    pub fn in_write_order(&self) -> impl Iterator<Item = &DataRecord> {
        self.order.iter().map(|at| &self.rows[*at as usize])
    }

    /// The attribute with space if `is_spatial`, else with numbers.
    pub fn attribute(&self, is_spatial: bool) -> Attribute {
        if is_spatial { self.source.space() } else { self.source.number() }
    }

    /// The same records with a further field `name`, whose number `draw` returns.
    pub fn with_number(&self, name: &str, mut draw: impl FnMut() -> u64) -> Self {
        let mut data = self.clone();
        for row in &mut data.rows {
            let value = draw();
            row.json.pop();
            row.json.extend_from_slice(format!(",\"{name}\":{value}}}").as_bytes());
            row.value = value as f64;
        }
        data
    }
}

/// The primary key of record `number`.
pub fn key_of(number: u64) -> [u8; 12] {
    let mut key = *b"r00000000000";
    for (digit, place) in key[1..].iter_mut().rev().enumerate() {
        *place = b'0' + (number / 10u64.pow(digit as u32) % 10) as u8;
    }
    key
}

fn number(record: &Map<String, Value>, field: &str) -> Result<f64> {
    let number = record.get(field).and_then(Value::as_f64);
    number.ok_or_else(|| format!("a line has no number `{field}`").into())
}

/// A random number from `-by` to `by`.
fn offset(random: &mut Random, by: f64) -> f64 {
    (random.unit() * 2.0 - 1.0) * by
}

/// Seven decimals, as in the source.
fn rounded(degrees: f64) -> f64 {
    (degrees * 1e7).round() / 1e7
}

fn area(record: &mut Map<String, Value>, is_repeated: bool, random: &mut Random) -> Result<(f64, [f64; 4])> {
    let corners = record.get("bbox").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let corners: Vec<f64> = corners.iter().filter_map(Value::as_f64).collect();
    let mut rect = <[f64; 4]>::try_from(corners).map_err(|_| "a line has no `bbox` of four numbers")?;
    let mut perimeter = number(record, "perimeter_m")?;
    if is_repeated {
        let by = [offset(random, 0.2), offset(random, 0.1)];
        rect = [0, 1, 2, 3].map(|at| rounded(rect[at] + by[at % 2]));
        perimeter = (perimeter * (1.0 + offset(random, 0.2)) * 100.0).round() / 100.0;
        record.insert("bbox".into(), rect.to_vec().into());
        record.insert("perimeter_m".into(), perimeter.into());
    }
    Ok((perimeter, rect))
}

fn vehicle(
    record: &mut Map<String, Value>,
    is_repeated: bool,
    random: &mut Random,
) -> Result<(f64, [f64; 4])> {
    let (mut lon, mut lat) = (number(record, "lon")?, number(record, "lat")?);
    if is_repeated {
        (lon, lat) = (rounded(lon + offset(random, 0.02)), rounded(lat + offset(random, 0.02)));
        record.insert("lon".into(), lon.into());
        record.insert("lat".into(), lat.into());
    }
    Ok((number(record, "route")?, [lon, lat, lon, lat]))
}

/// For each line the number of users of its site, and the hash of the site.
fn users_of(lines: &[Map<String, Value>]) -> Vec<(u64, u64)> {
    let site = |line: &Map<String, Value>| {
        let name = line.get("domain").and_then(Value::as_str).unwrap_or_default();
        name.bytes().fold(0u64, |hash, byte| mix(hash ^ u64::from(byte)))
    };
    let sites: Vec<u64> = lines.iter().map(site).collect();
    let mut counts: HashMap<u64, u64> = HashMap::new();
    sites.iter().for_each(|site| *counts.entry(*site).or_default() += 1);
    let max_posts = (lines.len() as u64 / 1000).max(1);
    sites
        .into_iter()
        .map(|site| (counts.get(&site).map_or(1, |count| count.div_ceil(max_posts)), site))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scale() -> Scale {
        Scale {
            records: 1000,
            queries: 1,
            seed: 3,
            pm_read_nanos: 0,
            pm_write_nanos: 0,
            seed_set: None,
            data: None,
            directory: None,
        }
    }

    #[test]
    fn records_from_the_bundled_parts_depend_on_the_seed_alone() {
        for source in [DataSource::Areas, DataSource::Vehicles, DataSource::Posts] {
            let lines = || source.lines(zstd::stream::read::Decoder::new(source.bundled()).unwrap(), 1_500);
            let rows = source.grow(lines().unwrap(), 4_000, 7).unwrap();
            assert_eq!(rows, source.grow(lines().unwrap(), 4_000, 7).unwrap());
            assert_ne!(rows, source.grow(lines().unwrap(), 4_000, 8).unwrap());
            for row in [&rows[0], &rows[1_499], &rows[3_999]] {
                let record: Value = serde_json::from_slice(&row.json).unwrap();
                let field = source.number().path;
                assert_eq!(record[field].as_f64(), Some(row.value), "{record}");
                assert_eq!(record.get("cell").is_some(), source != DataSource::Posts);
            }
        }
        assert_eq!(&key_of(120), b"r00000000120");
    }

    #[test]
    fn posts_have_many_users_and_areas_are_written_in_random_order() {
        let posts = DataSource::Posts.rows(&scale(), 15_000).unwrap();
        let mut counts: HashMap<u64, usize> = HashMap::new();
        posts.rows.iter().for_each(|row| *counts.entry(row.value as u64).or_default() += 1);
        let max_posts = counts.values().copied().max().unwrap_or(0);
        assert!(max_posts < 60 && counts.len() > 1_000, "{max_posts} of {}", counts.len());
        let areas = DataSource::Areas.rows(&scale(), 1_000).unwrap();
        let written: Vec<&[u8; 12]> = areas.in_write_order().map(|row| &row.key).collect();
        assert!(!written.is_sorted());
        let mut sorted = written.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), 1_000);
        let more = posts.with_number("n", || 5);
        let record: Value = serde_json::from_slice(&more.rows[9].json).unwrap();
        assert_eq!((record["n"].as_u64(), more.rows[9].value), (Some(5), 5.0));
    }

    #[test]
    fn invalid_data_is_rejected() {
        assert!(DataSource::Areas.lines(&b""[..], 5).is_err());
        let error = DataSource::Areas.lines(&b"{}\n["[..], 5).unwrap_err().to_string();
        assert!(error.contains("line 2"), "{error}");
        let lines = DataSource::Areas.lines(&b"{}\n"[..], 5).unwrap();
        assert!(DataSource::Areas.grow(lines, 5, 1).unwrap_err().to_string().contains("bbox"));
        let missing = Scale { data: Some("/nonexistent".into()), ..scale() };
        assert!(DataSource::Posts.rows(&missing, 5).unwrap_err().to_string().contains("posts.ndjson.zst"));
    }
}
