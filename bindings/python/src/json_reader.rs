//! JSON text as objects of Python, in one walk.

use std::fmt;

use bolide::limits::MAX_JSON_DEPTH;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyList, PyString};
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use crate::{errors, name_cache};

/// The object of a record.
///
/// An integer beyond 64 bits becomes the nearest float, as in queries.
pub(crate) fn read_record<'py>(py: Python<'py>, record: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    let mut input = serde_json::Deserializer::from_slice(record);
    input.disable_recursion_limit();
    let malformed = |error: serde_json::Error| {
        errors::invalid_input(format!("the record is malformed; read it with raw=True: {error}"))
    };
    let value = JsonValue { py, depth: 0 }.deserialize(&mut input).map_err(malformed)?;
    input.end().map_err(malformed)?;
    Ok(value)
}

/// A value at a depth.
#[derive(Clone, Copy)]
struct JsonValue<'py> {
    py: Python<'py>,
    depth: usize,
}

fn failed<E: de::Error>(error: impl fmt::Display) -> E {
    E::custom(error)
}

impl<'py> JsonValue<'py> {
    fn inner<E: de::Error>(self) -> Result<Self, E> {
        if self.depth == MAX_JSON_DEPTH {
            return Err(E::custom(format!("more than {MAX_JSON_DEPTH} levels")));
        }
        Ok(Self { py: self.py, depth: self.depth + 1 })
    }
}

impl<'de, 'py> DeserializeSeed<'de> for JsonValue<'py> {
    type Value = Bound<'py, PyAny>;

    fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<Self::Value, D::Error> {
        input.deserialize_any(self)
    }
}

impl<'de, 'py> Visitor<'de> for JsonValue<'py> {
    type Value = Bound<'py, PyAny>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Self::Value, E> {
        Ok(self.py.None().into_bound(self.py))
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Self::Value, E> {
        Ok(PyBool::new(self.py, value).to_owned().into_any())
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Self::Value, E> {
        value.into_pyobject(self.py).map(Bound::into_any).map_err(failed)
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Self::Value, E> {
        value.into_pyobject(self.py).map(Bound::into_any).map_err(failed)
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Self::Value, E> {
        Ok(PyFloat::new(self.py, value).into_any())
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Self::Value, E> {
        Ok(PyString::new(self.py, value).into_any())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Self::Value, A::Error> {
        let inner = self.inner()?;
        let list = PyList::empty(self.py);
        while let Some(element) = elements.next_element_seed(inner)? {
            list.append(element).map_err(failed)?;
        }
        Ok(list.into_any())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Self::Value, A::Error> {
        let inner = self.inner()?;
        let dict = PyDict::new(self.py);
        while let Some(name) = fields.next_key_seed(FieldName(self.py))? {
            dict.set_item(name, fields.next_value_seed(inner)?).map_err(failed)?;
        }
        Ok(dict.into_any())
    }
}

/// A name of a field.
#[derive(Clone, Copy)]
struct FieldName<'py>(Python<'py>);

impl<'de, 'py> DeserializeSeed<'de> for FieldName<'py> {
    type Value = Bound<'py, PyString>;

    fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<Self::Value, D::Error> {
        input.deserialize_str(self)
    }
}

impl<'py> Visitor<'_> for FieldName<'py> {
    type Value = Bound<'py, PyString>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E: de::Error>(self, name: &str) -> Result<Self::Value, E> {
        Ok(name_cache::string(self.0, name))
    }
}
