//! What clients see: rate-limit headers, and the answer to a refused request.

pub(crate) mod explain;
mod grpc;
mod headers;
mod jitter;
mod refusal;

pub(crate) use headers::RateLimitHeaders;
pub(crate) use refusal::Refusal;
