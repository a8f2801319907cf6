//! Columns and their types from a sample of records.

use std::collections::HashMap;

use crate::column::{Column, ColumnSource};
use crate::column_path::ColumnPath;
use crate::column_type::{ColumnType, ScalarType};
use crate::json_number::{self, JsonNumber};
use crate::json_scan::JsonScan;
use crate::json_text;

/// Limits of an inference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct InferenceLimits {
    /// The maximum number of columns; further fields are left out. Default: 1,000.
    pub columns: usize,
    /// The maximum number of levels of objects whose fields become columns; deeper objects are columns of JSON text.
    /// Default: 8.
    pub depth: usize,
}

impl Default for InferenceLimits {
    fn default() -> Self {
        Self { columns: 1_000, depth: 8 }
    }
}

const BOOL: u8 = 1;
const INT: u8 = 2;
const FLOAT: u8 = 4;
const TEXT: u8 = 8;
const OBJECT: u8 = 16;
const LIST: u8 = 32;

/// Collects the types of the fields of records.
///
/// | values of a field | type |
/// |---|---|
/// | booleans; strings; integers of 64 bits; numbers | `bool`; `string`; `int64`; `float64` |
/// | arrays of one of these | `list<…>` |
/// | objects | a column for each of their fields, as `user.id` |
/// | several of these, arrays of arrays or objects, only `null` or `[]` | `json` |
///
/// Fields whose names are empty or contain NUL are left out: names of Arrow's C interface end with NUL.
///
/// Text is never a date or a time. A field of any type is NULL in the records that have another one, so a column of a
/// sample fits the rest of a collection too.
///
/// ```
/// use bolide_arrow::{InferenceLimits, SchemaInference};
/// let mut inference = SchemaInference::new(InferenceLimits::default());
/// inference.add(br#"{"state":"open","total":1,"user":{"id":7},"tags":["a"]}"#);
/// inference.add(br#"{"state":null,"total":2.5}"#);
/// let columns: Vec<String> =
///     inference.finish().iter().map(|column| format!("{} {}", column.name(), column.field().data_type())).collect();
/// assert_eq!(columns[..3], ["state Utf8", "total Float64", "user.id Int64"]);
/// ```
pub struct SchemaInference {
    limits: InferenceLimits,
    fields: Vec<InferredField>,
    columns: usize,
    records: u64,
    left_out: bool,
}

#[derive(Default)]
struct InferredField {
    name: String,
    types: u8,
    element_types: u8,
    children: Vec<usize>,
    by_name: HashMap<String, usize>,
}

impl SchemaInference {
    /// An inference without a record.
    pub fn new(limits: InferenceLimits) -> Self {
        Self { limits, fields: vec![InferredField::default()], columns: 0, records: 0, left_out: false }
    }

    /// Adds a record. Returns whether it is a record; fields before an error count.
    pub fn add(&mut self, record: &[u8]) -> bool {
        self.records += 1;
        let scan = JsonScan::new(record);
        let end = scan.expect(scan.skip_space(0), b'{').and_then(|start| self.object(scan, start, 0, 1));
        end.is_some_and(|end| scan.rest(scan.skip_space(end)).is_empty())
    }

    /// The number of records so far.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Whether fields were left out because of a limit or their names.
    pub fn is_incomplete(&self) -> bool {
        self.left_out
    }

    fn object(&mut self, scan: JsonScan<'_>, start: usize, parent: usize, depth: usize) -> Option<usize> {
        let mut at = scan.skip_space(start);
        if scan.peek(at) == b'}' {
            return Some(at + 1);
        }
        loop {
            let name = scan.string(scan.expect(at, b'"')?)?;
            let value = scan.skip_space(scan.expect(scan.skip_space(name.end), b':')?);
            let mut plain = Vec::new();
            json_text::unescape(name.content, &mut plain)?;
            let field = self.field(parent, String::from_utf8(plain).ok()?);
            let end = match field {
                Some(field) => self.value(scan, value, field, depth)?,
                None => scan.skip_value(value)?,
            };
            at = scan.skip_space(end);
            match scan.peek(at) {
                b',' => at = scan.skip_space(at + 1),
                b'}' => return Some(at + 1),
                _ => return None,
            }
        }
    }

    /// The field of this name, added if there is room.
    fn field(&mut self, parent: usize, name: String) -> Option<usize> {
        if let Some(field) = self.fields.get(parent)?.by_name.get(&name) {
            return Some(*field);
        }
        if name.is_empty() || name.contains('\0') || self.columns >= self.limits.columns {
            self.left_out = true;
            return None;
        }
        let added = self.fields.len();
        self.fields.push(InferredField { name: name.clone(), ..InferredField::default() });
        // The first field of an object replaces the column of the object.
        let parent = self.fields.get_mut(parent)?;
        self.columns += usize::from(!parent.children.is_empty() || parent.name.is_empty());
        parent.children.push(added);
        parent.by_name.insert(name, added);
        Some(added)
    }

    fn value(&mut self, scan: JsonScan<'_>, at: usize, field: usize, depth: usize) -> Option<usize> {
        let (kind, end) = match scan.peek(at) {
            b'{' if depth < self.limits.depth => (OBJECT, self.object(scan, at + 1, field, depth + 1)?),
            b'[' => {
                let (elements, end) = element_types(scan, at + 1)?;
                self.fields.get_mut(field)?.element_types |= elements;
                (LIST, end)
            }
            _ => scalar_type(scan, at)?,
        };
        self.fields.get_mut(field)?.types |= kind;
        Some(end)
    }

    /// The columns, in the order of their first appearance.
    pub fn finish(self) -> Vec<Column> {
        let mut columns = Vec::new();
        // A stack, so that the depth of the fields is not that of calls.
        let mut open: Vec<(usize, Vec<&str>)> = vec![(0, Vec::new())];
        while let Some((field, path)) = open.pop() {
            let Some(inferred) = self.fields.get(field) else { continue };
            if field == 0 || (inferred.types == OBJECT && !inferred.children.is_empty()) {
                for child in inferred.children.iter().rev() {
                    let Some(name) = self.fields.get(*child).map(|child| child.name.as_str()) else {
                        continue;
                    };
                    let mut path = path.clone();
                    path.push(name);
                    open.push((*child, path));
                }
                continue;
            }
            // A path over the limits is left out.
            if let Ok(path) = ColumnPath::of(path.iter().copied()) {
                let name = path.to_string();
                columns.push(Column::new(name, ColumnSource::Path(path, inferred.column_type())));
            }
        }
        columns
    }
}

impl InferredField {
    fn column_type(&self) -> ColumnType {
        match (self.types, scalar_of(self.types), scalar_of(self.element_types)) {
            (LIST, _, Some(element)) => ColumnType::List(element),
            (_, Some(scalar), _) => scalar.into(),
            _ => ScalarType::Json.into(),
        }
    }
}

fn scalar_of(types: u8) -> Option<ScalarType> {
    const NUMBER: u8 = INT | FLOAT;
    match types {
        BOOL => Some(ScalarType::Bool),
        INT => Some(ScalarType::Int64),
        FLOAT | NUMBER => Some(ScalarType::Float64),
        TEXT => Some(ScalarType::String),
        _ => None,
    }
}

/// The types of the elements of an array after its opening bracket.
fn element_types(scan: JsonScan<'_>, start: usize) -> Option<(u8, usize)> {
    let mut types = 0;
    let mut at = scan.skip_space(start);
    if scan.peek(at) == b']' {
        return Some((types, at + 1));
    }
    loop {
        let (kind, end) = scalar_type(scan, at)?;
        types |= kind;
        at = scan.skip_space(end);
        match scan.peek(at) {
            b',' => at = scan.skip_space(at + 1),
            b']' => return Some((types, at + 1)),
            _ => return None,
        }
    }
}

/// The type of a value, without a look inside of it; 0 for null.
fn scalar_type(scan: JsonScan<'_>, at: usize) -> Option<(u8, usize)> {
    match scan.peek(at) {
        b'-' | b'0'..=b'9' => {
            let (number, end) = json_number::parse(scan, at)?;
            Some((if matches!(number, JsonNumber::Int(_)) { INT } else { FLOAT }, end))
        }
        first => {
            let end = scan.skip_value(at)?;
            let kind = match first {
                b'"' => TEXT,
                b't' | b'f' => BOOL,
                b'{' => OBJECT,
                b'[' => LIST,
                b'n' => 0,
                _ => return None,
            };
            Some((kind, end))
        }
    }
}
