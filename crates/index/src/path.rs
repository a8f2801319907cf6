//! Attribute paths: the location of a value in a record.
//!
//! ```text
//! path     location | "rect(" location ")" | "point(" location "," location ")"
//! location field step*
//! step     "." field | "[*]"
//! field    one or more characters; a backslash escapes the next character
//! ```
//!
//! `user.id` is the field `id` of the object in the field `user`; `tags[*]` is every element of the
//! array `tags`; `items[*].price` the field `price` of every element. A dot, a bracket or a backslash
//! inside a field name needs a backslash before it: `a\.b`. [`AttributePath`] prints itself with
//! a backslash before every character of the syntax of index specifications and predicates.
//!
//! `rect(bbox)` and `point(lon,lat)` are [spatial](crate::space) attributes: their values are rectangles. A
//! point consists of one number at each of two locations, so neither contains `[*]`. White space around these locations is
//! ignored; with a backslash before it, it belongs to the name.

use std::fmt;
use std::str::FromStr;

use bolide_base::limits::MAX_JSON_DEPTH;
use bolide_base::{Error, Result};

use crate::short_bytes::ShortText;

/// Maximum length of the text of a path, in bytes.
pub const MAX_PATH_BYTES: usize = 1_024;

/// Syntax characters of paths, index specifications or predicates.
const SYNTAX: &[char] = &['.', '[', ']', '\\', ':', '=', '+', '|', ',', '(', ')'];

/// One step of a path.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum PathStep {
    /// The field with this name of an object.
    Field(ShortText),
    /// Every element of an array.
    Elements,
}

/// The location of a value in a record; see the [module](self) for the syntax.
///
/// ```
/// use bolide_index::AttributePath;
/// let path: AttributePath = "user.tags[*]".parse()?;
/// assert_eq!(path.to_string(), "user.tags[*]");
/// assert!("user..id".parse::<AttributePath>().is_err());
/// # Ok::<(), bolide_base::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AttributePath {
    steps: Vec<PathStep>,
    shape: PathShape,
}

/// The kind of values at a path.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum PathShape {
    /// Scalars.
    Scalar,
    /// Rectangles from arrays of four numbers.
    Rect,
    /// A point. Its first coordinate is at the path itself, its second one at the end of these steps.
    Point(Vec<PathStep>),
}

impl AttributePath {
    /// The path of the top-level field `name`, which may contain any characters.
    ///
    /// ```
    /// use bolide_index::AttributePath;
    /// assert_eq!(AttributePath::field("a.b").to_string(), r"a\.b");
    /// ```
    pub fn field(name: impl Into<String>) -> Self {
        Self { steps: vec![PathStep::Field(name.into().into())], shape: PathShape::Scalar }
    }

    /// The rectangles at `path`: of an array of four numbers, or of each such array in an array.
    ///
    /// # Errors
    /// `InvalidInput` if `path` is spatial itself.
    ///
    /// ```
    /// use bolide_index::AttributePath;
    /// assert_eq!(AttributePath::rect("bbox".parse()?)?, "rect(bbox)".parse()?);
    /// # Ok::<(), bolide_base::Error>(())
    /// ```
    pub fn rect(path: Self) -> Result<Self> {
        Ok(Self { steps: path.into_location()?, shape: PathShape::Rect })
    }

    /// The point whose coordinates are the numbers at `x` and `y`: longitude and latitude for locations on earth.
    ///
    /// # Errors
    /// `InvalidInput` if a path contains `[*]`, or is spatial itself.
    ///
    /// ```
    /// use bolide_index::AttributePath;
    /// let point = AttributePath::point("lon".parse()?, "lat".parse()?)?;
    /// assert_eq!(point.to_string(), "point(lon,lat)");
    /// # Ok::<(), bolide_base::Error>(())
    /// ```
    pub fn point(x: Self, y: Self) -> Result<Self> {
        if x.is_repeated() || y.is_repeated() {
            return Err(Error::invalid_input(
                "a point consists of one number at each of two paths: neither may contain `[*]`",
            ));
        }
        Ok(Self { steps: x.into_location()?, shape: PathShape::Point(y.into_location()?) })
    }

    fn into_location(self) -> Result<Vec<PathStep>> {
        match self.shape {
            PathShape::Scalar => Ok(self.steps),
            _ => Err(Error::invalid_input(format!(
                "`{self}` is spatial already: name the path of the numbers"
            ))),
        }
    }

    /// Whether its values are points or rectangles.
    pub fn is_spatial(&self) -> bool {
        self.shape != PathShape::Scalar
    }

    pub(crate) fn shape(&self) -> &PathShape {
        &self.shape
    }

    /// Whether it contains `[*]`, so that a record may have several values at it.
    pub fn is_repeated(&self) -> bool {
        self.steps.contains(&PathStep::Elements)
    }

    pub(crate) fn steps(&self) -> &[PathStep] {
        &self.steps
    }
}

impl FromStr for AttributePath {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        check_length(text.len())?;
        let path = Self::parse(text)?;
        // The printed text may have more escapes than the input. It must be readable where it is stored.
        check_length(path.to_string().len())?;
        Ok(path)
    }
}

/// Rejects the text of a path with more than [`MAX_PATH_BYTES`] bytes.
fn check_length(bytes: usize) -> Result<()> {
    if bytes > MAX_PATH_BYTES {
        return Err(Error::limit_exceeded(
            "an attribute path in bytes, with its escapes",
            bytes as u64,
            MAX_PATH_BYTES as u64,
        ));
    }
    Ok(())
}

impl AttributePath {
    fn parse(text: &str) -> Result<Self> {
        let rejected = |why: &str| Error::invalid_input(format!("attribute path `{text}`: {why}"));
        let opened = |name: &str| text.strip_prefix(name).map(|rest| rest.strip_suffix(')'));
        let unclosed = "its bracket is not closed; write `\\(` for the character";
        if let Some(inner) = opened("rect(") {
            return Self::rect(trim_location(inner.ok_or_else(|| rejected(unclosed))?).parse()?);
        }
        if let Some(inner) = opened("point(") {
            let two = split_once_unescaped(inner.ok_or_else(|| rejected(unclosed))?, ',');
            let (x, y) = two.ok_or_else(|| rejected("a point has two paths: write point(X,Y)"))?;
            return Self::point(trim_location(x).parse()?, trim_location(y).parse()?);
        }
        let mut steps = Vec::with_capacity(1);
        let mut rest = text;
        loop {
            let (field, behind) = take_field(rest).map_err(rejected)?;
            steps.push(PathStep::Field(field));
            rest = behind;
            while let Some(behind) = rest.strip_prefix('[') {
                rest = behind.strip_prefix("*]").ok_or_else(|| {
                    rejected("only `[*]`, every element of an array, may stand in brackets")
                })?;
                steps.push(PathStep::Elements);
            }
            if rest.is_empty() {
                break;
            }
            rest = rest.strip_prefix('.').ok_or_else(|| rejected("a dot must follow `[*]`"))?;
        }
        if steps.len() > MAX_JSON_DEPTH {
            return Err(rejected("it is deeper than a record may be"));
        }
        Ok(Self { steps, shape: PathShape::Scalar })
    }
}

/// `text` without the white space around it; a space after a backslash belongs to the text.
fn trim_location(text: &str) -> &str {
    let text = text.trim_start();
    let trimmed = text.trim_end();
    let backslashes = trimmed.len() - trimmed.trim_end_matches('\\').len();
    let escaped =
        text.get(trimmed.len()..).and_then(|rest| rest.chars().next()).filter(|_| backslashes % 2 == 1);
    let end = trimmed.len() + escaped.map_or(0, char::len_utf8);
    text.get(..end).unwrap_or(trimmed)
}

/// Reads a field name up to the next step. Returns it and the rest of the text.
fn take_field(text: &str) -> std::result::Result<(ShortText, &str), &'static str> {
    // Most names have no escapes.
    let is_syntax = |byte: &u8| matches!(byte, b'.' | b'[' | b']' | b'\\');
    let plain = text.as_bytes().iter().position(is_syntax).unwrap_or(text.len());
    if let (1.., Some((field, rest))) = (plain, text.split_at_checked(plain))
        && !rest.starts_with([']', '\\'])
    {
        return Ok((field.into(), rest));
    }
    let mut field = String::new();
    let mut characters = text.char_indices();
    let mut end = text.len();
    while let Some((at, character)) = characters.next() {
        match character {
            '.' | '[' => {
                end = at;
                break;
            }
            ']' => return Err("a bracket closes that was not opened; write `\\]` for the character"),
            '\\' => match characters.next() {
                Some((_, escaped)) => field.push(escaped),
                None => return Err("nothing follows the last backslash"),
            },
            _ => field.push(character),
        }
    }
    if field.is_empty() {
        return Err("a field name is empty");
    }
    Ok((field.into(), &text[end..]))
}

impl fmt::Display for AttributePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.shape {
            PathShape::Scalar => write_steps(&self.steps, false, f),
            PathShape::Rect => {
                f.write_str("rect(")?;
                write_steps(&self.steps, true, f)?;
                f.write_str(")")
            }
            PathShape::Point(second) => {
                f.write_str("point(")?;
                write_steps(&self.steps, true, f)?;
                f.write_str(",")?;
                write_steps(second, true, f)?;
                f.write_str(")")
            }
        }
    }
}

/// Writes a location; `in_brackets`: with a backslash before white space at its ends.
fn write_steps(steps: &[PathStep], in_brackets: bool, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for (position, step) in steps.iter().enumerate() {
        match step {
            PathStep::Elements => f.write_str("[*]")?,
            PathStep::Field(name) => {
                if position > 0 {
                    f.write_str(".")?;
                }
                let (start, end) = (name.trim_start(), name.trim_end());
                let inner = name.len() - start.len()..end.len();
                for (at, character) in name.char_indices() {
                    let is_outer_space = in_brackets && !inner.contains(&at);
                    if SYNTAX.contains(&character) || is_outer_space {
                        f.write_str("\\")?;
                    }
                    write!(f, "{character}")?;
                }
            }
        }
    }
    Ok(())
}

/// Splits `text` at the first `separator` without a backslash before it.
pub(crate) fn split_once_unescaped(text: &str, separator: char) -> Option<(&str, &str)> {
    let at = find_unescaped(text, separator)?;
    Some((&text[..at], &text[at + separator.len_utf8()..]))
}

/// `text` without the backslashes that escape characters.
pub(crate) fn unescape(text: &str) -> String {
    let mut characters = text.chars();
    std::iter::from_fn(|| match characters.next() {
        Some('\\') => characters.next(),
        other => other,
    })
    .collect()
}

/// Splits `text` at every `separator` without a backslash before it.
pub(crate) fn split_unescaped(text: &str, separator: char) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let (head, tail) = match split_once_unescaped(text, separator) {
            Some((head, tail)) => (head, Some(tail)),
            None => (text, None),
        };
        rest = tail;
        Some(head)
    })
}

fn find_unescaped(text: &str, wanted: char) -> Option<usize> {
    let mut escaped = false;
    text.char_indices().find_map(|(at, character)| {
        let found = !escaped && character == wanted;
        escaped = !escaped && character == '\\';
        found.then_some(at)
    })
}

#[cfg(test)]
mod tests {
    use bolide_base::ErrorKind;
    use proptest::prelude::*;

    use super::*;

    fn parse(text: &str) -> Vec<PathStep> {
        text.parse::<AttributePath>().unwrap().steps
    }

    fn field(name: &str) -> PathStep {
        PathStep::Field(name.into())
    }

    #[test]
    fn paths_are_parsed_step_by_step() {
        assert_eq!(parse("a"), [field("a")]);
        assert_eq!(parse("a.b"), [field("a"), field("b")]);
        assert_eq!(parse("tags[*]"), [field("tags"), PathStep::Elements]);
        assert_eq!(parse("a[*][*].b"), [field("a"), PathStep::Elements, PathStep::Elements, field("b")]);
        assert_eq!(parse(r"a\.b\[\]\\"), [field(r"a.b[]\")]);
        assert_eq!(parse("é ü"), [field("é ü")]);
    }

    #[test]
    fn errors_of_malformed_paths_contain_their_text() {
        for text in ["", ".", "a.", ".a", "a..b", "[*]", "a[0]", "a[*", "a[*]b", "a]", "a\\", "a[*].[*]"] {
            let error = text.parse::<AttributePath>().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{text}");
            assert!(error.message().contains(text), "{error}");
        }
    }

    #[test]
    fn spatial_paths_are_parsed_with_their_locations() {
        let point: AttributePath = "point(position.lon,lat)".parse().unwrap();
        assert_eq!(point.steps(), [field("position"), field("lon")]);
        assert_eq!(point.shape(), &PathShape::Point(vec![field("lat")]));
        assert!(point.is_spatial() && !"point".parse::<AttributePath>().unwrap().is_spatial());
        let rects: AttributePath = r"rect(areas[*].b\)x)".parse().unwrap();
        assert_eq!(rects.steps(), [field("areas"), PathStep::Elements, field("b)x")]);
        for text in ["rect(", "rect(a", "rect()", "point(a)", "point(a,)", "point(a,b,c", "point(a[*],b)"] {
            assert_eq!(text.parse::<AttributePath>().unwrap_err().kind(), ErrorKind::InvalidInput, "{text}");
        }
        for text in ["rect(rect(a))", "rect(point(a,b))", "point(rect(a),b)", "point(a,rect(b))"] {
            assert!(text.parse::<AttributePath>().unwrap_err().message().contains("already"), "{text}");
        }
        let spaced: AttributePath = "point( position.lon , lat )".parse().unwrap();
        assert_eq!((spaced.to_string(), &spaced), ("point(position.lon,lat)".to_owned(), &point));
        assert_eq!(" rect( a b ) ".trim().parse::<AttributePath>().unwrap().to_string(), "rect(a b)");
        let escaped: AttributePath = r"rect(\ a\ )".parse().unwrap();
        assert_eq!((escaped.steps(), escaped.to_string()), (&[field(" a ")][..], r"rect(\ a\ )".to_owned()));
        assert_eq!(r"rect\(a\)".parse::<AttributePath>().unwrap(), AttributePath::field("rect(a)"));
    }

    #[test]
    fn length_and_depth_are_limited_at_their_edges() {
        for over in [0, 1] {
            let text = "x".repeat(MAX_PATH_BYTES + over);
            assert_eq!(text.parse::<AttributePath>().is_ok(), over == 0);
            let deep = vec!["a"; MAX_JSON_DEPTH + over].join(".");
            assert_eq!(deep.parse::<AttributePath>().is_ok(), over == 0);
            // The limit applies to the text with all escapes, as it is stored.
            let escaped = "=".repeat(MAX_PATH_BYTES / 2 + over);
            let path = escaped.parse::<AttributePath>();
            assert_eq!(path.is_ok(), over == 0);
            if let Ok(path) = path {
                assert_eq!(path.to_string().parse::<AttributePath>().unwrap(), path);
            }
        }
    }

    #[test]
    fn escaped_separators_do_not_split() {
        assert_eq!(split_once_unescaped(r"a\=b=c", '='), Some((r"a\=b", "c")));
        assert_eq!(split_once_unescaped(r"a\\=c", '='), Some((r"a\\", "c")));
        assert_eq!(split_once_unescaped(r"a\=c", '='), None);
        assert_eq!(split_unescaped(r"a+b\+c+", '+').collect::<Vec<_>>(), ["a", r"b\+c", ""]);
    }

    proptest! {
        #[test]
        fn text_round_trips(names in proptest::collection::vec("[a-c.:=+|,()\\[\\]\\\\*é ]{1,4}", 1..5)) {
            let mut steps = Vec::new();
            for (position, name) in names.into_iter().enumerate() {
                steps.push(PathStep::Field(name.into()));
                if position % 2 == 1 {
                    steps.push(PathStep::Elements);
                }
            }
            let path = AttributePath { steps, shape: PathShape::Scalar };
            prop_assert_eq!(path.to_string().parse::<AttributePath>().unwrap(), path.clone());
            let rect = AttributePath::rect(path.clone()).unwrap();
            prop_assert_eq!(rect.to_string().parse::<AttributePath>().unwrap(), rect);
            if let Ok(point) = AttributePath::point(AttributePath::field("a,b"), path) {
                prop_assert_eq!(point.to_string().parse::<AttributePath>().unwrap(), point);
            }
        }

        #[test]
        fn any_text_is_parsed_or_rejected(text in ".{0,20}") {
            if let Ok(path) = text.parse::<AttributePath>() {
                prop_assert_eq!(path.to_string().parse::<AttributePath>().unwrap(), path);
            }
        }
    }
}
