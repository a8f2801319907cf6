//! The synthetic tweets of LevelDB++ (§5.1), generated from a seed set of real records.
//!
//! As in the paper, a generated record takes its user from the rank-frequency distribution of the seed
//! set, the length of its body from a record of the seed set, and the second of its creation from a
//! rate: the number of records per second is uniform between zero and twice the mean.
//!
//! The seed set is Reddit posts without authors. The web site that a post links to represents the user, since frequencies of
//! sites follow a power law as those of users do. Sites of more than one post in a thousand (image hosts) are excluded, since
//! no user writes a fifth of all tweets.

use std::collections::HashMap;
use std::fmt::Write;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;

use crate::data::random::Random;
use crate::error::Result;

/// 19,412 posts (see `crates/cli/data/README.md`).
const BUNDLED: &[u8] = include_bytes!("../../../../cli/data/posts.ndjson.zst");

/// The maximum number of posts of a site, of a thousand.
const MAX_OF_A_THOUSAND: usize = 1;

/// Mean number of records a second, as in the paper's seed set.
pub const RECORDS_PER_SECOND: u64 = 35;

/// The distributions that generated records follow.
#[derive(Debug)]
pub struct SeedSet {
    /// Names as JSON strings, the most frequent first, each with the cumulated number of posts.
    users: Vec<(String, u64)>,
    body_lengths: Vec<usize>,
    posts: usize,
}

#[derive(Deserialize)]
struct Post {
    domain: String,
    title: String,
    #[serde(default)]
    selftext: Option<String>,
}

impl SeedSet {
    /// Reads the bundled posts, or a file of newline-delimited JSON, compressed by zstd if its name ends in `.zst`.
    pub fn open(file: Option<&Path>) -> Result<Self> {
        let Some(file) = file else { return Self::read(zstd::stream::read::Decoder::new(BUNDLED)?) };
        let plain = std::fs::File::open(file).map_err(|error| format!("{}: {error}", file.display()))?;
        if file.extension().is_some_and(|extension| extension == "zst") {
            Self::read(zstd::stream::read::Decoder::new(plain)?)
        } else {
            Self::read(plain)
        }
    }

    fn read(source: impl Read) -> Result<Self> {
        let mut sites: HashMap<String, usize> = HashMap::new();
        let mut body_lengths = Vec::new();
        for (line, text) in BufReader::new(source).lines().enumerate() {
            let post: Post = serde_json::from_str(&text?)
                .map_err(|error| format!("seed set, line {}: {error}", line + 1))?;
            body_lengths.push(post.title.len() + post.selftext.map_or(0, |text| text.len()));
            *sites.entry(post.domain).or_default() += 1;
        }
        let posts = body_lengths.len();
        sites.retain(|_, count| *count * 1000 <= (posts * MAX_OF_A_THOUSAND).max(1000));
        let mut ranked: Vec<(String, usize)> = sites.into_iter().collect();
        ranked.sort_unstable_by(|left, right| right.1.cmp(&left.1).then_with(|| left.0.cmp(&right.0)));
        let mut total = 0;
        let mut users = Vec::with_capacity(ranked.len());
        for (site, count) in ranked {
            total += count as u64;
            users.push((serde_json::to_string(&site)?, total));
        }
        if users.is_empty() {
            return Err("the seed set has no posts".into());
        }
        Ok(Self { users, body_lengths, posts })
    }

    /// The numbers of posts and of users.
    pub fn size(&self) -> (usize, usize) {
        (self.posts, self.users.len())
    }

    fn user(&self, random: &mut Random) -> usize {
        let total = self.users.last().map_or(0, |(_, total)| *total);
        let post = random.below(total);
        self.users.partition_point(|(_, up_to)| *up_to <= post)
    }
}

/// One generated record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tweet {
    /// Its number from 0 on, which determines the primary key.
    pub number: u64,
    /// The rank of its user in the seed set.
    pub user: usize,
    /// The second in which it was created.
    pub time: u64,
    /// The record.
    pub json: Vec<u8>,
}

/// The primary key of record `number`.
pub fn primary_key(number: u64) -> [u8; 12] {
    let mut key = *b"t00000000000";
    for (digit, digit_byte) in key[1..].iter_mut().rev().enumerate() {
        *digit_byte = b'0' + (number / 10u64.pow(digit as u32) % 10) as u8;
    }
    key
}

/// Generates records, which depend on the seed alone.
#[derive(Debug, Clone)]
pub struct Tweets {
    seed_set: Arc<SeedSet>,
    random: Random,
    next: u64,
    time: u64,
    left_in_second: u64,
}

impl Tweets {
    /// A generator at the first record of `seed`.
    pub fn new(seed_set: Arc<SeedSet>, seed: u64) -> Self {
        Self { seed_set, random: Random::new(seed), next: 0, time: 1_400_000_000, left_in_second: 0 }
    }

    /// The name of a user as a JSON string.
    pub fn user_name(&self, user: usize) -> &str {
        self.seed_set.users.get(user).map_or("\"\"", |(name, _)| name)
    }

    /// The next record.
    pub fn generate(&mut self) -> Tweet {
        while self.left_in_second == 0 {
            self.time += 1;
            self.left_in_second = self.random.below(2 * RECORDS_PER_SECOND + 1);
        }
        self.left_in_second -= 1;
        let number = self.next;
        self.next += 1;
        self.version_of(number)
    }

    /// Another version of record `number`, created now.
    pub fn version_of(&mut self, number: u64) -> Tweet {
        let user = self.seed_set.user(&mut self.random);
        let lengths = &self.seed_set.body_lengths;
        let length = lengths[self.random.below(lengths.len() as u64) as usize];
        let mut json = String::with_capacity(length + 80);
        // Writing to a string cannot fail.
        let _ =
            write!(json, r#"{{"id":{number},"user":{},"time":{},"body":""#, self.user_name(user), self.time);
        for _ in 0..length {
            json.push(char::from(b'a' + self.random.below(26) as u8));
        }
        json.push_str("\"}");
        Tweet { number, user, time: self.time, json: json.into_bytes() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_follow_the_seed_set() {
        let seed_set = Arc::new(SeedSet::open(None).unwrap());
        let (posts, users) = seed_set.size();
        assert_eq!(posts, 19_412);
        assert!(users > 1_000, "{users}");
        let mut tweets = Tweets::new(seed_set.clone(), 7);
        let rows: Vec<Tweet> = (0..20_000).map(|_| tweets.generate()).collect();
        let mut again = Tweets::new(seed_set.clone(), 7);
        assert!(rows.iter().all(|row| *row == again.generate()));
        let seconds = rows[rows.len() - 1].time - rows[0].time;
        assert!((450..700).contains(&seconds), "{seconds}");
        // The most frequent user gets its share, within a fifth.
        let total = seed_set.users[users - 1].1 as f64;
        let expected = seed_set.users[0].1 as f64 / total * 20_000.0;
        let found = rows.iter().filter(|row| row.user == 0).count() as f64;
        assert!((found - expected).abs() < expected / 5.0 + 10.0, "{found} of {expected}");
        let value: serde_json::Value = serde_json::from_slice(&rows[9].json).unwrap();
        assert_eq!(value["id"], 9);
        assert_eq!(value["user"].to_string(), tweets.user_name(rows[9].user));
        assert_eq!(&primary_key(120), b"t00000000120");
    }

    #[test]
    fn an_invalid_seed_set_is_rejected() {
        assert!(SeedSet::read(&b""[..]).is_err());
        let error = SeedSet::read(&b"{}\n"[..]).unwrap_err().to_string();
        assert!(error.contains("line 1"), "{error}");
    }
}
