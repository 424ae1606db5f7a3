//! Values of shared data, as another program or a damaged process could leave them.

use std::sync::LazyLock;

use loudou_filter::fuzzing::{LeftState, World};
use loudou_limiter::Nanos;
use loudou_store::page::{Page, SLOTS};

use super::{Bounds, Target, world};

pub(super) const PAGE: Target = Target {
    name: "page",
    about: "a page of buckets",
    run: page,
    seeds: pages,
    words: &[],
    longest: 16 * 1024,
    bounds: Bounds {
        us: 5_000,
        ns_per_byte: 500,
        kib: 512,
        bytes_per_byte: 64,
    },
};

pub(super) const SHARED: Target = Target {
    name: "shared-data",
    about: "any value in shared data: the first byte chooses it. Pages, names, the record, events, counts",
    run: shared,
    seeds: values,
    words: &[
        b"\"generation\":",
        b"\"rules\":[",
        b"\"base\":",
        b"\"edit\":",
        b"\"history\":",
        b"\"gone\":",
        b"null",
        b"\"expires_at_ns\":",
        b"\"own\":{",
        b"[[[[[[",
    ],
    longest: 64 * 1024,
    bounds: Bounds {
        us: 60_000,
        ns_per_byte: 6_000,
        kib: 16 * 1024,
        bytes_per_byte: 1_000,
    },
};

fn page(input: &[u8]) {
    let Ok(mut page) = Page::decode(input) else {
        return;
    };
    let mut bytes = Vec::new();
    page.encode(&mut bytes);
    let again = Page::decode(&bytes);
    assert!(again.is_ok_and(|again| again == page), "reads differently");
    for now in [Nanos::ZERO, Nanos::from_secs(1_000), Nanos::MAX] {
        if page.make_room(7, now).is_ok() {
            assert!(page.slots.len() < SLOTS, "no room");
        }
    }
}

/// The pages of a worker that has served some requests.
fn pages() -> Vec<Vec<u8>> {
    let values = used().shared().into_iter();
    values.filter(|value| Page::decode(value).is_ok()).collect()
}

/// A worker over the shared data of one that has served requests and edits.
fn used() -> World {
    static LEFT: LazyLock<LeftState> = LazyLock::new(|| busy().leave());
    world::over(&LEFT)
}

fn busy() -> World {
    const EDITS: [&[u8]; 3] = [
        b"PUT /v1/rules/by-query?for=1h\nauthorization=Bearer edit\nhost=127.0.0.1\nif-match=*\ncontent-type=application/json\n\n\
            {\"limits\":[{\"algorithm\":\"token_bucket\",\"capacity\":9,\"rate\":\"2/s\"}]}",
        b"PUT /v1/overrides/by-query/vip?for=1h\nauthorization=Bearer edit\nhost=127.0.0.1\nif-match=*\ncontent-type=application/json\n\n\
            {\"scale\":3}",
        b"POST /v1/buckets/by-cookie/2%3Aweb/ban?for=1h\nauthorization=Bearer edit\nhost=127.0.0.1",
    ];
    let mut world = world::new();
    for stream in 1..24 {
        let user = stream % 7;
        let request = format!(
            "GET /reply/{user}?q=1&api_key=k{user}\n:authority=a.example.com\n@source.address=10.0.0.{user}:1\n\
             cookie=session={user}; plan=free\nx-user-id=u{user}\n@xds.route_name=r\n\
             @metadata.jwt.sub=s{user}"
        );
        world::set(&world, request.as_bytes());
        world.decide(stream);
        world.pass(Nanos::from_millis(50));
    }
    for edit in EDITS {
        let has_body = world::set(&world, edit);
        world.call(has_body);
    }
    world
}

fn shared(input: &[u8]) {
    let (choice, value) = input.split_first().unwrap_or((&0, &[]));
    let mut world = used();
    world.damage(usize::from(*choice), value);
    let calls: [&[u8]; 8] = [
        b"GET /reply/1?q=1&api_key=k1\n:authority=a.example.com\n@source.address=10.0.0.1:1\n\
            cookie=session=1; plan=free\nx-user-id=u1\n@xds.route_name=r",
        b"GET /v1/status\nauthorization=Bearer view\nhost=127.0.0.1",
        b"GET /v1/rules\nauthorization=Bearer view\nhost=127.0.0.1",
        b"GET /v1/buckets?limit=500\nauthorization=Bearer view\nhost=127.0.0.1",
        b"GET /v1/top\nauthorization=Bearer view\nhost=127.0.0.1",
        b"GET /v1/events\nauthorization=Bearer view\nhost=127.0.0.1",
        b"POST /v1/buckets/by-cookie/1%3Aweb/reset\nauthorization=Bearer edit\nhost=127.0.0.1",
        b"DELETE /v1/rules/by-query\nauthorization=Bearer edit\nhost=127.0.0.1\nif-match=*",
    ];
    for (stream, call) in (1..).zip(calls) {
        let has_body = world::set(&world, call);
        if stream == 1 {
            for stream in 1..8 {
                world.decide(stream);
                world.pass(Nanos::from_secs(1));
            }
        } else {
            let reply = world.call(has_body);
            let body = serde_json::from_slice::<serde_json::Value>(&reply.body);
            assert!(body.is_ok(), "not JSON: {:?}", reply.body);
        }
    }
    world.pass(Nanos::from_secs(7_200));
    world::check_texts(world.texts().iter().map(String::as_str));
}

fn values() -> Vec<Vec<u8>> {
    let values = used().shared();
    let numbered = (0_u8..=u8::MAX).zip(values);
    let seeds = numbered.map(|(choice, value)| [&[choice], value.as_slice()].concat());
    seeds.collect()
}
