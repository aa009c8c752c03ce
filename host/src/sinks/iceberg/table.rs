//! The one table that the sink fills: named, made, compared with the declared schema, and given columns.
//! Owns what a new table looks like; rows are none of its business.

use iceberg::spec::{
    NullOrder, PartitionSpecRef, Schema as TableSchema, SchemaRef, SortDirection, SortField, SortOrder, Transform,
    UnboundPartitionSpec,
};
use iceberg::table::Table;
use iceberg::transaction::{AddColumn, ApplyTransactionAction, Transaction};
use iceberg::{Catalog, NamespaceIdent, TableCreation, TableIdent};

use super::Config;
use super::catalog::{CatalogType, error, warehouse_url};
use crate::columnar::{Field, Kind, Schema};
use crate::error::{Error, ErrorKind, Result};

/// What the settings say of the table.
pub struct Plan {
    /// Its full name.
    pub ident: TableIdent,
    /// The declared schema, if there is one.
    pub schema: Option<Schema>,
    partition: Option<Vec<Term>>,
    sort: Vec<(Term, SortDirection)>,
    properties: Vec<(String, String)>,
    location: Option<String>,
    add_columns: bool,
}

/// A column and what is done to it: `bucket(id, 64)`.
#[derive(Clone, Debug, PartialEq)]
struct Term {
    column: String,
    transform: Transform,
}

impl Term {
    fn parse(text: &str) -> Result<Term> {
        let wrong = |why: &str| {
            Error::config(format!(
                "a partition or sort term {why}: write a column, or one of bucket(COLUMN, N), truncate(COLUMN, N), year(COLUMN), month(COLUMN), day(COLUMN), hour(COLUMN)"
            ))
            .with("term", text)
        };
        let Some((name, rest)) = text.split_once('(') else {
            return Ok(Term { column: text.trim().to_string(), transform: Transform::Identity });
        };
        let inner = rest.trim_end().strip_suffix(')').ok_or_else(|| wrong("lacks its closing parenthesis"))?;
        let (column, number) = match inner.split_once(',') {
            None => (inner.trim(), None),
            Some((column, number)) => {
                let number: u32 = number.trim().parse().map_err(|_| wrong("has no whole number as its second argument"))?;
                (column.trim(), Some(number))
            }
        };
        let transform = match (name.trim(), number) {
            ("identity", None) => Transform::Identity,
            ("year" | "years", None) => Transform::Year,
            ("month" | "months", None) => Transform::Month,
            ("day" | "days" | "date", None) => Transform::Day,
            ("hour" | "hours", None) => Transform::Hour,
            ("bucket", Some(n)) if n > 0 => Transform::Bucket(n),
            ("truncate", Some(n)) if n > 0 => Transform::Truncate(n),
            _ => return Err(wrong("is unknown or lacks its number")),
        };
        if column.is_empty() {
            return Err(wrong("names no column"));
        }
        Ok(Term { column: column.to_string(), transform })
    }

    /// The table partition's name, as Iceberg's Java library gives it.
    fn partition_name(&self) -> String {
        let suffix = match self.transform {
            Transform::Bucket(_) => "_bucket",
            Transform::Truncate(_) => "_trunc",
            Transform::Year => "_year",
            Transform::Month => "_month",
            Transform::Day => "_day",
            Transform::Hour => "_hour",
            _ => "",
        };
        format!("{}{suffix}", self.column)
    }
}

impl Plan {
    /// Reads the settings.
    pub fn new(config: &Config, schema: Option<Schema>) -> Result<Plan> {
        let parts: Vec<&str> = config.table.split('.').collect();
        if parts.len() < 2 || parts.iter().any(|part| part.is_empty()) {
            return Err(Error::config("`table` is namespace and name, such as `web.clicks`").with("table", &config.table));
        }
        let ident = TableIdent::from_strs(&parts).map_err(|e| Error::config("`table` is no table name").because(e))?;
        let partition = config.partition_by.iter().map(|text| Term::parse(text)).collect::<Result<Vec<_>>>()?;
        let mut sort = Vec::new();
        for text in &config.sort_order {
            let (term, direction) = match text.trim().rsplit_once(' ') {
                Some((term, "desc")) => (term, SortDirection::Descending),
                Some((term, "asc")) => (term, SortDirection::Ascending),
                _ => (text.as_str(), SortDirection::Ascending),
            };
            sort.push((Term::parse(term)?, direction));
        }
        let location = match (&config.warehouse, config.catalog.r#type) {
            (Some(warehouse), CatalogType::Sql) => Some(format!("{}/{}", warehouse_url(warehouse)?, parts.join("/"))),
            _ => None,
        };
        let plan = Plan {
            ident,
            schema,
            partition: (!partition.is_empty()).then_some(partition),
            sort,
            properties: config.properties.iter().map(|(k, v)| (k.clone(), v.clone())).collect(),
            location,
            add_columns: config.add_columns,
        };
        if plan.schema.is_some() {
            plan.can_create()?;
        }
        Ok(plan)
    }

    /// Whether the settings tell enough to make the table.
    pub fn can_create(&self) -> Result<()> {
        self.creation().map(drop)
    }

    fn creation(&self) -> Result<TableCreation> {
        let declared = self.schema.as_ref().ok_or_else(|| {
            Error::config("the table doesn't exist, and without `schema` it can't be created: name a schema file")
                .with("table", &self.ident)
        })?;
        let schema = iceberg_schema(declared)?;
        let find = |term: &Term| {
            let field = schema.field_by_name(&term.column).ok_or_else(|| {
                let known: Vec<&str> = declared.fields.iter().map(|f| f.name.as_str()).collect();
                Error::config("a partition or sort term names a column that the schema doesn't have")
                    .with("column", &term.column)
                    .with("columns", known.join(","))
            })?;
            let fits = term.transform.result_type(&field.field_type);
            fits.map_err(|e| Error::config("the column's type can't be partitioned so").with("column", &term.column).because(e))?;
            Ok(field.id)
        };
        // Apache Iceberg's own catalog refuses a spec without an id.
        let mut spec = UnboundPartitionSpec::builder().with_spec_id(0);
        for term in self.partition.iter().flatten() {
            let added = spec.add_partition_field(find(term)?, term.partition_name(), term.transform);
            spec = added
                .map_err(|e| Error::config("partition_by names a table partition twice").with("term", &term.column).because(e))?;
        }
        let mut order = SortOrder::builder();
        for (term, direction) in &self.sort {
            let null_order = match direction {
                SortDirection::Ascending => NullOrder::First,
                SortDirection::Descending => NullOrder::Last,
            };
            order.with_sort_field(SortField {
                source_id: find(term)?,
                transform: term.transform,
                direction: *direction,
                null_order,
            });
        }
        let order = order.build(&schema).map_err(|e| Error::config("sort_order does not fit the schema").because(e))?;
        let mut creation = TableCreation::builder()
            .name(self.ident.name().to_string())
            .schema(schema)
            .partition_spec(spec.build())
            .sort_order(order)
            .properties(self.properties.clone())
            .build();
        creation.location = self.location.clone();
        Ok(creation)
    }
}

/// The declared schema as Iceberg's library knows it.
pub fn iceberg_schema(schema: &Schema) -> Result<TableSchema> {
    serde_json::from_value(schema.iceberg_json()).map_err(|e| Error::config("the schema is none that Iceberg takes").because(e))
}

/// Whether the table is there.
pub async fn exists(catalog: &dyn Catalog, plan: &Plan) -> Result<bool> {
    let wrong = |e| error("cannot ask the catalog for the table", e).with("table", &plan.ident);
    Ok(catalog.namespace_exists(plan.ident.namespace()).await.map_err(wrong)?
        && catalog.table_exists(&plan.ident).await.map_err(wrong)?)
}

/// Makes namespace and table where they are missing; adds declared columns where that was asked for.
pub async fn create(catalog: &dyn Catalog, plan: &Plan) -> Result<()> {
    let wrong = |e| error("cannot create the table", e).with("table", &plan.ident);
    let names: Vec<String> = plan.ident.namespace().iter().map(|name| name.to_string()).collect();
    for depth in 1..=names.len() {
        let namespace = NamespaceIdent::from_vec(names[..depth].to_vec()).map_err(wrong)?;
        if catalog.namespace_exists(&namespace).await.map_err(wrong)? {
            continue;
        }
        if let Err(e) = catalog.create_namespace(&namespace, Default::default()).await
            && !catalog.namespace_exists(&namespace).await.map_err(wrong)?
        {
            return Err(wrong(e));
        }
    }
    if !exists(catalog, plan).await? {
        // Another process may be faster: its table is compared like any other.
        match catalog.create_table(plan.ident.namespace(), plan.creation()?).await {
            Ok(_) => tracing::info!(table = %plan.ident, "created the table"),
            Err(e) if !exists(catalog, plan).await? => return Err(wrong(e)),
            Err(_) => {}
        }
    } else if let (true, Some(declared)) = (plan.add_columns, &plan.schema) {
        let optional: Vec<Field> = declared.fields.iter().filter(|f| !f.required).cloned().collect();
        add_columns(catalog, &plan.ident, &optional).await?;
    }
    Ok(())
}

/// Adds those of the fields that the table lacks, as optional columns.
pub async fn add_columns(catalog: &dyn Catalog, ident: &TableIdent, fields: &[Field]) -> Result<()> {
    const TRIES: u32 = 8;
    let wrong = |e| error("cannot add columns to the table", e).with("table", ident);
    let mut last = None;
    for _ in 0..TRIES {
        let table = catalog.load_table(ident).await.map_err(wrong)?;
        let current = table.metadata().current_schema();
        let missing: Vec<&Field> = fields.iter().filter(|f| current.field_by_name(&f.name).is_none()).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let names: Vec<&str> = missing.iter().map(|f| f.name.as_str()).collect();
        tracing::info!(table = %ident, columns = names.join(","), "adding columns to the table");
        let transaction = Transaction::new(&table);
        let mut action = transaction.update_schema();
        for field in missing {
            let alone = iceberg_schema(&Schema::new(vec![field.clone()]))?;
            if let Some(column) = alone.field_by_name(&field.name) {
                action = action.add_column(AddColumn::optional(&field.name, (*column.field_type).clone()));
            }
        }
        let transaction = action.apply(transaction).map_err(wrong)?;
        match transaction.commit(catalog).await {
            Ok(_) => return Ok(()),
            // Another writer may have added the same column: look again.
            Err(e) => last = Some(wrong(e)),
        }
    }
    Err(last.unwrap_or_else(|| Error::transient("cannot add columns to the table")))
}

/// The table as it is, and how rows are laid out in it.
pub struct Layout {
    /// As loaded.
    pub table: Table,
    /// Its current schema.
    pub schema: SchemaRef,
    /// Its current partition spec.
    pub spec: PartitionSpecRef,
    /// The columns that are filled: as declared, with the table's field ids.
    pub columns: Schema,
}

impl Layout {
    /// Loads the table and compares it with what is declared. Every mismatch is in the error.
    /// `extra` are columns that messages brought along, which the table has by now.
    pub async fn load(catalog: &dyn Catalog, plan: &Plan, extra: &[Field]) -> Result<Layout> {
        let table = catalog.load_table(&plan.ident).await.map_err(|e| {
            let e = error("cannot load the table", e);
            Error::new(e.kind(), "cannot load the table").with("table", &plan.ident).because(e)
        })?;
        let schema = table.metadata().current_schema().clone();
        let spec = table.metadata().default_partition_spec().clone();
        let json = serde_json::to_value(schema.as_ref()).map_err(|e| Error::bug("a table's schema has no JSON").because(e))?;
        let theirs = Schema::from_iceberg(&json).map_err(|e| {
            Error::new(ErrorKind::Config, "the table has a column that can't be filled").with("table", &plan.ident).because(e)
        })?;
        let mut wrong = Vec::new();
        let columns = match &plan.schema {
            None => theirs,
            Some(declared) => {
                let mut fields = declared.fields.clone();
                fields.extend(extra.iter().filter(|e| !declared.fields.iter().any(|d| d.name == e.name)).cloned());
                Schema::new(align_all(&fields, &theirs.fields, "", plan.add_columns, &mut wrong))
            }
        };
        if let Some(terms) = &plan.partition {
            let wanted: Vec<String> = terms.iter().map(|t| format!("{} of {}", t.transform, t.column)).collect();
            let name = |id| schema.name_by_field_id(id).unwrap_or("?");
            let found: Vec<String> = spec.fields().iter().map(|f| format!("{} of {}", f.transform, name(f.source_id))).collect();
            if wanted != found {
                wrong.push(format!("partition_by says [{}], the table has [{}]", wanted.join(", "), found.join(", ")));
            }
        }
        if wrong.is_empty() {
            return Ok(Layout { table, schema, spec, columns });
        }
        Err(Error::config(format!("the table does not match the pipeline file: {}", wrong.join("; "))).with("table", &plan.ident))
    }
}

/// The declared fields with the table's ids; what doesn't fit goes to `wrong`.
fn align_all(declared: &[Field], theirs: &[Field], at: &str, add_columns: bool, wrong: &mut Vec<String>) -> Vec<Field> {
    let mut aligned = Vec::new();
    for field in declared {
        let path = format!("{at}{}", field.name);
        match theirs.iter().find(|t| t.name == field.name) {
            Some(their) => aligned.push(align(field, their, &path, wrong)),
            None if add_columns && !field.required => {
                wrong.push(format!("column `{path}` is missing in the table: run once with a right to alter it"))
            }
            None => wrong.push(format!("column `{path}` is missing in the table: add it there, or take it out of the schema")),
        }
    }
    for their in theirs.iter().filter(|t| t.required && !declared.iter().any(|d| d.name == t.name)) {
        wrong.push(format!("column `{at}{}` is required in the table, but not in the schema", their.name));
    }
    aligned
}

fn align(declared: &Field, theirs: &Field, path: &str, wrong: &mut Vec<String>) -> Field {
    if theirs.required && !declared.required {
        wrong.push(format!("column `{path}` is required in the table, but may be null by the schema"));
    }
    let kind = match (&declared.kind, &theirs.kind) {
        (Kind::Struct(ours), Kind::Struct(fields)) => Kind::Struct(align_all(ours, fields, &format!("{path}."), false, wrong)),
        (Kind::List(ours), Kind::List(element)) => Kind::List(Box::new(align(ours, element, &format!("{path}.element"), wrong))),
        (Kind::Map(key, value), Kind::Map(their_key, their_value)) => Kind::Map(
            Box::new(align(key, their_key, &format!("{path}.key"), wrong)),
            Box::new(align(value, their_value, &format!("{path}.value"), wrong)),
        ),
        (ours, kind) => {
            if ours != kind {
                wrong.push(format!("column `{path}` is {kind} in the table, but {ours} by the schema"));
            }
            kind.clone()
        }
    };
    // A row has to satisfy both: what the schema requires stays required even where the table would take null.
    Field { id: theirs.id, kind, ..declared.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_read_as_iceberg_writes_them() {
        let term = |text: &str| Term::parse(text).map(|t| (t.partition_name(), t.transform));
        assert_eq!(term("bucket(id, 64)").unwrap(), ("id_bucket".into(), Transform::Bucket(64)));
        assert_eq!(term("day(ts)").unwrap(), ("ts_day".into(), Transform::Day));
        assert_eq!(term("truncate(name,4)").unwrap(), ("name_trunc".into(), Transform::Truncate(4)));
        assert_eq!(term("country").unwrap(), ("country".into(), Transform::Identity));
        for bad in ["bucket(id)", "bucket(id, x)", "bucket(id, 0)", "week(ts)", "day(ts", "day()"] {
            let said = Term::parse(bad).unwrap_err().to_string();
            assert!(said.contains("bucket(COLUMN, N)") && said.contains(bad), "{said}");
        }
    }
}
