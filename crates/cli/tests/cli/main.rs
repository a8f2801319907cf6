//! Runs the program as a user does: every verb, every form of input, every exit status.

mod advise;
mod bulk;
#[cfg(target_os = "linux")]
mod control_group;
mod damage;
mod demo;
mod find;
mod import;
mod program;
mod repair;
mod verbs;
