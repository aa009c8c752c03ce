//! The order in which a new message is written: objects opened and closed, fields in between.

use weir_udf::json::quote;

/// A step in writing a message. Names come with quotes and colon.
#[derive(Debug, PartialEq, Eq)]
pub enum Piece {
    /// An object begins; without a name the message itself.
    Open(Vec<u8>),
    /// The innermost object ends.
    Close,
    /// The field with this number.
    Field(usize, Vec<u8>),
    /// The field with this number is the whole message.
    Whole(usize),
}

/// An object or a field of the new message.
enum Tree {
    Field(usize),
    Object(Vec<(String, Tree)>),
}

/// The steps of a pointer to a new field.
pub fn steps(pointer: &str) -> Result<Vec<String>, String> {
    let wrong = |why: &str| Err(format!("config: fields: `{pointer}` {why}"));
    if pointer.is_empty() {
        return Ok(vec![]);
    }
    let Some(rest) = pointer.strip_prefix('/') else {
        return wrong("is no JSON pointer: it begins with `/`, as in `/user/name`");
    };
    if rest.split('/').any(|step| step == "*") {
        return wrong("names one new field: `*` may stand for many");
    }
    Ok(rest.split('/').map(|step| step.replace("~1", "/").replace("~0", "~")).collect())
}

/// How a message with fields at these pointers is written.
pub fn shape(pointers: &[&str]) -> Result<Vec<Piece>, String> {
    if pointers == [""] {
        return Ok(vec![Piece::Whole(0)]);
    }
    let mut root = Vec::new();
    for (number, pointer) in pointers.iter().enumerate() {
        let clash = || format!("config: fields: `{pointer}` lies in, around or at the place of another field");
        let steps = steps(pointer)?;
        let Some((last, parents)) = steps.split_last() else { return Err(clash()) };
        let mut members = &mut root;
        for name in parents {
            let at = match members.iter().position(|(known, _)| known == name) {
                Some(at) => at,
                None => {
                    members.push((name.clone(), Tree::Object(Vec::new())));
                    members.len() - 1
                }
            };
            members = match &mut members[at].1 {
                Tree::Object(members) => members,
                Tree::Field(_) => return Err(clash()),
            };
        }
        if members.iter().any(|(known, _)| known == last) {
            return Err(clash());
        }
        members.push((last.clone(), Tree::Field(number)));
    }
    let mut pieces = vec![Piece::Open(Vec::new())];
    write(&root, &mut pieces);
    Ok(pieces)
}

fn write(members: &[(String, Tree)], pieces: &mut Vec<Piece>) {
    for (name, tree) in members {
        let mut quoted = Vec::new();
        quote(name, |piece| quoted.extend_from_slice(piece));
        quoted.push(b':');
        match tree {
            Tree::Field(number) => pieces.push(Piece::Field(*number, quoted)),
            Tree::Object(members) => {
                pieces.push(Piece::Open(quoted));
                write(members, pieces);
            }
        }
    }
    pieces.push(Piece::Close);
}
