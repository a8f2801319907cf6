//! SQL over the collections of Bolide.
//!
//! Each collection is a table. A [`SqlSession`] runs statements: queries are planned and executed by DataFusion over scans that
//! use Bolide's indexes; INSERT, UPDATE and DELETE write through Bolide's transactions.
//!
//! ```
//! use bolide::{CollectionOptions, Components, Db, Options};
//! use bolide_sql::{SessionOptions, SqlSession};
//! # let runtime = tokio::runtime::Builder::new_multi_thread().build().unwrap();
//! # runtime.block_on(async {
//! let db = Db::open_with("db", Options::default(), Components::in_memory())?;
//! let posts = db.create_collection("posts", CollectionOptions::default().index("author".parse()?))?;
//! posts.put(b"p1", br#"{"author":"ann","score":3}"#)?;
//! posts.put(b"p2", br#"{"author":"bob","score":5}"#)?;
//!
//! let mut session = SqlSession::new(db, &SessionOptions::default())?;
//! let rows = session.query("SELECT _key, score FROM posts WHERE author = 'bob'").await?;
//! assert_eq!(rows.iter().map(|batch| batch.num_rows()).sum::<usize>(), 1);
//! session.query("UPDATE posts SET score = score + 1 WHERE author = 'ann'").await?;
//! assert_eq!(posts.get(b"p1")?.as_deref(), Some(&br#"{"author":"ann","score":4}"#[..]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```
//!
//! # Overview
//!
//! | concept | module |
//! |---|---|
//! | columns and their declarations | `table_schema`, `declarations`, `sample` |
//! | predicates as conditions on attributes and keys | `pushdown`, `column_value`, `key_condition` |
//! | the scan of a table | `table`, `scan`, `rules` |
//! | the state that a statement reads | `read_point` |
//! | statements | `script`, `session`, `ddl`, `dml`, `commands` |
//! | rows as records | `row_encoder`, `record_edit`, `record_key` |

#![forbid(unsafe_code)]

mod blocking_call;
mod catalog;
mod column_value;
mod commands;
mod ddl;
mod declarations;
mod dml;
mod error;
mod fast_path;
mod identifiers;
mod key_condition;
mod planner;
mod pushdown;
mod read_point;
mod record_edit;
mod record_key;
mod row_encoder;
mod rules;
mod sample;
mod scan;
mod script;
mod session;
mod session_options;
mod session_state;
mod shared_transaction;
mod sql_rows;
mod system_tables;
mod table;
mod table_schema;
mod token_cursor;
mod transactions;

pub use error::{Result, SqlError, SqlState};
pub use script::{is_complete, is_write, split_statements};
pub use session::SqlSession;
pub use session_options::SessionOptions;
pub use sql_rows::{SqlResult, SqlRows};

pub(crate) use blocking_call::blocking;
