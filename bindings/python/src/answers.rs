//! Answers to a query.

use std::collections::VecDeque;
use std::sync::Arc;

use bolide::key::KeyFormat;
use bolide::{Answer, AnswerCursor, Explain, Outcome, RecordKind, Value};
use parking_lot::Mutex;
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict, PyList, PyString};

use crate::errors;
use crate::filter::value_object;
use crate::json_reader::read_record;
use crate::keys::key_object;
use crate::records::warn_about_open;
use crate::session::{Exclusive, Released};

/// Answers that a cursor pulls at once.
const READ_AHEAD: usize = 256;
/// Bytes of records that a cursor pulls at once, about.
const READ_AHEAD_BYTES: usize = 1 << 20;

/// What answers of one query have in common.
pub(crate) struct AnswerShape {
    pub(crate) keys: KeyFormat,
    pub(crate) records: RecordKind,
    pub(crate) select: Vec<String>,
    /// Whether the program holds the snapshot of the query.
    pub(crate) has_snapshot: bool,
}

/// One answer: a key, the number of the write that put the record, and the record or selected values.
#[pyclass(frozen, name = "Answer", module = "bolide")]
pub(crate) struct PyAnswer {
    shape: Arc<AnswerShape>,
    answer: Answer,
    record: PyOnceLock<Py<PyAny>>,
}

#[pymethods]
impl PyAnswer {
    /// The primary key.
    #[getter]
    fn key<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        key_object(py, &self.answer.key, self.shape.keys)
    }

    /// The sequence number of the write that put the record.
    #[getter]
    fn sequence(&self) -> u64 {
        self.answer.sequence
    }

    /// The record: a ``dict``, or ``bytes`` in a collection of bytes. ``None`` for a query of keys or selected values.
    #[getter]
    fn record<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let record = self.record.get_or_try_init(py, || match (&self.answer.record, self.shape.records) {
            (None, _) => Ok(py.None()),
            (Some(record), RecordKind::Json) => read_record(py, record).map(Bound::unbind),
            (Some(record), _) => Ok(PyBytes::new(py, record).into_any().unbind()),
        })?;
        Ok(record.bind(py).clone())
    }

    /// The record as it is stored.
    #[getter]
    fn raw<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        self.answer.record.as_ref().map(|record| PyBytes::new(py, record))
    }

    /// The selected values: for each path the list of them, empty for an absent attribute.
    #[getter]
    fn values<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let values = PyDict::new(py);
        for (path, found) in self.shape.select.iter().zip(&self.answer.values) {
            values.set_item(path, list_of(py, found)?)?;
        }
        Ok(values)
    }

    /// The selected value at ``path``, a list of several, ``None`` for an absent attribute; or the field of this name of
    /// the record.
    fn __getitem__<'py>(&self, py: Python<'py>, path: &Bound<'py, PyString>) -> PyResult<Bound<'py, PyAny>> {
        let text = crate::keys::text_of(path)?;
        if let Some(at) = self.shape.select.iter().position(|selected| selected == text) {
            return match self.answer.values.get(at).map_or(&[][..], Vec::as_slice) {
                [] => Ok(py.None().into_bound(py)),
                [value] => value_object(py, value),
                values => Ok(list_of(py, values)?.into_any()),
            };
        }
        if self.answer.record.is_none() {
            return Err(PyKeyError::new_err(format!("{text:?} was not selected")));
        }
        self.record(py)?.get_item(path)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let key = self.key(py)?.repr()?;
        Ok(format!("<bolide.Answer key={key} sequence={}>", self.answer.sequence))
    }
}

fn list_of<'py>(py: Python<'py>, values: &[Value]) -> PyResult<Bound<'py, PyList>> {
    let objects = values.iter().map(|value| value_object(py, value)).collect::<PyResult<Vec<_>>>()?;
    PyList::new(py, objects)
}

/// The execution report of a query: its plan and its costs.
///
/// >>> explain = orders.find(state="open").explain
/// >>> explain.index, explain.is_full_scan
/// ('state', False)
#[pyclass(frozen, name = "Explain", module = "bolide")]
pub(crate) struct PyExplain(pub(crate) Explain);

#[pymethods]
impl PyExplain {
    /// The index that was used; ``None`` for a scan.
    #[getter]
    fn index(&self) -> Option<&str> {
        self.0.index.as_deref()
    }

    /// Whether all records were read.
    #[getter]
    fn is_full_scan(&self) -> bool {
        self.0.is_full_scan()
    }

    /// The number of answers.
    #[getter]
    fn answers(&self) -> u64 {
        self.0.answers
    }

    /// The number of candidates that the index proposed.
    #[getter]
    fn candidates(&self) -> u64 {
        self.0.candidates
    }

    /// The report as a ``dict``.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        read_record(py, self.0.to_json().to_string().as_bytes())
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __repr__(&self) -> String {
        format!("<bolide.Explain {} answers, index {:?}>", self.0.answers, self.0.index)
    }
}

/// Where answers come from.
enum AnswerSource {
    /// All were found at once.
    Complete(Box<Outcome>),
    /// A cursor pulls them.
    Cursor(Released<Exclusive<AnswerCursor>>),
}

/// The answers to a query: an iterator, read once, in order.
///
/// A query with a limit up to 1,024 is executed at once. Any other holds a snapshot until it is read to its end or
/// closed: use it in a ``with`` statement if it may end earlier.
///
/// >>> with orders.find("total > 10") as answers:
/// ...     sorted(answer.key for answer in answers)
/// ['o1', 'o3']
#[pyclass(frozen, name = "Answers", module = "bolide")]
pub(crate) struct PyAnswers {
    shape: Arc<AnswerShape>,
    source: AnswerSource,
    read: Mutex<ReadAnswers>,
}

#[derive(Default)]
struct ReadAnswers {
    answers: VecDeque<Answer>,
    has_ended: bool,
}

impl PyAnswer {
    pub(crate) fn new(shape: Arc<AnswerShape>, answer: Answer) -> Self {
        Self { shape, answer, record: PyOnceLock::new() }
    }
}

impl PyAnswers {
    pub(crate) fn complete(shape: AnswerShape, answers: Vec<Answer>, outcome: Outcome) -> Self {
        Self {
            shape: Arc::new(shape),
            source: AnswerSource::Complete(Box::new(outcome)),
            read: Mutex::new(ReadAnswers { answers: answers.into(), has_ended: true }),
        }
    }

    /// Pulls the first answers: a short query holds its snapshot no longer.
    pub(crate) fn pulled(
        py: Python<'_>,
        shape: AnswerShape,
        cursor: Exclusive<AnswerCursor>,
    ) -> PyResult<Self> {
        let source = AnswerSource::Cursor(Released::new(cursor));
        let answers = Self { shape: Arc::new(shape), source, read: Mutex::default() };
        answers.pull(py)?;
        Ok(answers)
    }

    fn next(&self, py: Python<'_>) -> PyResult<Option<PyAnswer>> {
        loop {
            {
                let mut read = self.read.lock();
                if let Some(answer) = read.answers.pop_front() {
                    return Ok(Some(PyAnswer::new(self.shape.clone(), answer)));
                }
                if read.has_ended {
                    return Ok(None);
                }
            }
            self.pull(py)?;
        }
    }

    fn pull(&self, py: Python<'_>) -> PyResult<()> {
        let AnswerSource::Cursor(cursor) = &self.source else { return Ok(()) };
        cursor.check_unused()?;
        let pulled = cursor.with_open(py, |cursor| {
            // The lock of the cursor orders the threads that pull.
            let mut pulled = VecDeque::new();
            let mut bytes = 0;
            let mut has_ended = false;
            while pulled.len() < READ_AHEAD && bytes < READ_AHEAD_BYTES {
                match cursor.next()? {
                    Some(answer) => {
                        bytes += answer.record.map_or(0, <[u8]>::len);
                        pulled.push_back(answer.to_answer());
                    }
                    None => {
                        has_ended = true;
                        break;
                    }
                }
            }
            let mut read = self.read.lock();
            // Another thread may have closed the iterator meanwhile.
            if !read.has_ended {
                read.answers.append(&mut pulled);
                read.has_ended = has_ended;
            }
            Ok(())
        });
        let pulled = match pulled {
            Ok(pulled) => pulled,
            Err(error) => {
                // The cursor has no further answers, but its answers are not complete.
                cursor.close(py)?;
                return Err(error);
            }
        };
        // The same, before this thread came to use the cursor.
        if pulled.is_none() && !self.read.lock().has_ended {
            return Err(errors::closed_error());
        }
        py.check_signals()
    }

    fn with_outcome<R: Send>(&self, py: Python<'_>, work: impl FnOnce(&Outcome) -> R + Send) -> PyResult<R> {
        match &self.source {
            AnswerSource::Complete(outcome) => Ok(work(outcome)),
            AnswerSource::Cursor(cursor) => cursor.with(py, |cursor| Ok(work(&cursor.outcome()))),
        }
    }
}

#[pymethods]
impl PyAnswers {
    fn __iter__(this: Bound<'_, Self>) -> Bound<'_, Self> {
        this
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<PyAnswer>> {
        self.next(py)
    }

    /// All answers that were not read yet, as a list.
    fn all(&self, py: Python<'_>) -> PyResult<Vec<PyAnswer>> {
        let mut answers = Vec::new();
        while let Some(answer) = self.next(py)? {
            answers.push(answer);
        }
        Ok(answers)
    }

    /// The report of the execution, of what was read so far.
    #[getter]
    fn explain(&self, py: Python<'_>) -> PyResult<PyExplain> {
        self.with_outcome(py, |outcome| PyExplain(outcome.explain().clone()))
    }

    /// The token for the answers after these, as ``find(after=…)`` takes it; ``None`` if there are none. All answers have to
    /// be read before.
    #[getter]
    fn next_token(&self, py: Python<'_>) -> PyResult<Option<String>> {
        let is_read = {
            let read = self.read.lock();
            read.has_ended && (read.answers.is_empty() || matches!(self.source, AnswerSource::Complete(_)))
        };
        if !is_read {
            return Err(errors::invalid_input("read all answers before their token"));
        }
        let has_snapshot = self.shape.has_snapshot;
        self.with_outcome(py, |outcome| {
            let token = outcome.next_token().cloned();
            token.map(|token| if has_snapshot { token } else { token.without_snapshot() }.to_string())
        })
    }

    /// Ends the iteration and releases its snapshot. Does nothing the second time.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if let AnswerSource::Cursor(cursor) = &self.source {
            cursor.check_unused()?;
        }
        *self.read.lock() = ReadAnswers { answers: VecDeque::new(), has_ended: true };
        if let AnswerSource::Cursor(cursor) = &self.source {
            cursor.close(py)?;
        }
        Ok(())
    }

    fn __enter__(this: Bound<'_, Self>) -> Bound<'_, Self> {
        this
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: Vec<Bound<'_, PyAny>>) -> PyResult<()> {
        self.close(py)
    }
}

impl Drop for PyAnswers {
    fn drop(&mut self) {
        if let AnswerSource::Cursor(cursor) = &self.source
            && !self.read.get_mut().has_ended
            && cursor.is_open()
        {
            warn_about_open("answers of a query were not read to their end nor closed");
        }
    }
}
