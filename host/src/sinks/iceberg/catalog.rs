//! Opening catalogs, and what their errors mean. Owns the `catalog` settings; knows nothing of tables.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use iceberg::{Catalog, CatalogBuilder};
use iceberg_catalog_rest::RestCatalogBuilder;
use iceberg_catalog_sql::SqlCatalogBuilder;
use iceberg_storage_opendal::OpenDalResolvingStorageFactory;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Config;
use crate::error::{Error, Result};

/// The catalogs that the sink knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CatalogType {
    /// A database: SQLite or PostgreSQL, with the tables that PyIceberg and Iceberg's JDBC catalog use.
    Sql,
    /// An Iceberg REST catalog.
    Rest,
}

/// Where tables are listed.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CatalogConfig {
    /// `sql` or `rest`.
    pub r#type: CatalogType,
    /// `sqlite:PATH`, `postgres://user:password@host/database`, or the REST catalog's address.
    pub uri: String,
    /// The catalog's name: for `sql` part of each table's key.
    #[serde(default = "default_name")]
    pub name: String,
    /// Properties of the catalog by Iceberg's names, such as `token`, `credential` or `prefix`.
    #[serde(default)]
    pub properties: BTreeMap<String, String>,
}

fn default_name() -> String {
    "default".to_string()
}

/// A warehouse as a URL: relative folders are made absolute, so that other programs find the same files.
pub fn warehouse_url(warehouse: &str) -> Result<String> {
    if warehouse.contains("://") {
        return Ok(warehouse.trim_end_matches('/').to_string());
    }
    let path = std::path::absolute(warehouse)
        .map_err(|e| Error::config("the warehouse is no path").with("warehouse", warehouse).because(e))?;
    Ok(format!("file://{}", path.display()))
}

/// The file behind a `sqlite:` address.
fn sqlite_path(uri: &str) -> Option<PathBuf> {
    let rest = uri.strip_prefix("sqlite:")?;
    let path = rest.split('?').next().unwrap_or(rest);
    (path != ":memory:").then(|| PathBuf::from(path.strip_prefix("//").unwrap_or(path)))
}

/// True when the catalog is a SQLite file that doesn't exist yet.
pub fn will_be_created(config: &Config) -> bool {
    config.catalog.r#type == CatalogType::Sql && sqlite_path(&config.catalog.uri).is_some_and(|path| !path.exists())
}

/// Opens the catalog. A SQLite file is created where it is missing.
pub async fn open(config: &Config) -> Result<Arc<dyn Catalog>> {
    let catalog = &config.catalog;
    let mut properties: HashMap<String, String> =
        config.options.iter().chain(&catalog.properties).map(|(k, v)| (k.clone(), v.clone())).collect();
    if let Some(warehouse) = &config.warehouse {
        let url = match catalog.r#type {
            CatalogType::Sql => warehouse_url(warehouse)?,
            // A REST catalog's warehouse may be a name of its own.
            CatalogType::Rest => warehouse.clone(),
        };
        properties.insert("warehouse".to_string(), url);
    }
    let storage = Arc::new(OpenDalResolvingStorageFactory::new());
    let unreachable = |e: iceberg::Error| {
        let kind = error("", e);
        Error::new(kind.kind(), "cannot open the catalog: check its address, and that it runs")
            .with("uri", hide_password(&catalog.uri))
            .because(kind)
    };
    match catalog.r#type {
        CatalogType::Sql => {
            if config.warehouse.is_none() {
                return Err(Error::config("a catalog of type sql needs `warehouse`: where new tables lie"));
            }
            properties.insert("uri".to_string(), sql_uri(&catalog.uri)?);
            let style = if catalog.uri.starts_with("sqlite:") { "QMark" } else { "DollarNumeric" };
            properties.insert("sql_bind_style".to_string(), style.to_string());
            let opened = SqlCatalogBuilder::default().with_storage_factory(storage).load(&catalog.name, properties).await;
            Ok(Arc::new(opened.map_err(unreachable)?))
        }
        CatalogType::Rest => {
            properties.insert("uri".to_string(), catalog.uri.clone());
            let opened = RestCatalogBuilder::default().with_storage_factory(storage).load(&catalog.name, properties).await;
            let opened: Arc<dyn Catalog> = Arc::new(opened.map_err(unreachable)?);
            // The builder asks nothing yet; an address that doesn't answer is to be named as such here.
            opened.list_namespaces(None).await.map_err(unreachable)?;
            Ok(opened)
        }
    }
}

/// The address as the driver wants it, its folder made.
fn sql_uri(uri: &str) -> Result<String> {
    let Some(path) = sqlite_path(uri) else {
        return match uri.starts_with("postgres://") || uri.starts_with("postgresql://") || uri.starts_with("sqlite:") {
            true => Ok(uri.to_string()),
            false => Err(Error::config(
                "the address of a sql catalog begins with `sqlite:` or `postgres://`; write for example `sqlite:./warehouse/catalog.db`",
            )
            .with("uri", hide_password(uri))),
        };
    };
    if let Some(folder) = path.parent().filter(|f| *f != Path::new("")) {
        std::fs::create_dir_all(folder).map_err(|e| {
            Error::config("cannot create the catalog's folder: make it writable, or name another in catalog.uri")
                .with("folder", folder.display())
                .because(e)
        })?;
    }
    Ok(format!("sqlite:{}?mode=rwc", path.display()))
}

fn hide_password(uri: &str) -> String {
    match url::Url::parse(uri) {
        Ok(mut url) if url.password().is_some() => {
            let _ = url.set_password(Some("***"));
            url.to_string()
        }
        _ => uri.to_string(),
    }
}

/// What an error of the Iceberg library asks for: what can't be written is the person's to mend, most others may pass.
pub fn error(message: &'static str, error: iceberg::Error) -> Error {
    let text = format!("{error:?}").to_lowercase();
    let said = |words: &[&str]| words.iter().any(|word| text.contains(word));
    if said(&["read-only", "readonly", "permission denied", "permissiondenied"]) {
        let message = if message.is_empty() { "the warehouse or the catalog can't be written" } else { message };
        return Error::config(message).with("remedy", "make the warehouse and the catalog writable for this user").because(error);
    }
    if said(&["no space left", "storagefull", "database or disk is full"]) {
        return Error::transient(message).with("remedy", "free some space: the pipeline goes on by itself").because(error);
    }
    // A catalog that understands and refuses won't change its mind; one that fails may.
    if said(&["status: 400", "status: 401", "status: 403", "status: 422"]) {
        return Error::config(message).because(error);
    }
    use iceberg::ErrorKind::*;
    match error.kind() {
        DataInvalid | FeatureUnsupported | TableNotFound | NamespaceNotFound => Error::config(message).because(error),
        _ => Error::transient(message).because(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_folders_become_absolute_urls() {
        assert!(warehouse_url("./w").unwrap().starts_with("file:///"));
        assert_eq!(warehouse_url("s3://bucket/w/").unwrap(), "s3://bucket/w");
    }

    #[test]
    fn addresses_of_sql_catalogs_are_checked_and_passwords_hidden() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b.db");
        assert_eq!(sql_uri(&format!("sqlite:{}", path.display())).unwrap(), format!("sqlite:{}?mode=rwc", path.display()));
        assert!(path.parent().unwrap().is_dir());
        assert!(sql_uri("mysql://x").unwrap_err().to_string().contains("begins with `sqlite:`"));
        assert_eq!(hide_password("postgres://u:secret@h/d"), "postgres://u:***@h/d");
    }
}
