//! Indexes records that are not JSON: an extractor of the program returns their attributes.
//!
//! `cargo run --example own_extractor -p bolide`

use std::sync::Arc;

use bolide::{
    AttributeExtractor, AttributePath, AttributePlan, AttributeValues, CollectionOptions, Components, Db,
    Error, Options, Query, Result, Value,
};

/// Reads records of the form `city;temperature`.
#[derive(Debug)]
struct Readings {
    city: AttributePath,
    temperature: AttributePath,
}

impl AttributeExtractor for Readings {
    fn extract_into(&self, record: &[u8], plan: &AttributePlan, out: &mut AttributeValues) -> Result<()> {
        let fields = std::str::from_utf8(record).ok().and_then(|text| text.split_once(';'));
        let (city, temperature) =
            fields.ok_or_else(|| Error::invalid_input("a reading is `city;temperature`"))?;
        let temperature: i64 = temperature
            .parse()
            .map_err(|_| Error::invalid_input(format!("`{temperature}` is not a temperature")))?;
        // A plan has a slot for each attribute that an index needs now.
        if let Some(slot) = plan.slot(&self.city) {
            out.push(slot, &Value::String(city.into()))?;
        }
        if let Some(slot) = plan.slot(&self.temperature) {
            out.push(slot, &Value::Int(temperature))?;
        }
        Ok(())
    }
}

pub(crate) fn main() -> Result<()> {
    let directory = tempfile::tempdir().expect("the system has a directory for temporary files");
    let extractor = Readings { city: "city".parse()?, temperature: "temperature".parse()? };
    // The extractor is registered for the collection of this name, at each opening.
    let components = Components::system().extractor("readings", Arc::new(extractor));
    let db = Db::open_with(directory.path().join("weather.bolide"), Options::default(), components)?;
    let options = CollectionOptions::bytes().index("city".parse()?).index("temperature".parse()?);
    let readings = db.create_collection("readings", options)?;
    readings.put(b"1", b"Oslo;-4")?;
    readings.put(b"2", b"Rome;17")?;
    readings.put(b"3", b"Oslo;2")?;

    let frost = readings.find(&Query::new().eq("city", "Oslo").range("temperature", ..0))?;
    for answer in &frost {
        println!("{answer}");
    }
    assert_eq!(frost.len(), 1);

    // A record that the extractor refuses is not stored.
    println!("refused: {}", readings.put(b"4", b"Paris").expect_err("it has no temperature"));
    assert_eq!(readings.iter()?.count(), 3);
    Ok(())
}
