//! Fleet-wide limits across many real Envoys, with a real relay and a real Valkey.
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
