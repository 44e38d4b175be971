//! A large body has one holder, and no holder lacks its body.

use std::collections::BTreeSet;

use super::Image;

pub(super) fn check(image: &Image) -> Result<(), String> {
    let mut held = BTreeSet::new();
    for (at, (_, message)) in &image.messages {
        if message.body != 0 {
            if !held.insert(message.body) {
                return Err(format!("the body {} of message {at:?} has another holder", message.body));
            }
            if !image.bodies.contains_key(&message.body) {
                return Err(format!("the body {} of message {at:?} is gone", message.body));
            }
        }
    }
    match image.bodies.keys().find(|body| !held.contains(body)) {
        Some(body) => Err(format!("the body {body} has no holder")),
        None => Ok(()),
    }
}
