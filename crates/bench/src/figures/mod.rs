//! The figures of the papers, repeated at a scale that takes minutes.
//!
//! Each figure measures, draws an SVG, writes its results as JSON and checks claims about them. A claim either agrees with
//! the paper, or differs from it with a reason. A claim that does not hold fails the run.

mod chart;
mod leveldbpp;
mod next;
mod page;
mod perseid;
mod quartiles;
mod remix;
mod report;

use std::path::{Path, PathBuf};

use clap::Args;
use report::FigureReport;

use crate::error::Result;

/// The amount of work of a figure, and its data.
#[derive(Debug, Clone, Args)]
pub struct Scale {
    /// Records of the data set
    #[arg(long, default_value_t = 100_000)]
    pub records: u64,
    /// Queries of each kind
    #[arg(long, default_value_t = 300)]
    pub queries: u64,
    /// Seed of all random choices
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Delay of reading 256 bytes of modelled persistent memory, in nanoseconds (0 for both delays: no panels with delays)
    #[arg(long, default_value_t = 200)]
    pub pm_read_nanos: u64,
    /// Delay of persisting 256 bytes of modelled persistent memory, in nanoseconds
    #[arg(long, default_value_t = 100)]
    pub pm_write_nanos: u64,
    /// Posts to take the distributions from, NDJSON, also .zst (default: the bundled ones)
    #[arg(long)]
    pub seed_set: Option<PathBuf>,
    /// Directory of `areas`, `vehicles` and `posts`, each NAME.ndjson.zst (default: the shared data directory, else the
    /// bundled parts)
    #[arg(long)]
    pub data: Option<PathBuf>,
    /// Parent directory of the databases (default: the system's directory for temporary files)
    #[arg(long)]
    pub directory: Option<PathBuf>,
}

/// A figure: its name, title and measurement.
#[derive(Debug, Clone, Copy)]
pub struct Figure {
    /// Its name on the command line.
    pub name: &'static str,
    /// Its subject.
    pub title: &'static str,
    /// The measurement.
    pub run: fn(&Scale) -> Result<FigureReport>,
}

/// All figures.
fn all() -> impl Iterator<Item = &'static Figure> {
    leveldbpp::FIGURES.iter().chain(perseid::FIGURES).chain(next::FIGURES).chain(remix::FIGURES)
}

/// Prints the names of all figures.
pub fn list() {
    for figure in all() {
        println!("{:18} {}", figure.name, figure.title);
    }
}

/// Writes the pages of all figures whose JSON is in `out`, in the order of [`list`]: `../EVIDENCE.md` with the verdicts and
/// `../evidence/NAME.md` for each.
///
/// # Errors
/// An unreadable or unwritable file, and an `out` without figures.
pub fn write_pages(out: &Path) -> Result<()> {
    for (file, text) in pages(out)? {
        let file = out.join("..").join(file);
        if let Some(folder) = file.parent() {
            std::fs::create_dir_all(folder)?;
        }
        std::fs::write(&file, text)?;
    }
    Ok(())
}

/// The pages, each with its path relative to the parent of `out`.
fn pages(out: &Path) -> Result<Vec<(PathBuf, String)>> {
    let mut reports: Vec<FigureReport> = Vec::new();
    for figure in all() {
        let file = out.join(format!("{}.json", figure.name));
        let bytes = match std::fs::read(&file) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(format!("{}: {error}", file.display()).into()),
        };
        reports.push(serde_json::from_slice(&bytes).map_err(|error| format!("{}: {error}", file.display()))?);
    }
    if reports.is_empty() {
        return Err(format!("{} holds no figures", out.display()).into());
    }
    let verdicts = (PathBuf::from("EVIDENCE.md"), page::verdicts(&reports));
    let figures = reports.iter().map(|report| {
        (Path::new("evidence").join(format!("{}.md", report.name)), page::figure(report, "../figures"))
    });
    Ok(std::iter::once(verdicts).chain(figures).collect())
}

/// True if one of `names` selects the figure: its own name, `all`, or the name of its paper with `-all`.
fn is_selected(figure: &Figure, names: &[String]) -> bool {
    let of_paper = |name: &str| {
        name.strip_suffix("all")
            .is_some_and(|paper| paper.is_empty() || paper.ends_with('-') && figure.name.starts_with(paper))
    };
    names.iter().any(|name| name == figure.name || of_paper(name))
}

/// Measures the figures with these names (`all`: every figure; `perseid-all`: those of a paper). Writes `NAME.svg`, `NAME.json`
/// and `NAME.md` into `out`.
///
/// # Errors
/// A failed measurement, and a claim that does not hold.
pub fn run(names: &[String], scale: &Scale, out: &Path) -> Result<()> {
    if scale.records < 1000 || scale.queries == 0 {
        return Err("a figure needs at least 1000 records and one query".into());
    }
    let is_known = |name: &String| all().any(|figure| is_selected(figure, std::slice::from_ref(name)));
    if let Some(unknown) = names.iter().find(|name| !is_known(name)) {
        return Err(format!("no figure `{unknown}`; see `figure list`").into());
    }
    std::fs::create_dir_all(out)?;
    let mut broken = Vec::new();
    for figure in all().filter(|figure| is_selected(figure, names)) {
        let started = std::time::Instant::now();
        eprintln!("{}: {}", figure.name, figure.title);
        let report = (figure.run)(scale)?;
        write(&report, out)?;
        println!("{}", report.markdown());
        eprintln!("{}: {:.0} s", figure.name, started.elapsed().as_secs_f64());
        broken.extend(report.broken().map(|claim| format!("{}: {}", figure.name, claim.claim)));
    }
    if broken.is_empty() {
        return Ok(());
    }
    Err(format!("these claims do not hold:\n  {}", broken.join("\n  ")).into())
}

fn write(report: &FigureReport, out: &Path) -> Result<()> {
    std::fs::write(out.join(format!("{}.json", report.name)), serde_json::to_vec_pretty(report)?)?;
    std::fs::write(out.join(format!("{}.md", report.name)), report.markdown())?;
    chart::draw(report, &out.join(format!("{}.svg", report.name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pages_in_the_repository_match_its_figures() {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
        for (file, text) in pages(&docs.join("figures")).unwrap() {
            let page = std::fs::read_to_string(docs.join(&file)).unwrap_or_default();
            assert!(page == text, "docs/{}: run `figure pages --out docs/figures`", file.display());
        }
    }

    #[test]
    fn a_name_selects_a_figure_the_figures_of_a_paper_or_all() {
        let selected = |name: &str| all().filter(|figure| is_selected(figure, &[name.to_owned()])).count();
        assert_eq!(
            selected("all"),
            [leveldbpp::FIGURES, perseid::FIGURES, next::FIGURES, remix::FIGURES].concat().len()
        );
        assert_eq!(selected("next-all"), next::FIGURES.len());
        assert_eq!(selected("remix-all"), remix::FIGURES.len());
        assert_eq!(selected("perseid-all"), perseid::FIGURES.len());
        assert_eq!(
            (selected("perseid-7"), selected("leveldbpp-8"), selected("perseid"), selected("x-all")),
            (1, 1, 0, 0)
        );
    }
}
