use super::*;

/// What each pointer finds, by its number.
fn find(pointers: &[&str], text: &str) -> Vec<(usize, String)> {
    let mut found = Found::default();
    Paths::new(pointers).unwrap().find(text.as_bytes(), &mut found).unwrap();
    found.hits.iter().map(|hit| (hit.path, String::from_utf8(hit.of(text.as_bytes()).to_vec()).unwrap())).collect()
}

/// What remains when the pointers are cut.
fn cut(pointers: &[&str], text: &str) -> String {
    let mut paths = Paths::new(pointers).unwrap();
    (0..pointers.len()).for_each(|path| paths.cut(path));
    let mut found = Found::default();
    paths.find(text.as_bytes(), &mut found).unwrap();
    let (mut rest, mut at) = (String::new(), 0);
    for cut in &found.cuts {
        rest.push_str(&text[at..cut.start]);
        at = cut.end;
    }
    rest + &text[at..]
}

fn refusal(text: &[u8]) -> String {
    Paths::new([""; 0]).unwrap().find(text, &mut Found::default()).unwrap_err().to_string()
}

#[test]
fn pointers_lead_into_objects_and_arrays() {
    let text = r#" {"a": {"b": [10, {"c": "x"}], "~/": 1.50}, "0": null, "": true} "#;
    let one = |pointer| find(&[pointer], text).into_iter().map(|(_, value)| value).collect::<Vec<_>>();
    assert_eq!(one("/a/b/0"), ["10"]);
    assert_eq!(one("/a/b/1/c"), [r#""x""#]);
    assert_eq!(one("/a/b/01"), [""; 0]);
    assert_eq!(one("/a/~0~1"), ["1.50"]);
    assert_eq!(one("/0"), ["null"]);
    assert_eq!(one("/"), ["true"]);
    assert_eq!(one(""), [text.trim()]);
    assert_eq!(one("/a/b/c"), [""; 0]);
    assert_eq!(one("/a/b/*"), ["10", r#"{"c": "x"}"#]);
    assert_eq!(one("/*/*"), [r#"[10, {"c": "x"}]"#, "1.50"]);
}

#[test]
fn a_name_is_found_by_its_own_pointer_and_by_the_star() {
    let text = r#"{"a":{"x":1,"y":2},"b":{"x":3}}"#;
    let found = find(&["/*/x", "/a/y", "/a/*", "/a"], text);
    let expected = [(0, "1"), (2, "1"), (1, "2"), (2, "2"), (3, r#"{"x":1,"y":2}"#), (0, "3")];
    assert_eq!(found, expected.map(|(path, value)| (path, value.to_string())));
}

#[test]
fn escaped_and_doubled_names_are_found() {
    let text = r#"{"em\u0061il":1,"email":2}"#;
    assert_eq!(find(&["/email"], text), [(0, "1".to_string()), (0, "2".to_string())]);
    assert_eq!(Field::new("/email").unwrap().find(text.as_bytes()), Ok(Some(&b"2"[..])));
}

#[test]
fn what_remains_after_a_cut_is_json() {
    assert_eq!(cut(&["/a"], r#"{"a":1,"b":2,"c":3}"#), r#"{"b":2,"c":3}"#);
    assert_eq!(cut(&["/b"], r#"{"a":1,"b":2,"c":3}"#), r#"{"a":1,"c":3}"#);
    assert_eq!(cut(&["/c"], r#"{"a":1,"b":2,"c":3}"#), r#"{"a":1,"b":2}"#);
    assert_eq!(cut(&["/a", "/b"], r#"{"a":1,"b":2,"c":3}"#), r#"{"c":3}"#);
    assert_eq!(cut(&["/a", "/c"], r#"{"a":1,"b":2,"c":3}"#), r#"{"b":2}"#);
    assert_eq!(cut(&["/b", "/c"], r#"{"a":1, "b":2, "c":3 }"#), r#"{"a":1 }"#);
    assert_eq!(cut(&["/*"], r#"{ "a":1 , "b":2 }"#), r#"{  }"#);
    assert_eq!(cut(&["/0", "/2"], r#"[1,[2],3]"#), r#"[[2]]"#);
    assert_eq!(cut(&["/a/x", "/a"], r#"{"a":{"x":1,"y":2},"b":0}"#), r#"{"b":0}"#);
    assert_eq!(cut(&["/*/x"], r#"[{"x":1},{"x":1,"y":2},{"y":2,"x":1}]"#), r#"[{},{"y":2},{"y":2}]"#);
    assert_eq!(cut(&["/b/x", "/c"], r#"{"a":0,"b":{"x":1},"c":2}"#), r#"{"a":0,"b":{}}"#);
}

#[test]
fn every_way_of_cutting_members_leaves_json() {
    for members in 0..6usize {
        for bits in 0..1u32 << members {
            let all: Vec<String> = (0..members).map(|i| format!("\"m{i}\" : {i}")).collect();
            let pointers: Vec<String> = (0..members).filter(|i| bits >> i & 1 == 1).map(|i| format!("/m{i}")).collect();
            let rest = cut(&pointers.iter().map(String::as_str).collect::<Vec<_>>(), &format!("{{ {} }}", all.join(" , ")));
            let value: serde_json::Value = serde_json::from_str(&rest).unwrap_or_else(|e| panic!("{rest}: {e}"));
            assert_eq!(value.as_object().unwrap().len(), members - pointers.len(), "{rest}");
        }
    }
}

#[test]
fn outermost_looks_no_further() {
    let mut found = Found::default();
    let paths = Paths::new(["/a", "/a/b", "/*/b"]).unwrap().outermost();
    paths.find(br#"{"a":{"b":1},"c":{"b":2}}"#, &mut found).unwrap();
    assert_eq!(found.hits.iter().map(|hit| hit.path).collect::<Vec<_>>(), [0, 2]);
}

#[test]
fn what_is_not_json_is_refused_with_its_place() {
    let deep = format!("{}{}", "[".repeat(128), "]".repeat(128));
    for (text, expected) in [
        (&b""[..], "expected a value at byte 0"),
        (b"{\"a\":1} x", "something follows the value at byte 8"),
        (b"{\"a\":1}{}", "something follows the value at byte 7"),
        (b"\xef\xbb\xbf{}", "expected a value at byte 0"),
        (b"{\"a\" 1}", "expected `:` at byte 5"),
        (b"{\"a\":1,}", "expected a member name at byte 7"),
        (b"{\"a\":1", "expected `,` or `}` at byte 6"),
        (b"[1 2]", "expected `,` or `]` at byte 3"),
        (b"[1}", "expected `,` or `]` at byte 2"),
        (b"[01]", "not a number at byte 1"),
        (b"[NaN]", "expected a value at byte 1"),
        (b"[tru]", "expected a value at byte 1"),
        (b"\"abc", "a string without its end at byte 4"),
        (b"\"a\nc\"", "a control character in a string at byte 2"),
        (b"\"a\\x\"", "an unknown escape at byte 2"),
        (b"\"\\u12g4\"", "an unknown escape at byte 1"),
        (b"\"\xff\"", "not UTF-8 at byte 1"),
        (deep.as_bytes(), "nested too deep at byte 127"),
    ] {
        assert_eq!(refusal(text), format!("not JSON: {expected}"), "{}", String::from_utf8_lossy(text));
    }
    let deepest = &deep[1..255];
    Paths::new(["/0/0"]).unwrap().find(deepest.as_bytes(), &mut Found::default()).unwrap();
}

#[test]
fn whether_a_text_is_json_is_told_as_serde_does() {
    let seeds =
        [r#"{"a":[1,-2.5e3,"x\n\u00e9",true,null],"b":{}}"#, r#"[[],{"k":"0123456789abcdef0123456789abcdef"}]"#, "\"grüße\""];
    let mut found = Found::default();
    let looking = Paths::new(["/a/*", "/*/k"]).unwrap();
    for seed in seeds {
        for at in 0..seed.len() {
            for byte in [b'"', b'\\', b'{', b'}', b'[', b']', b',', b':', b'0', b'-', b' ', 0, 0x80, b'e', b'.'] {
                let mut text = seed.as_bytes().to_vec();
                text[at] = byte;
                let serde = serde_json::from_slice::<&serde_json::value::RawValue>(&text).is_ok();
                let what = String::from_utf8_lossy(&text).into_owned();
                assert_eq!(looking.find(&text, &mut found).is_ok(), serde, "{what}");
                assert_eq!(Paths::new([""; 0]).unwrap().find(&text, &mut found).is_ok(), serde, "{what}");
            }
        }
    }
}

#[test]
fn a_wrong_pointer_is_refused_with_what_is_wrong() {
    let refusal = |pointer: &str| Paths::new([pointer]).unwrap_err();
    assert_eq!(refusal("email"), "`email` is no JSON pointer: it begins with `/`, as in `/user/name`");
    assert_eq!(refusal("/a~b"), "`/a~b` is no JSON pointer: `~` is written `~0`, and `/` within a name `~1`");
    assert!(refusal(&"/a".repeat(65)).ends_with("it has more than 64 steps"));
}
