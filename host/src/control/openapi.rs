//! The OpenAPI document, made from the same table as the routes: what is served is what is described.

use std::collections::BTreeMap;

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::answers::Refusal;
use super::endpoints::{self, Body, Parameter};

/// Where the document is served.
pub const PATH: &str = "/v1/openapi.json";

/// The document.
pub fn document() -> Value {
    let mut generator =
        SchemaSettings::draft2020_12().with(|s| s.definitions_path = "/components/schemas".into()).into_generator();
    let refusal = generator.subschema_for::<Refusal>().to_value();
    let mut paths: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
    for endpoint in endpoints::all() {
        let answer = (endpoint.answer)(&mut generator).to_value();
        let content = |schema: &Value| json!({"application/json": {"schema": schema}});
        let mut operation = json!({
            "operationId": endpoint.name,
            "summary": endpoint.summary,
            "parameters": endpoint.parameters.iter().map(parameter).collect::<Vec<_>>(),
            "responses": {
                "200": {"description": "Done.", "content": content(&answer)},
                "default": {"description": "Refused: says why and what to do.", "content": content(&refusal)},
            },
            "security": [{"token": []}, {}],
        });
        if let Body::Module = endpoint.body {
            let schema = json!({"type": "string", "format": "binary", "maxLength": endpoints::MODULE_BYTES_MAX});
            operation["requestBody"] = json!({
                "required": true,
                "description": "The module: a component or a core module.",
                "content": {"application/wasm": {"schema": schema}},
            });
        }
        paths.entry(endpoint.path).or_default().insert(endpoint.method.to_lowercase(), operation);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Weir control API",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Steers one running pipeline. Served on loopback without a token; elsewhere every request carries one.",
            "license": {"name": "Apache 2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": generator.take_definitions(true),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    })
}

fn parameter(parameter: &Parameter) -> Value {
    let in_path = parameter.required;
    json!({
        "name": parameter.name,
        "in": if in_path { "path" } else { "query" },
        "required": in_path,
        "description": parameter.text,
        "schema": {"type": parameter.kind},
    })
}
