//! Which generation is live: the file `CURRENT`, replaced as a whole.

use std::path::{Path, PathBuf};

use ticketrail_core::GroupId;

use crate::error::{OpenError, TREAT_AS_LOST};
use crate::sealed::{self, Kind};

const KIND: Kind = Kind { name: "ticketrail-state", format: 1, way_out: TREAT_AS_LOST };

pub(super) fn path(dir: &Path) -> PathBuf {
    dir.join("CURRENT")
}

pub(super) fn generation_path(dir: &Path, generation: u64) -> PathBuf {
    dir.join(generation.to_string())
}

/// Makes `generation` the live one, durably.
pub(super) fn write(dir: &Path, group: GroupId, generation: u64) -> std::io::Result<()> {
    sealed::write(&KIND, &path(dir), &[format!("group = {}", group.0), format!("generation = {generation}")])
}

/// The number of the live generation.
pub(super) fn read(dir: &Path, group: GroupId) -> Result<u64, OpenError> {
    let path = path(dir);
    let Some(lines) = sealed::read(&KIND, &path)? else {
        return Err(OpenError::corrupt(&path, "it is missing in a state's directory", KIND.way_out));
    };
    let of = sealed::field(&KIND, &path, &lines, 0, "group")?;
    if of != group.0.to_string() {
        return Err(OpenError::Foreign {
            path,
            expected: format!("group {}", group.0),
            found: format!("group {of}"),
            way_out: "put back the directory of this group",
        });
    }
    let generation = sealed::field(&KIND, &path, &lines, 1, "generation")?;
    generation.parse().map_err(|_| OpenError::corrupt(&path, format!("its generation is {generation:?}"), KIND.way_out))
}
