//! For each check histories by hand: that it must pass, and that it must flag, in words.

mod each;
mod groups;
mod hand;
mod whole;
