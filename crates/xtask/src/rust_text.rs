//! The code in a Rust file, apart from its comments, strings and tests.

/// A Rust file, taken apart.
#[derive(Debug)]
pub(crate) struct RustText {
    /// Its lines, in order.
    pub(crate) lines: Vec<Line>,
    /// The modules it declares with `mod name;` for tests only.
    pub(crate) test_modules: Vec<String>,
}

/// One line of a Rust file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line {
    /// Its text, with spaces in place of comments and of what stands in string and character literals.
    pub(crate) code: String,
    /// Whether it belongs to an item that is compiled for tests only.
    pub(crate) test: bool,
}

/// Takes `text` apart.
pub(crate) fn take_apart(text: &str) -> RustText {
    let code = code_only(text);
    let (test_lines, test_modules) = test_items(&code);
    let lines = code
        .lines()
        .enumerate()
        .map(|(index, code)| Line {
            code: code.to_owned(),
            test: test_lines.iter().any(|range| range.contains(&index)),
        })
        .collect();
    RustText { lines, test_modules }
}

/// Whether `code` holds `word`, not as a part of a longer name.
pub(crate) fn has_word(code: &str, word: &str) -> bool {
    let name_char = |char: char| char.is_alphanumeric() || char == '_';
    code.match_indices(word).any(|(start, _)| {
        let before = code[..start].chars().next_back();
        let after = code[start + word.len()..].chars().next();
        let joined_left = word.starts_with(name_char) && before.is_some_and(name_char);
        let joined_right = word.ends_with(name_char) && after.is_some_and(name_char);
        !joined_left && !joined_right
    })
}

/// `text` with a space for each character of a comment or literal; line ends stay.
fn code_only(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut blank = Blanker { chars: &chars, at: 0, out: String::with_capacity(text.len()) };
    while let Some(char) = blank.peek(0) {
        match char {
            '/' if blank.peek(1) == Some('/') => blank.until_line_end(),
            '/' if blank.peek(1) == Some('*') => blank.block_comment(),
            '"' => blank.string(),
            '\'' => blank.quote(),
            'r' if !blank.in_a_name() => match blank.raw_hashes() {
                Some(hashes) => blank.raw_string(hashes),
                None => blank.keep(1),
            },
            _ => blank.keep(1),
        }
    }
    blank.out
}

struct Blanker<'a> {
    chars: &'a [char],
    at: usize,
    out: String,
}

impl Blanker<'_> {
    fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    fn keep(&mut self, count: usize) {
        for _ in 0..count {
            if let Some(char) = self.peek(0) {
                self.out.push(char);
                self.at += 1;
            }
        }
    }

    fn blank(&mut self, count: usize) {
        for _ in 0..count {
            if let Some(char) = self.peek(0) {
                self.out.push(if char == '\n' { '\n' } else { ' ' });
                self.at += 1;
            }
        }
    }

    /// Whether the character before belongs to a name, other than the prefixes `b` and `c` of literals.
    fn in_a_name(&self) -> bool {
        let name_char = |char: char| char.is_alphanumeric() || char == '_';
        let before = |back: usize| self.at.checked_sub(back).and_then(|at| self.chars.get(at)).copied();
        match before(1) {
            Some('b' | 'c') => before(2).is_some_and(name_char),
            other => other.is_some_and(name_char),
        }
    }

    fn until_line_end(&mut self) {
        while self.peek(0).is_some_and(|char| char != '\n') {
            self.blank(1);
        }
    }

    fn block_comment(&mut self) {
        let mut depth = 0;
        while self.at < self.chars.len() {
            match (self.peek(0), self.peek(1)) {
                (Some('/'), Some('*')) => {
                    depth += 1;
                    self.blank(2);
                }
                (Some('*'), Some('/')) => {
                    depth -= 1;
                    self.blank(2);
                    if depth == 0 {
                        return;
                    }
                }
                (Some(_), _) => self.blank(1),
                (None, _) => return,
            }
        }
    }

    fn string(&mut self) {
        self.keep(1);
        while let Some(char) = self.peek(0) {
            match char {
                '\\' => self.blank(2),
                '"' => return self.keep(1),
                _ => self.blank(1),
            }
        }
    }

    /// How many `#` a raw string at this place has, if it is one.
    fn raw_hashes(&self) -> Option<usize> {
        let hashes = self.chars[self.at + 1..].iter().take_while(|char| **char == '#').count();
        (self.peek(1 + hashes) == Some('"')).then_some(hashes)
    }

    fn raw_string(&mut self, hashes: usize) {
        self.keep(2 + hashes);
        while let Some(char) = self.peek(0) {
            if char == '"' && (1..=hashes).all(|ahead| self.peek(ahead) == Some('#')) {
                return self.keep(1 + hashes);
            }
            self.blank(1);
        }
    }

    /// A character literal or a lifetime.
    fn quote(&mut self) {
        match (self.peek(1), self.peek(2)) {
            (Some('\\'), _) => {
                self.keep(1);
                self.blank(2);
                while self.peek(0).is_some_and(|char| char != '\'') {
                    self.blank(1);
                }
                self.keep(1);
            }
            (Some(_), Some('\'')) => {
                self.keep(1);
                self.blank(1);
                self.keep(1);
            }
            (Some(_) | None, _) => self.keep(1),
        }
    }
}

/// The line ranges (from 0) of items under `#[cfg(test)]`, and the names of modules in other files.
fn test_items(code: &str) -> (Vec<std::ops::Range<usize>>, Vec<String>) {
    let mut ranges = Vec::new();
    let mut modules = Vec::new();
    for attribute in ["#[cfg(test)]", "#[cfg(all(test,"] {
        for (start, _) in code.match_indices(attribute) {
            let rest = &code[start..];
            let body = rest.find(']').map_or(rest, |end| &rest[end + 1..]);
            let body_start = start + (rest.len() - body.len());
            let Some(offset) = body.find(['{', ';']) else { continue };
            let end = if body[offset..].starts_with('{') {
                body_start + offset + matching_brace(&body[offset..])
            } else {
                modules.extend(module_name(&body[..offset]));
                body_start + offset
            };
            let line_of = |at: usize| code[..at].matches('\n').count();
            ranges.push(line_of(start)..line_of(end) + 1);
        }
    }
    (ranges, modules)
}

/// The offset of the brace that closes the one at the start of `code`, or the end.
fn matching_brace(code: &str) -> usize {
    let mut depth = 0usize;
    for (at, char) in code.char_indices() {
        match char {
            '{' => depth += 1,
            '}' => {
                depth -= 1;
                if depth == 0 {
                    return at;
                }
            }
            _ => {}
        }
    }
    code.len()
}

/// The name in `pub(crate) mod name`.
fn module_name(item: &str) -> Option<String> {
    let mut words = item.split_whitespace();
    words.find(|word| *word == "mod")?;
    words.next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> String {
        take_apart(text).lines.iter().map(|line| line.code.trim().to_owned()).collect::<Vec<_>>().join("|")
    }

    #[test]
    fn comments_and_literals_are_blank_and_lines_stay() {
        assert_eq!(code("a // panic!\nb"), "a|b");
        assert_eq!(code("a /* x /* y */ panic! */ b"), "a                        b");
        assert_eq!(code("f(\"a \\\" panic! \", x)"), "f(\"            \", x)");
        assert_eq!(code("f(r#\"a \" b\"#, x)"), "f(r#\"     \"#, x)");
        assert_eq!(code("f(br\"a\\\", x)"), "f(br\"  \", x)");
        assert_eq!(code("f('\"', 'a, '\\'', b'{')"), "f(' ', 'a, '  ', b' ')");
        assert_eq!(code("\"two\nlines\" end"), "\"|\" end");
        assert_eq!(code("r#type + for_r\"x\""), "r#type + for_r\" \"");
    }

    #[test]
    fn items_for_tests_are_marked() {
        let text = take_apart("fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() { '}' }\n}\nfn c() {}\n");
        let marks: Vec<bool> = text.lines.iter().map(|line| line.test).collect();
        assert_eq!(marks, [false, true, true, true, true, false]);
        assert!(text.test_modules.is_empty());
    }

    #[test]
    fn modules_for_tests_in_other_files_are_named() {
        let text = take_apart("#[cfg(test)]\n#[path = \"x.rs\"]\npub(crate) mod model;\nmod real;\n");
        assert_eq!(text.test_modules, ["model"]);
        assert!(!text.lines[3].test);
    }

    #[test]
    fn words_have_ends() {
        assert!(has_word("use openraft::Raft;", "openraft"));
        assert!(!has_word("use openraft_rt::X;", "openraft"));
        assert!(has_word("x.unwrap()", ".unwrap()"));
        assert!(!has_word("debug_panic!()", "panic!"));
    }
}
