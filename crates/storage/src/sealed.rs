//! Small text files that a human can read and that know whether they are whole:
//!
//! ```text
//! ticketrail-identity 1
//! node = 3
//! crc32 = 1c291ca3
//! ```
//!
//! The first line says what the file is and in which format; the last line is a checksum of all before it.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;

use crate::error::OpenError;
use crate::files;

/// A kind of sealed file.
pub(crate) struct Kind {
    /// Its first word.
    pub(crate) name: &'static str,
    /// The newest format that this program knows; older ones start at 1.
    pub(crate) format: u32,
    /// What to do when it is damaged.
    pub(crate) way_out: &'static str,
}

/// Writes `lines` to `path`, sealed and durable.
pub(crate) fn write(kind: &Kind, path: &Path, lines: &[String]) -> io::Result<()> {
    files::replace(path, seal(kind, lines).as_bytes())
}

/// The lines between head and seal; `None` if there is no such file.
pub(crate) fn read(kind: &Kind, path: &Path) -> Result<Option<Vec<String>>, OpenError> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(OpenError::io("read", path, &error)),
    };
    unseal(kind, path, &bytes).map(Some)
}

fn seal(kind: &Kind, lines: &[String]) -> String {
    let mut text = format!("{} {}\n", kind.name, kind.format);
    for line in lines {
        text.push_str(line);
        text.push('\n');
    }
    let crc = crc32fast::hash(text.as_bytes());
    // Writing to a String cannot fail.
    let _ = writeln!(text, "crc32 = {crc:08x}");
    text
}

fn unseal(kind: &Kind, path: &Path, bytes: &[u8]) -> Result<Vec<String>, OpenError> {
    let corrupt = |reason: String| OpenError::corrupt(path, reason, kind.way_out);
    let Ok(text) = std::str::from_utf8(bytes) else {
        return Err(corrupt("it is no text".into()));
    };
    if text.is_empty() {
        return Err(corrupt("it is empty".into()));
    }
    let head = text.lines().next().unwrap_or_default();
    let Some(format) = head.strip_prefix(kind.name).and_then(|rest| rest.strip_prefix(' ')) else {
        return Err(corrupt(format!("its first line is {head:?} instead of \"{} …\"", kind.name)));
    };
    let Some((body, seal)) = text.strip_suffix('\n').and_then(|text| text.rsplit_once('\n')) else {
        return Err(corrupt("it is truncated".into()));
    };
    let Some(seal) = seal.strip_prefix("crc32 = ") else {
        return Err(corrupt("it is truncated: its last line is no checksum".into()));
    };
    let body = &text[..=body.len()];
    let crc = format!("{:08x}", crc32fast::hash(body.as_bytes()));
    if seal != crc {
        return Err(corrupt(format!("its checksum is {crc} instead of {seal}")));
    }
    match format.parse::<u32>() {
        Ok(found) if found > kind.format => {
            Err(OpenError::Newer { path: path.to_path_buf(), found, known: kind.format })
        }
        Ok(1..) => Ok(body.lines().skip(1).map(str::to_string).collect()),
        Ok(0) | Err(_) => Err(corrupt(format!("its format is {format:?}"))),
    }
}

/// The value of line `index`, which must read `key = value`.
pub(crate) fn field<'a>(
    kind: &Kind,
    path: &Path,
    lines: &'a [String],
    index: usize,
    key: &str,
) -> Result<&'a str, OpenError> {
    lines
        .get(index)
        .and_then(|line| line.strip_prefix(key))
        .and_then(|rest| rest.strip_prefix(" = "))
        .ok_or_else(|| OpenError::corrupt(path, format!("it has no line \"{key} = …\""), kind.way_out))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: Kind = Kind { name: "ticketrail-test", format: 2, way_out: "mend it" };

    #[test]
    fn every_flipped_bit_and_every_truncation_is_refused() {
        let path = Path::new("F");
        let whole = seal(&KIND, &["a = 1".into(), "b = 2".into()]).into_bytes();
        assert_eq!(unseal(&KIND, path, &whole), Ok(vec!["a = 1".to_string(), "b = 2".to_string()]));
        for cut in 0..whole.len() {
            assert!(unseal(&KIND, path, &whole[..cut]).is_err(), "cut at {cut}");
        }
        for at in 0..whole.len() {
            for bit in 0..8 {
                let mut bad = whole.clone();
                bad[at] ^= 1 << bit;
                assert!(unseal(&KIND, path, &bad).is_err(), "bit {bit} of byte {at}");
            }
        }
    }

    #[test]
    fn formats() {
        let path = Path::new("F");
        let newer = seal(&Kind { format: 3, ..KIND }, &[]);
        assert_eq!(
            unseal(&KIND, path, newer.as_bytes()),
            Err(OpenError::Newer { path: "F".into(), found: 3, known: 2 })
        );
        let older = seal(&Kind { format: 1, ..KIND }, &[]);
        assert_eq!(unseal(&KIND, path, older.as_bytes()), Ok(vec![]));
        let other = seal(&Kind { name: "something", ..KIND }, &[]);
        assert!(unseal(&KIND, path, other.as_bytes()).is_err());
    }
}
