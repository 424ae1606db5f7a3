//! Creates responses to clients: rate-limit headers and responses to refused requests.

pub(crate) mod explain;
mod grpc;
mod headers;
mod refusal;
mod text;
mod wait;

pub(crate) use headers::of_admitted;
pub(crate) use refusal::Refusal;
