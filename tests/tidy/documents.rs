//! Rules about documents and about every text file.

use std::collections::BTreeSet;

use super::{File, files, hold, root};

/// Names of package registries' hosts, in two parts so that this file holds none of them.
const HOSTS: [(&str, &str); 10] = [
    ("pypi", "org"),
    ("files.pythonhosted", "org"),
    ("registry.npmjs", "org"),
    ("static.crates", "io"),
    ("index.crates", "io"),
    ("repo.maven.apache", "org"),
    ("repo1.maven", "org"),
    ("proxy.golang", "org"),
    ("deb.debian", "org"),
    ("static.rust-lang", "org"),
];

/// Roots of paths that exist on one machine only, in two parts likewise.
const MACHINE: [(&str, &str); 3] = [("/wo", "rk/"), ("/ro", "ot/"), ("/ho", "me/")];

/// First folders of the repository: a path in backticks that begins with one must exist.
const FOLDERS: [&str; 8] = [".ci/", "docs/", "examples/", "guest-sdk/", "host/", "tests/", "udfs/", "target/udfs/"];

fn complain(file: &File, number: usize, text: String) -> String {
    format!("{}:{}: {text}", file.path, number + 1)
}

fn machine_rule(file: &File) -> Vec<String> {
    let mut found = Vec::new();
    for (number, line) in file.text.lines().enumerate() {
        for (a, b) in MACHINE {
            if line.contains(&format!("{a}{b}")) {
                found.push(complain(file, number, format!("a path of one machine: {a}{b}")));
            }
        }
        if ["<<<<", ">>>>"].iter().any(|mark| line.starts_with(&mark.repeat(2)[..7])) {
            found.push(complain(file, number, "a conflict left from a merge".to_string()));
        }
        for (name, end) in HOSTS {
            let host = format!("{name}.{end}");
            let own_name = line.find(&host).filter(|at| !line[..*at].ends_with(|c: char| c.is_ascii_alphanumeric() || c == '-'));
            if own_name.is_some() {
                found.push(complain(file, number, format!("a registry's host: {host}")));
            }
        }
    }
    found
}

/// A heading's anchor, as code hosts make it.
fn anchor(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    text.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c)).map(|c| if c == ' ' { '-' } else { c }).collect()
}

fn anchors(text: &str) -> BTreeSet<String> {
    text.lines().filter(|line| line.starts_with('#')).map(anchor).collect()
}

/// The targets of a line's `[text](target)`.
fn targets(line: &str) -> Vec<&str> {
    line.split("](").skip(1).filter_map(|rest| rest.split(')').next()).collect()
}

/// Lines of a document outside its code blocks.
fn prose(text: &str) -> Vec<(usize, &str)> {
    let mut inside = false;
    let keep = |(_, line): &(usize, &str)| {
        let fence = line.trim_start().starts_with("```");
        inside ^= fence;
        !inside && !fence
    };
    text.lines().enumerate().filter(keep).collect()
}

fn link_rule(file: &File, exists: &dyn Fn(&str) -> Option<String>) -> Vec<String> {
    if !file.path.ends_with(".md") {
        return Vec::new();
    }
    let folder = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut found = Vec::new();
    for (number, line) in prose(&file.text) {
        for target in targets(line).into_iter().filter(|t| !t.contains("://") && !t.starts_with("mailto:")) {
            let (path, wanted) = target.split_once('#').map_or((target, None), |(path, anchor)| (path, Some(anchor)));
            let path = if path.is_empty() { file.path.clone() } else { join(folder, path) };
            match exists(&path) {
                None => found.push(complain(file, number, format!("the link leads nowhere: {target}"))),
                Some(text) if wanted.is_some_and(|wanted| !anchors(&text).contains(wanted)) => {
                    found.push(complain(file, number, format!("no such heading: {target}")));
                }
                Some(_) => {}
            }
        }
        for quoted in line.split('`').skip(1).step_by(2) {
            let path = quoted.trim_end_matches('/');
            let ours = FOLDERS.iter().any(|folder| quoted.starts_with(folder)) && !quoted.starts_with("target/");
            if ours && !path.contains(|c: char| "*<{ …".contains(c)) && exists(path).is_none() {
                found.push(complain(file, number, format!("no such file: {quoted}")));
            }
        }
    }
    found
}

/// `folder/path` with `.` and `..` taken out.
fn join(folder: &str, path: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            _ => parts.push(part),
        }
    }
    parts.join("/")
}

/// The text of a file, or an empty one for a folder.
fn on_disk(path: &str) -> Option<String> {
    let path = root().join(path);
    path.exists().then(|| std::fs::read_to_string(path).unwrap_or_default())
}

#[test]
fn no_file_names_a_machine_or_a_registry_or_holds_a_conflict() {
    hold(machine_rule);
}

#[test]
fn every_link_and_every_path_in_a_document_leads_somewhere() {
    hold(|file| link_rule(file, &on_disk));
}

#[test]
fn every_example_has_its_page_and_its_pipeline() {
    let paths: BTreeSet<String> = files().into_iter().map(|file| file.path).collect();
    let examples: BTreeSet<&str> =
        paths.iter().filter_map(|p| p.strip_prefix("examples/")?.split_once('/')).map(|(e, _)| e).collect();
    assert!(examples.contains("quickstart"), "{examples:?}");
    for example in examples {
        for name in ["README.md", "pipeline.yaml"] {
            assert!(paths.contains(&format!("examples/{example}/{name}")), "examples/{example} has no {name}");
        }
    }
}

#[test]
fn the_rules_see_a_broken_document() {
    let page = File::made_up(
        "docs/a.md",
        "# A b\n[x](b.md) [y](../c.md#one-two) [z](#a-b) [w](#no)\n`host/src/no.rs` `host/*`\n```\n[v](no)\n```\n",
    );
    let exists = |path: &str| match path {
        "docs/a.md" => Some(page.text.clone()),
        "c.md" => Some("## One, two".to_string()),
        _ => None,
    };
    let found = link_rule(&page, &exists);
    assert_eq!(
        found,
        [
            "docs/a.md:2: the link leads nowhere: b.md",
            "docs/a.md:2: no such heading: #no",
            "docs/a.md:3: no such file: host/src/no.rs"
        ]
    );
    for text in [["<<<<", "<<< HEAD"].concat(), ["/ro", "ot/x"].concat(), ["https://pypi", ".org/simple"].concat()] {
        assert_eq!(machine_rule(&File::made_up("a.txt", &text)).len(), 1, "{text}");
    }
    assert!(machine_rule(&File::made_up("a.txt", "the network/of folders")).is_empty());
}
