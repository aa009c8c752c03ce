//! The file operations of a sink on local disk, synced so that what they have done survives a power cut. Blocking.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind as Io, Read, Seek, SeekFrom, Write};
use std::path::Path;

use crate::error::{Error, ErrorKind};

/// An I/O error as what to do about it.
pub fn failed(what: &'static str, path: &Path, error: io::Error) -> Error {
    let (kind, message) = match error.kind() {
        Io::PermissionDenied => (ErrorKind::Config, "no permission: let this user write there, or change `path`"),
        Io::ReadOnlyFilesystem => {
            (ErrorKind::Config, "the file system is read-only: mount a writable one there, or change `path`")
        }
        Io::NotADirectory | Io::IsADirectory => {
            (ErrorKind::Config, "a file stands where a folder is needed, or the reverse: change `path`")
        }
        Io::StorageFull | Io::QuotaExceeded => (ErrorKind::Transient, "the disk is full: free some space"),
        Io::UnexpectedEof => (
            ErrorKind::Corrupt,
            "the file is shorter than it was when this commit began: put its lines back, or begin a new log with an empty file",
        ),
        Io::InvalidData => (
            ErrorKind::Corrupt,
            "something else has written into the file during a commit: take those lines out, and give the file one writer only",
        ),
        _ => (ErrorKind::Transient, ""),
    };
    let message = if message.is_empty() { what.to_string() } else { format!("{what}: {message}") };
    Error::new(kind, message).with("path", path.display()).because(error)
}

/// Takes "not found" as an answer.
pub fn found<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == Io::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Makes a folder's entries durable.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Makes a folder and those above it that are missing, durable.
pub fn create_folders(folder: &Path) -> io::Result<()> {
    let missing = folder.ancestors().take_while(|at| !at.as_os_str().is_empty() && !at.is_dir()).count();
    std::fs::create_dir_all(folder)?;
    folder.ancestors().skip(1).take(missing).filter(|at| !at.as_os_str().is_empty()).try_for_each(sync_folder)
}

/// Creates a small file with its content at once, unless one is there: beside, synced, linked.
pub fn create(path: &Path, bytes: &[u8]) -> io::Result<bool> {
    let Some(folder) = path.parent() else { return Err(Io::InvalidInput.into()) };
    // A name that sweeping removes, should we die here.
    let beside = folder.join(format!("open-mark-{}", std::process::id()));
    let outcome = (|| {
        let mut file = File::create(&beside)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        match std::fs::hard_link(&beside, path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == Io::AlreadyExists => Ok(false),
            Err(error) => Err(error),
        }
    })();
    found(std::fs::remove_file(&beside))?;
    let created = outcome?;
    sync_folder(folder)?;
    Ok(created)
}

/// Makes a written file durable under its staged name.
pub fn stage(file: &File, open: &Path, staged: &Path) -> io::Result<u64> {
    file.sync_all()?;
    std::fs::rename(open, staged)?;
    if let Some(folder) = staged.parent() {
        sync_folder(folder)?;
    }
    Ok(file.metadata()?.len())
}

/// Writes staged files one after another into `target` from byte `base` on, and removes them. Done before, it does the
/// same again; done to its end, the first of them is gone and there is nothing to do.
pub fn append(parts: &[&Path], target: &Path, base: u64) -> io::Result<()> {
    let Some(first) = parts.first() else { return Ok(()) };
    if first.try_exists()? {
        let is_new = !target.try_exists()?;
        let mut out = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(target)?;
        let length = out.metadata()?.len();
        let mut end = base;
        for part in parts {
            end += part.metadata()?.len();
        }
        if length < base {
            return Err(Io::UnexpectedEof.into());
        }
        // Up to `end` it is our own half-done work, beyond it somebody else's, which must then stand behind ours.
        if length > end && !holds(&mut out, base, parts)? {
            return Err(Io::InvalidData.into());
        }
        copy_to(parts, &mut out, base)?;
        if let (true, Some(folder)) = (is_new, target.parent()) {
            sync_folder(folder)?;
        }
    }
    remove_all(parts)
}

/// Whether a file holds the files `parts` from byte `base` on.
fn holds(file: &mut File, base: u64, parts: &[&Path]) -> io::Result<bool> {
    file.seek(SeekFrom::Start(base))?;
    let (mut ours, mut theirs) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    for part in parts {
        let mut part = File::open(part)?;
        loop {
            let length = part.read(&mut ours)?;
            if length == 0 {
                break;
            }
            file.read_exact(&mut theirs[..length])?;
            if ours[..length] != theirs[..length] {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// Makes staged files, joined, the file `target` at once, and removes them. `length` is that of the first one by itself.
/// As repeatable as [`append`].
pub fn replace(parts: &[&Path], length: u64, target: &Path) -> io::Result<()> {
    let [first, rest @ ..] = parts else { return Ok(()) };
    if first.try_exists()? {
        if !rest.is_empty() {
            copy_to(rest, &mut OpenOptions::new().write(true).open(first)?, length)?;
        }
        if let Some(folder) = target.parent() {
            create_folders(folder)?;
        }
        // Gone by now only when another process has carried out the same commit.
        found(std::fs::rename(first, target))?;
    }
    if let Some(folder) = target.parent() {
        sync_folder(folder)?;
    }
    remove_all(rest)
}

/// Copies files into an open one from byte `base` on, durable.
fn copy_to(parts: &[&Path], out: &mut File, base: u64) -> io::Result<()> {
    out.seek(SeekFrom::Start(base))?;
    for part in parts {
        io::copy(&mut File::open(part)?, out)?;
    }
    out.sync_all()
}

/// Removes files in order: that the first is gone says that what it was for is done.
fn remove_all(parts: &[&Path]) -> io::Result<()> {
    for part in parts {
        found(std::fs::remove_file(part))?;
    }
    Ok(())
}
