//! How a file is compressed, as settings and names of files say it. Compresses nothing.

use schemars::JsonSchema;
use serde::Deserialize;

/// How a file is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Compression {
    /// Not at all.
    None,
    /// As gzip does.
    Gzip,
    /// As zstd does.
    Zstd,
}

impl Compression {
    /// Endings of names, with what they mean.
    const ENDINGS: [(&str, Compression); 3] =
        [(".gz", Compression::Gzip), (".zst", Compression::Zstd), (".zstd", Compression::Zstd)];

    /// By the ending of a file's name.
    pub fn of(name: &str) -> Compression {
        Compression::ENDINGS.iter().find(|(ending, _)| name.ends_with(ending)).map_or(Compression::None, |(_, kind)| *kind)
    }

    /// A file's name without the ending that tells its compression.
    pub fn plain_name(name: &str) -> &str {
        Compression::ENDINGS.iter().find_map(|(ending, _)| name.strip_suffix(ending)).unwrap_or(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ending_of_a_name_tells_the_compression() {
        let told =
            ["a.csv.gz", "a.zst", "a.zstd", "a.gz.txt", ""].map(|name| (Compression::of(name), Compression::plain_name(name)));
        let (gzip, zstd, none) = (Compression::Gzip, Compression::Zstd, Compression::None);
        assert_eq!(told, [(gzip, "a.csv"), (zstd, "a"), (zstd, "a"), (none, "a.gz.txt"), (none, "")]);
    }
}
