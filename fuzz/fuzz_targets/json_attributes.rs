//! Attribute paths and a record: `path NUL path ... NUL newline record`.
//!
//! All paths together must return the values of each single path; a path of one field must return the value of the parsed tree;
//! only records that parse are accepted.
#![no_main]

use bolide_base::limits::MAX_JSON_DEPTH;
use bolide_index::{AttributeExtractor, AttributePath, AttributePlan, AttributeValues, JsonExtractor, Value};

fn extract(record: &[u8], paths: &[AttributePath]) -> Option<Vec<Vec<Value>>> {
    let plan = AttributePlan::new(paths.iter().cloned());
    let mut values = AttributeValues::new();
    JsonExtractor.extract(record, &plan, &mut values).ok()?;
    let of_path = |path: &AttributePath| {
        let slot = plan.slot(path).expect("the path is in the plan");
        let decode = |bytes: &[u8]| {
            let (value, len) = Value::decode(bytes).expect("an extracted value decodes");
            assert_eq!(len, bytes.len());
            value
        };
        values.values(slot).map(decode).collect()
    };
    Some(paths.iter().map(of_path).collect())
}

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let Some(at) = input.iter().position(|&byte| byte == b'\n') else { return };
    let (head, record) = (&input[..at], &input[at + 1..]);
    let texts = String::from_utf8_lossy(head);
    let paths: Vec<AttributePath> =
        texts.split('\0').take(8).filter_map(|text| text.parse().ok()).collect();
    for path in &paths {
        let again: AttributePath = path.to_string().parse().expect("a printed path parses");
        assert_eq!(again, *path);
    }
    let together = extract(record, &paths);
    let alone: Option<Vec<Vec<Value>>> =
        paths.iter().map(|path| extract(record, std::slice::from_ref(path)).map(|mut one| one.remove(0))).collect();
    if !paths.is_empty() {
        assert_eq!(together, alone);
    }
    let json: Option<serde_json::Value> = serde_json::from_slice(record).ok();
    if let (Some(found), Some(json)) = (&together, &json) {
        let object = json.as_object().expect("an accepted record is an object");
        for (path, values) in paths.iter().zip(found) {
            for (name, value) in object {
                if *path == AttributePath::field(name.as_str())
                    && let Some(value) = Value::from_json(value)
                {
                    assert_eq!(values.as_slice(), [value]);
                }
            }
        }
    }
    if together.is_some() && json.is_none() {
        // Only a record of the maximum depth may be accepted here alone: the other parser rejects it.
        assert!(record.iter().filter(|byte| matches!(byte, b'{' | b'[')).count() >= MAX_JSON_DEPTH);
    }
    // A record without a requested attribute is validated by a scan, one with a path by the full pass.
    let path = AttributePath::field("any");
    assert_eq!(JsonExtractor.validate(record).is_ok(), extract(record, &[path]).is_some());
});
