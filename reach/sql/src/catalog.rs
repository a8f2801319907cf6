//! The catalog: collections as tables of the schema `public`, and figures of the database in the schema `system`.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::{CatalogProvider, SchemaProvider, TableProvider};
use datafusion::datasource::MemTable;
use datafusion::error::{DataFusionError, Result};

use crate::blocking;
use crate::error::{SqlError, SqlState};
use crate::session_state::{EXCLUDED, SessionShared};
use crate::system_tables;
use crate::table::BolideTable;

/// The name of the catalog.
pub(crate) const CATALOG: &str = "bolide";
/// The schema of the collections.
pub(crate) const PUBLIC: &str = "public";
/// The schema of the figures of the database.
pub(crate) const SYSTEM: &str = "system";

/// The catalog of a session.
#[derive(Debug)]
pub(crate) struct BolideCatalog {
    public: Arc<PublicSchema>,
    system: Arc<SystemSchema>,
}

impl BolideCatalog {
    pub(crate) fn new(shared: &Arc<SessionShared>) -> Self {
        Self {
            public: Arc::new(PublicSchema { shared: shared.clone() }),
            system: Arc::new(SystemSchema { shared: shared.clone() }),
        }
    }
}

impl CatalogProvider for BolideCatalog {
    fn schema_names(&self) -> Vec<String> {
        vec![PUBLIC.to_owned(), SYSTEM.to_owned()]
    }

    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        match name {
            PUBLIC => Some(self.public.clone()),
            SYSTEM => Some(self.system.clone()),
            _ => None,
        }
    }
}

/// The collections.
#[derive(Debug)]
struct PublicSchema {
    shared: Arc<SessionShared>,
}

#[async_trait]
impl SchemaProvider for PublicSchema {
    fn table_names(&self) -> Vec<String> {
        self.shared.tables()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>, DataFusionError> {
        if let Some(rows) = self.shared.excluded().filter(|_| name == EXCLUDED) {
            return Ok(Some(Arc::new(MemTable::try_new(rows.schema(), vec![vec![rows]])?)));
        }
        let (shared, name) = (self.shared.clone(), name.to_owned());
        match blocking(move || shared.source(&name)).await? {
            Ok(source) => Ok(Some(Arc::new(BolideTable::new(source)))),
            // Perhaps a function.
            Err(error) if error.state() == SqlState::UndefinedTable => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn table_exist(&self, name: &str) -> bool {
        self.shared.collection(name).is_ok()
    }
}

/// Figures of the database.
#[derive(Debug)]
struct SystemSchema {
    shared: Arc<SessionShared>,
}

#[async_trait]
impl SchemaProvider for SystemSchema {
    fn table_names(&self) -> Vec<String> {
        system_tables::NAMES.map(str::to_owned).to_vec()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>, DataFusionError> {
        let (shared, owned) = (self.shared.clone(), name.to_owned());
        match blocking(move || system_tables::table(&shared, &owned)).await?? {
            Some(table) => Ok(Some(Arc::new(table))),
            None => {
                Err(SqlError::new(SqlState::UndefinedTable, format!("there is no table \"system.{name}\""))
                    .with_hint(format!("the tables are system.{}", system_tables::NAMES.join(", system.")))
                    .into())
            }
        }
    }

    fn table_exist(&self, name: &str) -> bool {
        system_tables::NAMES.contains(&name)
    }
}
