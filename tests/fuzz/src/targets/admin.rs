//! Requests of the admin API.

use std::sync::LazyLock;

use loudou_filter::fuzzing::LeftState;
use loudou_limiter::Nanos;

use super::{Bounds, Target, world};

pub(super) const ADMIN: Target = Target {
    name: "admin",
    about: "calls of the admin API: method, path, query, headers, body",
    run,
    seeds,
    words: &[
        b"\x1e",
        b"GET ",
        b"PUT ",
        b"POST ",
        b"DELETE ",
        b"HEAD ",
        b"/v1/status",
        b"/v1/rules",
        b"/v1/rules/by-header",
        b"/v1/overrides/by-header/",
        b"/v1/buckets/by-header/alice:GET",
        b"/reset",
        b"/ban",
        b"/unban",
        b"/v1/buckets?",
        b"/v1/top?by=admitted",
        b"/v1/explain",
        b"/v1/events?after=",
        b"/v1/export",
        b"&rule=by-header",
        b"&key=",
        b"&search=",
        b"&state=refusing",
        b"&cursor=",
        b"&limit=",
        b"&for=10m",
        b"&reason=",
        b"&dry_run=true",
        b"&carry=reset",
        b"\nauthorization=Bearer edit",
        b"\nauthorization=Bearer view",
        b"\nif-match=*",
        b"\nif-match=\"0707070707070707-1\"",
        b"\ncontent-type=application/json",
        b"\nhost=127.0.0.1",
        b"\norigin=http://x",
        b"\n@source.address=127.0.0.1:1",
        b"\n\n{\"limits\":[{\"algorithm\":\"funnel\",\"capacity\":1,\"rate\":\"1/s\"}]}",
        b"\"overrides\":{\"alice*\":{\"scale\":2}}",
        b"\"mode\":\"shadow\"",
        b"\"unlimited\"",
        b"\"banned\"",
        b"{\"scale\":10}",
        b"{\"method\":\"GET\",\"path\":\"/reply/1\",\"headers\":{\"x-user-id\":\"alice\"}}",
        b"\\u0000",
        b"%00",
        b"%0a",
        b"[[[[",
    ],
    longest: 70 * 1024,
    bounds: Bounds {
        us: 60_000,
        ns_per_byte: 4_000,
        kib: 16 * 1024,
        bytes_per_byte: 400,
    },
};

fn run(input: &[u8]) {
    static LEFT: LazyLock<LeftState> = LazyLock::new(|| {
        // Somebody has buckets.
        let mut world = world::new();
        let request = b"GET /reply/1\nx-user-id=alice\ncookie=session=1; plan=free";
        for stream in 1..4 {
            world::set(&world, request);
            world.decide(stream);
        }
        world.leave()
    });
    let mut world = world::over(&LEFT);
    for request in world::requests(input) {
        let has_body = world::set(&world, request);
        let reply = world.call(has_body);
        let values = reply.headers.iter().map(|(_, value)| value.as_str());
        world::check_texts(values);
        world::check_texts([reply.details.as_str()]);
        assert!((200..=599).contains(&reply.status), "{}", reply.status);
        if !reply.body.is_empty() {
            let body = serde_json::from_slice::<serde_json::Value>(&reply.body);
            assert!(body.is_ok(), "not JSON: {:?}", reply.body);
        }
        world.pass(Nanos::from_millis(700));
        // Requests are limited by what the call left.
        world::set(
            &world,
            b"GET /reply/1?q=1\nx-user-id=alice\ncookie=session=1; plan=free",
        );
        world.decide(1);
    }
    world::check_texts(world.texts().iter().map(String::as_str));
}

fn seeds() -> Vec<Vec<u8>> {
    let edit =
        "authorization=Bearer edit\nhost=127.0.0.1:9911\nif-match=*\ncontent-type=application/json";
    let view = "authorization=Bearer view\nhost=127.0.0.1:9911";
    let limits = r#"{"limits":[{"algorithm":"funnel","capacity":9,"rate":"2/s"}],"overrides":{"a*":{"scale":2}}}"#;
    let mut seeds: Vec<String> = [
        "/v1/status",
        "/v1/rules",
        "/v1/rules/by-header",
        "/v1/buckets?limit=3&state=refusing&key=a",
        "/v1/buckets/by-header/alice%3AGET",
        "/v1/top?by=refused&limit=3&rule=by-header",
        "/v1/events?after=0707070707070707-0",
        "/v1/export",
    ]
    .iter()
    .map(|path| format!("GET {path}\n{view}"))
    .collect();
    seeds.extend([
        format!("POST /v1/explain\n{view}\ncontent-type=application/json\n\n{{\"path\":\"/reply/1\",\"headers\":{{\"x-user-id\":\"alice\"}}}}"),
        format!("PUT /v1/rules/by-header?carry=keep&for=10s&reason=r\n{edit}\n\n{limits}"),
        format!("DELETE /v1/rules/by-header?dry_run=true\n{edit}"),
        format!("PUT /v1/overrides/by-header/alice%3A*?for=1m\n{edit}\n\n{{\"scale\":3}}"),
        format!("DELETE /v1/overrides/by-header/alice%3A*\n{edit}"),
        format!("POST /v1/buckets/by-header/alice%3AGET/ban?for=1m&reason=x\n{edit}"),
        format!("POST /v1/buckets/by-header/alice%3AGET/unban\n{edit}"),
        format!("POST /v1/buckets/by-header/alice%3AGET/reset\n{edit}"),
    ]);
    seeds.push(seeds.join("\x1e"));
    seeds.into_iter().map(String::into_bytes).collect()
}
