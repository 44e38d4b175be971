//! A Dockerfile, as far as our rules look at it.

/// An instruction: its name in capitals, and what stands behind it, in one line.
pub type Instruction = (String, String);

/// The instructions of the last stage, which is the image: those from the last `FROM` on.
pub fn last_stage(text: &str) -> Vec<Instruction> {
    let instructions = instructions(text);
    let from = instructions.iter().rposition(|(name, _)| name == "FROM").unwrap_or_default();
    instructions.into_iter().skip(from).collect()
}

fn instructions(text: &str) -> Vec<Instruction> {
    let mut instructions = Vec::new();
    let mut open = String::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        open.push_str(line.trim_end_matches('\\').trim());
        if line.ends_with('\\') {
            open.push(' ');
            continue;
        }
        let line = std::mem::take(&mut open);
        let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((&line, ""));
        instructions.push((name.to_uppercase(), rest.trim().to_owned()));
    }
    instructions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_image_is_what_follows_the_last_from() {
        let text = "# syntax=x\nFROM a AS b\nRUN c \\\n    && d\n\nfrom e\nUSER 1:2\nENTRYPOINT [\"f\", \\\n \"g\"]\n";
        let expected = [("FROM", "e"), ("USER", "1:2"), ("ENTRYPOINT", "[\"f\", \"g\"]")];
        assert_eq!(last_stage(text), expected.map(|(name, rest)| (name.to_owned(), rest.to_owned())));
        assert_eq!(instructions(text)[1], ("RUN".to_owned(), "c && d".to_owned()));
    }
}
