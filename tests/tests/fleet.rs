//! One limit across many Envoys: real Envoys, a real relay, a real Valkey.
mod bound;
mod changes;
mod exact;
mod faults;
mod outage;
mod partial;
mod starts;
mod terminal;
mod trial;
mod upgrade;
mod versions;
