//! The core of the terminal app, independent of any terminal. It defines the state, the input
//! messages, and the effects that the app requests.
//!
//! ```text
//! input, poller, worker, signals → Msg → update(&mut State, Msg, now) → Vec<Effect> → threads
//!                                              State → ui::view → frame
//! ```
//!
//! All functions here depend only on their arguments: they do no I/O and never read a clock. Tests
//! drive the app with strings of keys, such as `jj<ret>`. Each screen is implemented in one file
//! under `screens/`, which contains its keys, its behaviour and its drawing code. The `ui` module
//! draws the frame around the screen and the dialogs on top of it.

pub(crate) mod again;
pub(crate) mod answers;
pub(crate) mod asking;
pub(crate) mod broadcast;
pub(crate) mod browse;
pub(crate) mod columns;
pub(crate) mod command;
pub(crate) mod demand;
pub(crate) mod effects;
pub(crate) mod event_lines;
pub(crate) mod explain;
pub(crate) mod feed;
pub(crate) mod filter;
pub(crate) mod findings;
pub(crate) mod form;
pub(crate) mod history;
pub(crate) mod ingest;
pub(crate) mod keys;
pub(crate) mod layout;
pub(crate) mod link;
pub(crate) mod merged;
pub(crate) mod modal;
pub(crate) mod motion;
pub(crate) mod mouse;
pub(crate) mod msg;
pub(crate) mod of_key;
pub(crate) mod palette;
pub(crate) mod polls;
pub(crate) mod press;
pub(crate) mod previewed;
pub(crate) mod question;
pub(crate) mod rows;
pub(crate) mod running;
pub(crate) mod screen;
pub(crate) mod screens;
pub(crate) mod sheet;
pub(crate) mod state;
pub(crate) mod table;
pub(crate) mod targets;
pub(crate) mod text_field;
pub(crate) mod undoing;
pub(crate) mod update;
pub(crate) mod watched;

#[cfg(test)]
pub(crate) mod fixture;
#[cfg(test)]
pub(crate) mod tests;
