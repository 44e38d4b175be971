//! What the output of `cargo test` says: one line in, what to show and what to count out.
//!
//! The tests run with `--show-output`, so that a skip is seen although its test passed. Of what passing tests print, only
//! the blocks that hold a skip are shown.

/// How a line of a test begins that says why it did not run.
const SKIPPED: &str = "skipped:";

/// What has been counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Tests that ran and passed.
    pub(crate) passed: u64,
    /// Tests that failed, skips that may not be, and test programs that died.
    pub(crate) failed: u64,
    /// Tests that said they could not run here.
    pub(crate) skipped: u64,
}

impl Tally {
    /// Adds another run.
    pub(crate) fn add(&mut self, other: &Tally) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

/// Reads the output of `cargo test`, line by line.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    /// Whether a skip is a failure.
    strict: bool,
    passed: u64,
    failed: u64,
    skipped: u64,
    /// A test program has begun and not said its result.
    running: bool,
    died: u64,
    section: Section,
    block: Vec<String>,
}

/// Which part of a test program's output a line is in.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Section {
    #[default]
    Progress,
    /// What passing tests printed.
    Successes,
    /// The list of passing tests behind that.
    SuccessNames,
    Failures,
}

impl Reader {
    /// A reader; with `strict`, skips count as failures.
    pub(crate) fn new(strict: bool) -> Reader {
        Reader { strict, ..Reader::default() }
    }

    /// Takes one line without its end; returns the lines to show.
    pub(crate) fn line(&mut self, raw: &str) -> Vec<String> {
        let line = without_colours(raw);
        if let Some((passed, failed)) = result_counts(&line) {
            let mut shown = self.close_block();
            self.passed += passed;
            self.failed += failed;
            self.running = false;
            self.section = Section::Progress;
            shown.push(raw.to_owned());
            return shown;
        }
        if is_start(&line) {
            let mut shown = self.close_block();
            self.died += u64::from(self.running);
            self.running = true;
            self.section = Section::Progress;
            shown.push(raw.to_owned());
            return shown;
        }
        match (self.section, line.as_str()) {
            (Section::Progress, "successes:") => {
                self.section = Section::Successes;
                Vec::new()
            }
            (Section::Successes, "successes:") => {
                self.section = Section::SuccessNames;
                self.close_block()
            }
            (Section::Progress | Section::Successes | Section::SuccessNames, "failures:") => {
                let mut shown = self.close_block();
                self.section = Section::Failures;
                shown.push(raw.to_owned());
                shown
            }
            (Section::Successes, _) => {
                let shown = if is_block_head(&line) { self.close_block() } else { Vec::new() };
                self.block.push(raw.to_owned());
                shown
            }
            (Section::SuccessNames, _) => Vec::new(),
            (Section::Progress, _) => {
                // A test with a harness of its own, or one that writes past the capture.
                self.skipped += u64::from(line.starts_with(SKIPPED));
                vec![raw.to_owned()]
            }
            (Section::Failures, _) => vec![raw.to_owned()],
        }
    }

    /// Ends the reading. `fine` says whether cargo did: if it failed and no test did, the build is the failure. So it is if
    /// there was nothing to count.
    pub(crate) fn finish(mut self, fine: bool) -> Tally {
        let _ = self.close_block();
        self.died += u64::from(self.running);
        let mut failed = self.failed + self.died;
        if failed == 0 && (!fine || self.passed == 0) {
            failed = 1;
        }
        if self.strict {
            failed += self.skipped;
        }
        Tally { passed: self.passed.saturating_sub(self.skipped), failed, skipped: self.skipped }
    }

    /// Ends the output of one passing test: shown only if it holds a skip.
    fn close_block(&mut self) -> Vec<String> {
        let block = std::mem::take(&mut self.block);
        if block.iter().any(|line| without_colours(line).starts_with(SKIPPED)) {
            self.skipped += 1;
            block
        } else {
            Vec::new()
        }
    }
}

/// `test result: ok. 3 passed; 0 failed; …` as (3, 0).
fn result_counts(line: &str) -> Option<(u64, u64)> {
    let rest = line.strip_prefix("test result: ")?;
    let rest = rest.strip_prefix("ok. ").or_else(|| rest.strip_prefix("FAILED. "))?;
    let mut parts = rest.split("; ");
    let passed = parts.next()?.strip_suffix(" passed")?.parse().ok()?;
    let failed = parts.next()?.strip_suffix(" failed")?.parse().ok()?;
    parts.next()?.strip_suffix(" ignored")?;
    Some((passed, failed))
}

/// `running 3 tests`.
fn is_start(line: &str) -> bool {
    let Some(rest) = line.strip_prefix("running ") else { return false };
    let Some(count) = rest.strip_suffix(" tests").or_else(|| rest.strip_suffix(" test")) else { return false };
    !count.is_empty() && count.bytes().all(|byte| byte.is_ascii_digit())
}

/// `---- some::test stdout ----`.
fn is_block_head(line: &str) -> bool {
    line.starts_with("---- ") && line.ends_with(" stdout ----")
}

/// `line` without terminal colours.
fn without_colours(line: &str) -> String {
    let mut text = String::with_capacity(line.len());
    let mut chars = line.chars();
    while let Some(char) = chars.next() {
        if char != '\u{1b}' {
            text.push(char);
            continue;
        }
        match chars.next() {
            // A control sequence ends with its first letter; the others are two characters after the escape.
            Some('[') => {
                chars.by_ref().find(char::is_ascii_alphabetic);
            }
            Some('(') => {
                chars.next();
            }
            Some(_) | None => {}
        }
    }
    text
}

#[cfg(test)]
mod tests;
