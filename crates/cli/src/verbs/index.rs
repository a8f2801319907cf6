//! `index add`, `index drop` and `index list`.

use super::database;
use crate::arguments::{IndexAdd, IndexDrop, IndexList, IndexVerb};
use crate::failure::Failure;
use crate::output::{Fields, print_objects};

/// Runs one verb of `index`.
pub(super) fn run(verb: &IndexVerb) -> Result<(), Failure> {
    match verb {
        IndexVerb::Add(arguments) => add(arguments),
        IndexVerb::Drop(arguments) => remove(arguments),
        IndexVerb::List(arguments) => list(arguments),
        IndexVerb::Advise(arguments) => super::advise::run(arguments),
    }
}

fn add(arguments: &IndexAdd) -> Result<(), Failure> {
    let spec = database::parse_spec(&arguments.spec)?;
    let db = database::open_to_write(&arguments.db)?;
    database::collection(&db, &arguments.collection)?.create_index(spec)?;
    database::close(db)
}

fn remove(arguments: &IndexDrop) -> Result<(), Failure> {
    let db = database::open_to_write(&arguments.db)?;
    let collection = database::collection(&db, &arguments.collection)?;
    collection.drop_index(&arguments.name)?;
    drop(collection);
    database::close(db)
}

fn list(arguments: &IndexList) -> Result<(), Failure> {
    let db = database::open_to_read(&arguments.db)?;
    let names = match &arguments.collection {
        Some(name) => vec![name.clone()],
        None => db.collections(),
    };
    let mut objects = Vec::new();
    for name in names {
        for index in database::collection(&db, &name)?.indexes() {
            let fields: Fields = vec![
                ("collection".into(), name.as_str().into()),
                ("index".into(), index.name().into()),
                ("attributes".into(), index.spec().attributes_text().into()),
                ("kind".into(), index.spec().kind().name().into()),
                ("maintenance".into(), index.spec().maintenance().name().into()),
                ("state".into(), format!("{:?}", index.state()).to_lowercase().into()),
            ];
            objects.push(fields);
        }
    }
    print_objects(arguments.output.form(), &objects)
}
