//! What is written: real data, and numbers made up by a distribution (§6.1, §6.5).
//!
//! ```text
//! stands for        data set   numbers                       space
//! OSM Buildings     areas      perimeter_m                   rect(bbox)      written in no order
//! tweets            posts      user (see below)                              written in the order of time
//! tweets            vehicles   route                         point(lon,lat)  written in the order of time
//! ```
//!
//! Posts have no numbered users, so the web site that a post links to stands for the user, as in the figures of LevelDB++:
//! its hash is the number. A site with more than one post in a thousand stands for as many users as it takes. Where more
//! records are wanted than there are lines, lines are taken again with other coordinates and numbers nearby.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;

use serde_json::{Map, Value};

use crate::data::positions::{BESIDE, BUNDLED as VEHICLES, open};
use crate::data::random::{Random, mix};
use crate::error::Result;
use crate::figures::Scale;
use crate::next_baselines::{Attribute, with_cell};

const AREAS: &[u8] = include_bytes!("../../../data/areas.ndjson.zst");
const POSTS: &[u8] = include_bytes!("../../../../cli/data/posts.ndjson.zst");

/// Users are numbered up to here.
const USERS: u64 = 100_000_000;

/// A data set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Rectangles of areas.
    Areas,
    /// Positions of buses.
    Vehicles,
    /// Posts.
    Posts,
}

/// A record.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// The primary key.
    pub key: [u8; 12],
    /// The record.
    pub json: Vec<u8>,
    /// Its number.
    pub value: f64,
    /// Its rectangle, of a point without extent.
    pub rect: [f64; 4],
}

/// Records of one data set, by primary key.
#[derive(Debug, Clone)]
pub struct Data {
    /// Where they are from.
    pub source: Source,
    /// The records.
    pub rows: Vec<Row>,
    /// In words: what they are, and how many lines they were made from.
    pub summary: String,
    /// Positions in `rows` as they are written.
    order: Vec<u32>,
}

impl Source {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Areas => "areas",
            Self::Vehicles => "vehicles",
            Self::Posts => "posts",
        }
    }

    /// The attribute of numbers.
    pub fn number(self) -> Attribute {
        Attribute {
            path: match self {
                Self::Areas => "perimeter_m",
                Self::Vehicles => "route",
                Self::Posts => "user",
            },
        }
    }

    /// The attribute of space. Posts have none.
    pub fn space(self) -> Attribute {
        Attribute { path: if self == Self::Areas { "rect(bbox)" } else { "point(lon,lat)" } }
    }

    /// So many records.
    ///
    /// # Errors
    /// Where a file does not read, or a line is not of the data set.
    pub fn rows(self, scale: &Scale, records: u64) -> Result<Data> {
        let name = format!("{}.ndjson.zst", self.name());
        let given = scale.data.as_ref().map(|directory| directory.join(&name));
        let beside = Some(PathBuf::from(BESIDE).join(&name)).filter(|file| file.exists());
        let file = given.or(beside);
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
        Ok(Data { source: self, rows, summary, order })
    }

    fn bundled(self) -> &'static [u8] {
        match self {
            Self::Areas => AREAS,
            Self::Vehicles => VEHICLES,
            Self::Posts => POSTS,
        }
    }

    /// The first lines, as many as there are up to `most`.
    fn lines(self, from: impl Read, most: u64) -> Result<Vec<Map<String, Value>>> {
        let mut lines = Vec::new();
        for (number, line) in BufReader::new(from).lines().take(most as usize).enumerate() {
            let parsed = serde_json::from_str(&line?);
            lines.push(parsed.map_err(|error| format!("{}, line {}: {error}", self.name(), number + 1))?);
        }
        if lines.is_empty() {
            return Err(format!("{} has no lines", self.name()).into());
        }
        Ok(lines)
    }

    /// Records from lines, again and again with other values.
    fn grow(self, lines: Vec<Map<String, Value>>, records: u64, seed: u64) -> Result<Vec<Row>> {
        let mut random = Random::new(seed ^ 78);
        let users = if self == Self::Posts { users_of(&lines) } else { Vec::new() };
        let mut rows = Vec::with_capacity(records as usize);
        for number in 0..records {
            let at = number as usize % lines.len();
            let is_again = number as usize >= lines.len();
            let mut record = lines[at].clone();
            let (value, rect) = match self {
                Self::Areas => area(&mut record, is_again, &mut random)?,
                Self::Vehicles => vehicle(&mut record, is_again, &mut random)?,
                Self::Posts => {
                    let sharing = mix(users[at].1 ^ random.below(users[at].0));
                    let user = sharing % USERS;
                    record.insert("user".into(), user.into());
                    (user as f64, [0.0; 4])
                }
            };
            let json = serde_json::to_vec(&record)?;
            let json = if self == Self::Posts { json } else { with_cell(&json, rect) };
            rows.push(Row { key: key_of(number), json, value, rect });
        }
        Ok(rows)
    }
}

impl Data {
    /// These records, written in their order.
    #[cfg(test)]
    pub fn of(source: Source, rows: Vec<Row>) -> Self {
        let order = (0..rows.len() as u32).collect();
        Self { source, rows, summary: String::new(), order }
    }

    /// The records as they are written.
    pub fn in_writing_order(&self) -> impl Iterator<Item = &Row> {
        self.order.iter().map(|at| &self.rows[*at as usize])
    }

    /// The attribute of numbers, or that of space.
    pub fn attribute(&self, is_spatial: bool) -> Attribute {
        if is_spatial { self.source.space() } else { self.source.number() }
    }

    /// The same records with one more number each, `name`, drawn by `draw`.
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

/// About `by` up or down.
fn around(random: &mut Random, by: f64) -> f64 {
    (random.unit() * 2.0 - 1.0) * by
}

/// Seven decimals, as in the source.
fn rounded(degrees: f64) -> f64 {
    (degrees * 1e7).round() / 1e7
}

fn area(record: &mut Map<String, Value>, is_again: bool, random: &mut Random) -> Result<(f64, [f64; 4])> {
    let corners = record.get("bbox").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let corners: Vec<f64> = corners.iter().filter_map(Value::as_f64).collect();
    let mut rect = <[f64; 4]>::try_from(corners).map_err(|_| "a line has no `bbox` of four numbers")?;
    let mut perimeter = number(record, "perimeter_m")?;
    if is_again {
        let by = [around(random, 0.2), around(random, 0.1)];
        rect = [0, 1, 2, 3].map(|at| rounded(rect[at] + by[at % 2]));
        perimeter = (perimeter * (1.0 + around(random, 0.2)) * 100.0).round() / 100.0;
        record.insert("bbox".into(), rect.to_vec().into());
        record.insert("perimeter_m".into(), perimeter.into());
    }
    Ok((perimeter, rect))
}

fn vehicle(record: &mut Map<String, Value>, is_again: bool, random: &mut Random) -> Result<(f64, [f64; 4])> {
    let (mut lon, mut lat) = (number(record, "lon")?, number(record, "lat")?);
    if is_again {
        (lon, lat) = (rounded(lon + around(random, 0.02)), rounded(lat + around(random, 0.02)));
        record.insert("lon".into(), lon.into());
        record.insert("lat".into(), lat.into());
    }
    Ok((number(record, "route")?, [lon, lat, lon, lat]))
}

/// Of each line the number of users that its site stands for, and the hash of the site.
fn users_of(lines: &[Map<String, Value>]) -> Vec<(u64, u64)> {
    let site = |line: &Map<String, Value>| {
        let name = line.get("domain").and_then(Value::as_str).unwrap_or_default();
        name.bytes().fold(0u64, |hash, byte| mix(hash ^ u64::from(byte)))
    };
    let sites: Vec<u64> = lines.iter().map(site).collect();
    let mut counts: HashMap<u64, u64> = HashMap::new();
    sites.iter().for_each(|site| *counts.entry(*site).or_default() += 1);
    let most = (lines.len() as u64 / 1000).max(1);
    sites.into_iter().map(|site| (counts.get(&site).map_or(1, |count| count.div_ceil(most)), site)).collect()
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
    fn the_bundled_parts_grow_and_are_the_same_for_the_same_seed() {
        for source in [Source::Areas, Source::Vehicles, Source::Posts] {
            let lines = || source.lines(zstd::stream::read::Decoder::new(source.bundled()).unwrap(), 1_500);
            let rows = source.grow(lines().unwrap(), 4_000, 7).unwrap();
            assert_eq!(rows, source.grow(lines().unwrap(), 4_000, 7).unwrap());
            assert_ne!(rows, source.grow(lines().unwrap(), 4_000, 8).unwrap());
            for row in [&rows[0], &rows[1_499], &rows[3_999]] {
                let record: Value = serde_json::from_slice(&row.json).unwrap();
                let field = source.number().path;
                assert_eq!(record[field].as_f64(), Some(row.value), "{record}");
                assert_eq!(record.get("cell").is_some(), source != Source::Posts);
            }
        }
        assert_eq!(&key_of(120), b"r00000000120");
    }

    #[test]
    fn no_user_writes_much_of_the_posts_and_areas_are_written_in_no_order() {
        let posts = Source::Posts.rows(&scale(), 15_000).unwrap();
        let mut counts: HashMap<u64, usize> = HashMap::new();
        posts.rows.iter().for_each(|row| *counts.entry(row.value as u64).or_default() += 1);
        let most = counts.values().copied().max().unwrap_or(0);
        assert!(most < 60 && counts.len() > 1_000, "{most} of {}", counts.len());
        let areas = Source::Areas.rows(&scale(), 1_000).unwrap();
        let written: Vec<&[u8; 12]> = areas.in_writing_order().map(|row| &row.key).collect();
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
    fn data_that_is_none_is_refused() {
        assert!(Source::Areas.lines(&b""[..], 5).is_err());
        let error = Source::Areas.lines(&b"{}\n["[..], 5).unwrap_err().to_string();
        assert!(error.contains("line 2"), "{error}");
        let lines = Source::Areas.lines(&b"{}\n"[..], 5).unwrap();
        assert!(Source::Areas.grow(lines, 5, 1).unwrap_err().to_string().contains("bbox"));
        let missing = Scale { data: Some("/nonexistent".into()), ..scale() };
        assert!(Source::Posts.rows(&missing, 5).unwrap_err().to_string().contains("posts.ndjson.zst"));
    }
}
