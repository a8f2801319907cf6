//! Finds places in a window on the map, and those nearest to a point.
//!
//! `cargo run --example places -p bolide`

use bolide::{CollectionOptions, Db, Options, Order, Point, Query, Rect};

pub(crate) fn main() -> bolide::Result<()> {
    let directory = tempfile::tempdir().expect("the system has a directory for temporary files");
    let db = Db::open(directory.path().join("map.bolide"), Options::default())?;
    // Points and rectangles have indexes of kind `next`.
    let options = CollectionOptions::default().index("point(lon,lat)".parse()?).index("rect(bbox)".parse()?);
    let places = db.create_collection("places", options)?;
    for (key, record) in [
        ("berlin", r#"{"lon":13.40,"lat":52.52,"bbox":[13.09,52.34,13.76,52.68]}"#),
        ("potsdam", r#"{"lon":13.06,"lat":52.40,"bbox":[12.89,52.34,13.17,52.51]}"#),
        ("prague", r#"{"lon":14.42,"lat":50.09,"bbox":[14.22,49.94,14.71,50.18]}"#),
        ("vienna", r#"{"lon":16.37,"lat":48.21,"bbox":[16.18,48.12,16.58,48.32]}"#),
    ] {
        places.put(key.as_bytes(), record.as_bytes())?;
    }

    // Points in a window.
    let window = Rect::new(12.0, 52.0, 14.0, 53.0)?;
    let found = places.find(&Query::new().within("point(lon,lat)", window).keys_only())?;
    assert_eq!(found.len(), 2);

    // Rectangles that a small window touches.
    let corner = Rect::new(13.10, 52.40, 13.12, 52.42)?;
    let touched = places.find(&Query::new().within("rect(bbox)", corner).keys_only())?;
    assert_eq!(touched.len(), 2);

    // The nearest two.
    let query =
        Query::new().nearest("point(lon,lat)", Point::new(14.0, 50.5)?).order(Order::Nearest).limit(2);
    let nearest = places.find(&query)?;
    for answer in &nearest {
        println!("{answer}");
    }
    assert_eq!(nearest.iter().map(|answer| &answer.key[..]).collect::<Vec<_>>(), [&b"prague"[..], b"berlin"]);
    Ok(())
}
