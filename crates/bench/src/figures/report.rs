//! The result of a figure: its panels, and the claims about them that were checked.

use serde::{Deserialize, Serialize};

use super::quartiles::Quartiles;

/// A measured figure.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FigureReport {
    /// Its name on the command line, `leveldbpp-8`.
    pub name: String,
    /// Its subject.
    pub title: String,
    /// The paper and the number of the figure that it repeats.
    pub source: String,
    /// The machine it was measured on.
    pub machine: String,
    /// Sizes and settings, as name and value.
    pub setting: Vec<(String, String)>,
    /// Its panels.
    pub panels: Vec<Panel>,
    /// The claims about the panels. The name is that of the JSON field.
    pub shapes: Vec<Claim>,
}

/// One chart.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Panel {
    /// Its subject.
    pub title: String,
    /// The label of the x axis.
    pub x_label: String,
    /// The label of the y axis, with its unit.
    pub y_label: String,
    /// True for a logarithmic y axis, which omits values at or below zero.
    pub log: bool,
    /// The figures.
    pub content: Content,
}

/// The figures of a panel.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Content {
    /// One bar for each series in each group.
    Bars {
        /// The groups, along the x axis.
        groups: Vec<String>,
        /// Their values, one for each group.
        series: Vec<Series<f64>>,
    },
    /// One line a series.
    Lines {
        /// Positions along the x axis.
        x: Vec<f64>,
        /// Their values, one for each position.
        series: Vec<Series<f64>>,
    },
    /// One box with whiskers for each series in each group.
    Boxes {
        /// The groups, along the x axis.
        groups: Vec<String>,
        /// Their distributions, one for each group.
        series: Vec<Series<Quartiles>>,
    },
}

/// The figures of one subject.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Series<T> {
    /// The subject.
    pub name: String,
    /// Its figures.
    pub values: Vec<T>,
}

/// A claim about the figures, and its verdict.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Claim {
    /// Its text.
    pub claim: String,
    /// Whether the figures confirm it.
    pub holds: bool,
    /// The figures it was judged by.
    pub figures: String,
    /// The result of the paper and the reason for the difference, if the paper has another result.
    pub departs: Option<String>,
}

impl FigureReport {
    /// A figure without panels.
    pub fn new(name: &str, title: &str, source: &str) -> Self {
        Self {
            name: name.to_owned(),
            title: title.to_owned(),
            source: source.to_owned(),
            machine: crate::report::machine(),
            setting: Vec::new(),
            panels: Vec::new(),
            shapes: Vec::new(),
        }
    }

    /// Adds a size or a setting.
    pub fn set(&mut self, name: &str, value: impl ToString) {
        self.setting.push((name.to_owned(), value.to_string()));
    }

    /// Adds a claim that the paper makes too.
    pub fn claim(&mut self, claim: &str, holds: bool, figures: String) {
        self.shapes.push(Claim { claim: claim.to_owned(), holds, figures, departs: None });
    }

    /// Adds a claim that differs from the paper, with the reason.
    pub fn departs(&mut self, claim: &str, holds: bool, figures: String, reason: &str) {
        self.shapes.push(Claim { claim: claim.to_owned(), holds, figures, departs: Some(reason.to_owned()) });
    }

    /// The claims that the figures do not confirm.
    pub fn broken(&self) -> impl Iterator<Item = &Claim> {
        self.shapes.iter().filter(|claim| !claim.holds)
    }

    /// Settings, tables and claims as Markdown.
    pub fn markdown(&self) -> String {
        let mut text = format!("## {}: {}\n\n*{}.* ", self.name, self.title, self.source);
        let setting: Vec<String> =
            self.setting.iter().map(|(name, value)| format!("{name}: {value}")).collect();
        text += &format!("{}.\n", setting.join("; "));
        for panel in &self.panels {
            text += &format!("\n**{}** ({})\n\n{}", panel.title, panel.y_label, panel.content.markdown());
        }
        text += "\n";
        for claim in &self.shapes {
            let holds = if claim.holds { "holds" } else { "DOES NOT HOLD" };
            text += &format!("- {}: {holds} ({}).", claim.claim, claim.figures);
            if let Some(reason) = &claim.departs {
                text += &format!(" *Differs:* {reason}");
            }
            text += "\n";
        }
        text
    }
}

impl Content {
    fn markdown(&self) -> String {
        match self {
            Self::Bars { groups, series } => table(groups, series, |value| number(*value)),
            Self::Lines { x, series } => {
                let heads: Vec<String> = x.iter().map(|x| number(*x)).collect();
                table(&heads, series, |value| number(*value))
            }
            Self::Boxes { groups, series } => table(groups, series, |boxed| {
                format!("{} ({} .. {})", number(boxed.median), number(boxed.first), number(boxed.third))
            }),
        }
    }
}

fn table<T>(heads: &[String], series: &[Series<T>], cell: impl Fn(&T) -> String) -> String {
    let mut text = format!("| | {} |\n|---|{}\n", heads.join(" | "), "---:|".repeat(heads.len()));
    for one in series {
        let cells: Vec<String> = one.values.iter().map(&cell).collect();
        text += &format!("| {} | {} |\n", one.name, cells.join(" | "));
    }
    text
}

/// Three significant digits.
pub fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 1e6 => format!("{:.2} M", value / 1e6),
        size if size >= 100.0 || value == 0.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 0.01 => format!("{value:.2}"),
        _ => format!("{value:.1e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_lists_broken_claims() {
        let mut report = FigureReport::new("x-1", "Bars", "X, figure 1");
        report.set("records", 5);
        let series = vec![Series { name: "one".into(), values: vec![1.0, 1234.0] }];
        report.panels.push(Panel {
            title: "Size".into(),
            x_label: String::new(),
            y_label: "MB".into(),
            log: false,
            content: Content::Bars { groups: vec!["a".into(), "b".into()], series },
        });
        report.claim("a is small", true, "1 < 2".into());
        report.departs("b is large", false, "3 > 4".into(), "it is not.");
        assert_eq!(report.broken().count(), 1);
        let text = report.markdown();
        assert!(text.contains("| one | 1.00 | 1234 |"), "{text}");
        assert!(text.contains("b is large: DOES NOT HOLD (3 > 4). *Differs:* it is not."));
        let again: FigureReport = serde_json::from_str(&serde_json::to_string(&report).unwrap()).unwrap();
        assert_eq!(again.markdown(), text);
    }
}
