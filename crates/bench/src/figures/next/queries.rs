//! Tables 3 and 4, and figure 5: questions with few, some and many answers (§6.2.1).

use std::sync::{Mutex, PoisonError};

use super::dataset::Source;
use super::windows::{Size, around_records, times};
use super::{CONTENDERS, EAGER, EMBEDDED, NEXT, OnDisk, STANDALONE, judged, report};
use crate::error::Result;
use crate::figures::Scale;
use crate::figures::perseid::{bars, listed, mean};
use crate::figures::quartiles::Quartiles;
use crate::figures::report::{Content, FigureReport, Panel, Series, number};
use crate::next_baselines::Contender;

/// What is asked of which data: with space or without.
const PLACES: [(Source, bool); 4] =
    [(Source::Areas, true), (Source::Areas, false), (Source::Vehicles, true), (Source::Posts, false)];

/// The questions of three sizes to one attribute.
#[derive(Debug, Clone)]
struct Asked {
    source: Source,
    is_spatial: bool,
    /// What the data is, in words.
    told: String,
    /// Of each size, the width and the answers on average.
    windows: Vec<(f64, f64)>,
    /// `micros[size][contender][question]`.
    micros: Vec<Vec<Vec<f64>>>,
}

impl Asked {
    fn name(&self) -> String {
        format!("{}, {}", self.source.name(), if self.is_spatial { "space" } else { "numbers" })
    }

    /// CPU microseconds of a question, on average.
    fn mean(&self, size: Size, contender: Contender) -> f64 {
        let at = CONTENDERS.iter().position(|other| *other == contender).unwrap_or_default();
        mean(&self.micros[size as usize][at])
    }

    fn told(&self, size: Size) -> String {
        let of = CONTENDERS.map(|contender| (contender.name, self.mean(size, contender)));
        format!("{}: {}", self.name(), listed(of))
    }

    fn groups(&self) -> Vec<String> {
        let group = |(name, (_, answers)): (&str, &(f64, f64))| format!("{name} ({})", number(*answers));
        Size::NAMES.into_iter().zip(&self.windows).map(group).collect()
    }
}

/// Measures all places, the first time: the tables and the figure show the same questions.
fn measured(scale: &Scale) -> Result<Vec<Asked>> {
    static ONCE: Mutex<Option<Vec<Asked>>> = Mutex::new(None);
    let mut once = ONCE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(all) = &*once {
        return Ok(all.clone());
    }
    let mut all = Vec::new();
    for (source, is_spatial) in PLACES {
        all.push(measure(scale, source, is_spatial)?);
    }
    *once = Some(all.clone());
    Ok(all)
}

fn measure(scale: &Scale, source: Source, is_spatial: bool) -> Result<Asked> {
    let data = source.rows(scale, scale.records)?;
    let attribute = data.attribute(is_spatial);
    eprintln!("  {}, {}", data.told, attribute.path);
    let (disk, _) = OnDisk::loaded(scale, &CONTENDERS, &[attribute], &data)?;
    let (mut windows, mut micros) = (Vec::new(), Vec::new());
    for size in Size::ALL {
        let questions = size.questions(scale.questions);
        let answers = size.answers(data.rows.len());
        let asked = around_records(&data, is_spatial, answers, questions, scale.seed);
        windows.push((asked.width, asked.answers));
        micros.push(times(&CONTENDERS.map(|contender| (&disk.table, contender, 0)), &asked.asked)?);
    }
    Ok(Asked { source, is_spatial, told: data.told, windows, micros })
}

fn report_of(name: &str, what: &str, scale: &Scale, shown: &[&Asked]) -> FigureReport {
    let mut report = report(name, what, scale, scale.records);
    for asked in shown {
        let widths = asked.windows.iter().zip(Size::NAMES).map(|((width, _), name)| (name, *width));
        report.set(&asked.name(), format!("{}; widths: {}", asked.told, listed(widths)));
    }
    report.set("questions", Size::ALL.map(|size| size.questions(scale.questions).to_string()).join(", "));
    report
}

pub(super) fn table_3(scale: &Scale) -> Result<FigureReport> {
    table("next-table3", "Table 3", scale, &measured(scale)?[..2])
}

pub(super) fn table_4(scale: &Scale) -> Result<FigureReport> {
    table("next-table4", "Table 4", scale, &measured(scale)?[2..])
}

fn table(name: &str, what: &str, scale: &Scale, all: &[Asked]) -> Result<FigureReport> {
    let shown: Vec<&Asked> = all.iter().collect();
    let mut report = report_of(name, what, scale, &shown);
    claims(&mut report, &shown);
    for asked in all {
        let groups = asked.groups();
        let groups: Vec<&str> = groups.iter().map(String::as_str).collect();
        let of = |contender| Size::ALL.map(|size| asked.mean(size, contender)).to_vec();
        report.panels.push(bars(
            &asked.name(),
            "CPU µs a question, calling thread",
            true,
            &groups,
            CONTENDERS.map(|contender| (contender.name, of(contender))),
        ));
    }
    Ok(judged(report, scale))
}

/// Whether `holds` for all of `shown`.
fn every(shown: &[&Asked], holds: impl Fn(&Asked) -> bool) -> bool {
    shown.iter().all(|asked| holds(asked))
}

fn told(shown: &[&Asked], size: Size) -> String {
    shown.iter().map(|asked| asked.told(size)).collect::<Vec<_>>().join("; ")
}

fn claims(report: &mut FigureReport, shown: &[&Asked]) {
    report.claim(
        "§6.2.1: with few answers NEXT takes no more than index blocks without a global index (within a fifth), and \
         of numbers, less by a fifth: it does not ask every sstable for its directory",
        every(shown, |asked| {
            let of = if asked.is_spatial { 1.2 } else { 0.8 };
            asked.mean(Size::Small, NEXT) < of * asked.mean(Size::Small, EMBEDDED)
        }),
        told(shown, Size::Small),
    );
    report.departs(
        "with few answers of numbers NEXT takes up to four times what a composite index does",
        every(shown, |asked| {
            asked.is_spatial || asked.mean(Size::Small, NEXT) < 4.0 * asked.mean(Size::Small, STANDALONE)
        }),
        told(shown, Size::Small),
        "there, NEXT is ahead, with 100 answers or more. Numbers that are not correlated with the primary key \
         lie in an index block of nearly every sstable; in a composite index they lie side by side in a few runs.",
    );
    report.departs(
        "with some answers NEXT takes at most twice what the better of eager and composite indexes does",
        every(shown, |asked| {
            let better = asked.mean(Size::Medium, EAGER).min(asked.mean(Size::Medium, STANDALONE));
            asked.mean(Size::Medium, NEXT) < 2.0 * better
        }),
        told(shown, Size::Medium),
        "there, it is ahead, since the others look keys up one by one through all levels. Here the driver fetches the \
         records of all indexes in the order of their keys, by sequence number, each block once.",
    );
    report.claim(
        "§6.2.1: with many answers it takes less than an eager index, by an eighth at least",
        every(shown, |asked| asked.mean(Size::Large, NEXT) < 0.875 * asked.mean(Size::Large, EAGER)),
        told(shown, Size::Large),
    );
    report.claim(
        "§6.2.1: with many answers of space it takes less than a composite index, by a third at least",
        every(shown, |asked| {
            !asked.is_spatial || asked.mean(Size::Large, NEXT) < 0.67 * asked.mean(Size::Large, STANDALONE)
        }),
        told(shown, Size::Large),
    );
    report.departs(
        "with many answers of numbers it takes no more than a composite index (within a quarter)",
        every(shown, |asked| {
            asked.is_spatial || asked.mean(Size::Large, NEXT) < 1.25 * asked.mean(Size::Large, STANDALONE)
        }),
        told(shown, Size::Large),
        "there, it takes less than half. Numbers that are not correlated with the primary key have nearly each answer \
         in a block of its own, which both read once: here look-ups of many keys are in order, and share blocks too.",
    );
    report.claim(
        "§6.2.1: with many answers it is about as fast as index blocks without a global index, or faster (within a \
         quarter)",
        every(shown, |asked| asked.mean(Size::Large, NEXT) < 1.25 * asked.mean(Size::Large, EMBEDDED)),
        told(shown, Size::Large),
    );
}

pub(super) fn figure_5(scale: &Scale) -> Result<FigureReport> {
    let all = measured(scale)?;
    let shown: Vec<&Asked> = all.iter().collect();
    let mut report = report_of("next-5", "Figure 5", scale, &shown);
    let growth = |asked: &Asked, contender| {
        let answers = |size: Size| asked.windows[size as usize].1.max(1.0);
        let micros = |size| asked.mean(size, contender);
        (micros(Size::Large) - micros(Size::Medium)) / (answers(Size::Large) - answers(Size::Medium)).max(1.0)
    };
    let each = |asked: &&Asked| {
        let of = CONTENDERS.map(|contender| (contender.name, growth(asked, contender)));
        format!("{}: {}", asked.name(), listed(of))
    };
    report.claim(
        "§6.2.1: one more answer costs NEXT less than an eager index (by a fifth at least), and no more than a composite \
         one (within a quarter)",
        every(&shown, |asked| {
            growth(asked, NEXT) < 0.8 * growth(asked, EAGER) && growth(asked, NEXT) < 1.25 * growth(asked, STANDALONE)
        }),
        format!("CPU µs: {}", shown.iter().map(each).collect::<Vec<_>>().join("; ")),
    );
    report.claim(
        "§6.2.1: index blocks without a global index cost most where there are few answers: more than an eager index, and of \
         numbers more than a composite one",
        every(&shown, |asked| {
            let embedded = asked.mean(Size::Small, EMBEDDED);
            let composite = asked.mean(Size::Small, STANDALONE);
            embedded > asked.mean(Size::Small, EAGER) && (asked.is_spatial || embedded > composite)
        }),
        told(&shown, Size::Small),
    );
    for asked in &all {
        let of = |at: usize| asked.micros.iter().map(|sizes| Quartiles::of(sizes[at].clone())).collect();
        let series = CONTENDERS.iter().enumerate();
        report.panels.push(Panel {
            title: asked.name(),
            x_label: "answers".to_owned(),
            y_label: "CPU µs a question, calling thread".to_owned(),
            log: true,
            content: Content::Boxes {
                groups: asked.groups(),
                series: series
                    .map(|(at, one)| Series { name: one.name.to_owned(), values: of(at) })
                    .collect(),
            },
        });
    }
    Ok(judged(report, scale))
}
