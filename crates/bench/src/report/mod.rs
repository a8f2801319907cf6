//! Figures of rows, their medians, and tables of them.

mod figures;
mod machine;
mod table;

pub use figures::{EngineFigures, Report, RowFigures, median_of_runs};
pub use machine::machine;
pub use table::print_tables;
