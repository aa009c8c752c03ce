//! The reference of the pipeline file in `docs/config.md`, written from the code: every key with its type, default
//! and doc comment. A change of a setting without `make docs` fails here.

use serde_json::Value;

const BEGIN: &str = "<!-- reference: written by `make docs` from the code; changes here are overwritten -->\n";
const END: &str = "<!-- end of reference -->";

/// The reference as Markdown.
fn render(schema: &Value) -> String {
    let mut out = String::new();
    let mut section = |title: &str, object: &Value, skip: &[&str]| {
        out.push_str(&format!("\n{title}\n\n"));
        if let Some(text) = object["description"].as_str() {
            out.push_str(&format!("{}\n\n", text.replace('\n', " ")));
        }
        let mut rows = Vec::new();
        keys(schema, object, "", skip, &mut rows);
        out.push_str("| key | | default | |\n|---|---|---|---|\n");
        out.extend(rows.into_iter().map(|row| format!("{row}\n")));
    };
    section("## Top level", schema, &["sources", "steps", "sinks"]);
    section("## A step", resolve(schema, &schema["properties"]["steps"]["items"]), &[]);
    for (list, what) in [("sources", "Source"), ("sinks", "Sink")] {
        for connector in schema["properties"][list]["items"]["oneOf"].as_array().into_iter().flatten() {
            for (kind, settings) in connector["properties"].as_object().into_iter().flatten() {
                section(&format!("## {what} `{kind}`"), settings, &["name", "from"]);
            }
        }
    }
    out
}

/// A row for each key of an object; the keys of an object within are rows of their own, as `outer.inner`.
fn keys(root: &Value, object: &Value, prefix: &str, skip: &[&str], rows: &mut Vec<String>) {
    let required: Vec<&str> = object["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for (name, property) in object["properties"].as_object().into_iter().flatten() {
        if skip.contains(&name.as_str()) {
            continue;
        }
        let inner = resolve(root, property);
        let default = match &property["default"] {
            _ if required.contains(&name.as_str()) => "required".to_string(),
            Value::Null | Value::Object(_) => String::new(),
            Value::String(text) => format!("`{text}`"),
            other => format!("`{other}`"),
        };
        let described = |value: &Value| value["description"].as_str().unwrap_or_default().replace('\n', " ").replace('|', "\\|");
        let mut text = described(property);
        for choice in inner["oneOf"].as_array().into_iter().flatten() {
            if let (Some(value), text_of) = (choice["const"].as_str(), described(choice)) {
                text.push_str(&format!(" `{value}`: {text_of}"));
            }
        }
        rows.push(format!("| `{prefix}{name}` | {} | {default} | {} |", kind(root, property), text.trim()));
        if inner["properties"].is_object() {
            keys(root, inner, &format!("{prefix}{name}."), &[], rows);
        }
    }
}

/// Follows a reference; of "this or nothing", this.
fn resolve<'a>(root: &'a Value, schema: &'a Value) -> &'a Value {
    if let Some(name) = schema["$ref"].as_str() {
        return resolve(root, root.pointer(name.trim_start_matches('#')).unwrap_or(schema));
    }
    let some = schema["anyOf"].as_array().into_iter().flatten().find(|option| option["type"] != "null");
    match some {
        Some(some) if schema["anyOf"].as_array().is_some_and(|all| all.len() == 2) => resolve(root, some),
        _ => schema,
    }
}

/// What kind of value a person writes.
fn kind(root: &Value, schema: &Value) -> String {
    let inner = resolve(root, schema);
    if let Some(example) = inner["examples"][0].as_str() {
        return if example.ends_with('B') { "size".into() } else { "duration".into() };
    }
    let choices = |of: &Value| -> Vec<String> {
        let constants = of["oneOf"].as_array().into_iter().flatten().filter_map(|c| c["const"].as_str());
        let listed = of["enum"].as_array().into_iter().flatten().filter_map(Value::as_str);
        constants.chain(listed).map(|name| format!("`{name}`")).collect()
    };
    let chosen = choices(inner);
    if !chosen.is_empty() {
        return chosen.join(" or ");
    }
    if let Some(options) = inner["anyOf"].as_array().or(inner["oneOf"].as_array()) {
        let mut kinds: Vec<String> = options.iter().filter(|o| o["type"] != "null").map(|o| kind(root, o)).collect();
        kinds.dedup();
        return kinds.join(" or ");
    }
    let name = match &inner["type"] {
        Value::String(name) => name.as_str(),
        Value::Array(names) => names.iter().filter_map(Value::as_str).find(|name| *name != "null").unwrap_or_default(),
        _ => return "any value".into(),
    };
    match name {
        "string" => "text".into(),
        "integer" | "number" => "number".into(),
        "boolean" => "`true` or `false`".into(),
        "array" => format!("list of {}", kind(root, &inner["items"])),
        "object" => "map".into(),
        other => other.to_string(),
    }
}

/// The document with its reference replaced.
fn written(document: &str, reference: &str) -> Option<String> {
    let (before, rest) = document.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}{reference}\n{END}{after}"))
}

#[test]
fn the_reference_of_the_pipeline_file_is_what_the_code_takes() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/config.md");
    let document = std::fs::read_to_string(&path).unwrap();
    let reference = render(&weir::pipeline::schema());
    for word in ["`checkpoint.interval`", "`limits.memory`", "## Source `generator`", "## Sink `iceberg`", "`catalog.uri`"] {
        assert!(reference.contains(word), "{word} is missing in: {reference}");
    }
    let wanted = written(&document, &reference).expect("docs/config.md has its two marks");
    if document != wanted {
        if std::env::var_os("WEIR_BLESS").is_none() {
            panic!("docs/config.md is not what the code takes: run `make docs` and look at the difference");
        }
        std::fs::write(&path, wanted).unwrap();
    }
}

#[test]
fn the_schema_for_editors_is_what_the_code_takes() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/pipeline.schema.json");
    let wanted = serde_json::to_string_pretty(&weir::pipeline::schema()).unwrap() + "\n";
    if std::fs::read_to_string(&path).unwrap() != wanted {
        if std::env::var_os("WEIR_BLESS").is_none() {
            panic!("docs/pipeline.schema.json is not what the code takes: run `make docs` and look at the difference");
        }
        std::fs::write(&path, wanted).unwrap();
    }
}

#[test]
fn keys_become_rows_with_their_kind_default_and_choices() {
    let schema = serde_json::json!({
        "properties": {
            "pipeline": {"type": "string", "description": "Its name."},
            "every": {"$ref": "#/$defs/Span", "default": "5s", "description": "How\noften."},
            "mode": {"$ref": "#/$defs/Mode"},
            "limit": {"anyOf": [{"$ref": "#/$defs/Limit"}, {"type": "null"}]},
            "steps": {"items": {"properties": {"tags": {"type": "array", "items": {"type": "string"}, "default": []}}}},
            "sources": {"items": {"oneOf": [{"properties": {"kafka": {"properties": {
                "name": {}, "count": {"type": ["integer", "null"]}, "x": true, "either": {"anyOf": [{"type": "string"}, {"type": "boolean"}, {"type": "integer"}]}
            }}}}]}}
        },
        "required": ["pipeline"],
        "$defs": {
            "Span": {"type": "string", "examples": ["5s"]},
            "Mode": {"oneOf": [{"const": "a", "description": "One | way."}, {"const": "b"}]},
            "Limit": {"type": "object", "properties": {"memory": {"type": "integer", "default": 3}}}
        }
    });
    let text = render(&schema);
    for row in [
        "| `pipeline` | text | required | Its name. |",
        "| `every` | duration | `5s` | How often. |",
        "| `mode` | `a` or `b` |  | `a`: One \\| way. `b`: |",
        "| `limit` | map |  |  |\n| `limit.memory` | number | `3` |  |",
        "## A step\n\n| key | | default | |\n|---|---|---|---|\n| `tags` | list of text | `[]` |  |",
        "## Source `kafka`\n\n| key | | default | |\n|---|---|---|---|\n| `count` | number |  |  |\n| `x` | any value |  |  |",
        "| `either` | text or `true` or `false` or number |",
    ] {
        assert!(text.contains(row), "{row}\nis missing in:\n{text}");
    }
    assert_eq!(written(&format!("a\n{BEGIN}old{END}\nb"), "new").unwrap(), format!("a\n{BEGIN}new\n{END}\nb"));
}
