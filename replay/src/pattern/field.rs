//! The meanings of columns.

/// The meaning of a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Field {
    Time,
    /// `METHOD PATH PROTOCOL`.
    Request,
    Method,
    Path,
    Query,
    Host,
    /// The address of the client, with or without a port.
    Source,
    /// The same in a built-in format, which shows whether it is one: an address, or the name of a host, or `-`.
    Client,
    /// The same, and never `-`: what a virtual host with a port is followed by.
    KnownClient,
    /// An address, which a virtual host without a port is followed by.
    ClientAddress,
    /// What identd says of the client: `-`, or else one word.
    Ident,
    /// The client's user, which may be anything after an address and `-`.
    User,
    /// A virtual host without a port: no address, unless the log is known to have one.
    VirtualHost,
    Route,
    Status,
    /// The time from the request's start to its end, in these units; several columns add up.
    Duration(Unit),
    /// The bytes of the request's body.
    Received,
    Header(Box<str>),
    Cookie(Box<str>),
    /// The cause of the answer.
    Cause,
    /// The filter's decisions, which may contain spaces and commas.
    Decisions,
    /// The port after a host.
    Port,
    /// A number of bytes, or `-`.
    Digits,
    Other,
}

/// The unit of a duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    Milliseconds,
    Seconds,
}
