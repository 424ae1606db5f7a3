//! Requests of clients: header values, cookies, query strings, paths, addresses.

use loudou_limiter::Nanos;

use super::{Bounds, Target, world};

pub(super) const REQUEST: Target = Target {
    name: "request",
    about: "requests on the data path: headers, cookies, queries, paths, properties",
    run,
    seeds,
    words: &[
        b"\x1e",
        b"\nx-user-id=",
        b"\ncookie=",
        b"session=",
        b"plan=free",
        b"; ",
        b"\n:authority=",
        b"api_key=",
        b"&q=",
        b"?",
        b"%2f",
        b"%00",
        b"%",
        b"+",
        b"/../",
        b"//",
        b";",
        b"\ncontent-length=",
        b"\nx-cost=",
        b"\n@source.address=10.0.0.1:80",
        b"\n@source.address=[2001:db8::1]:80",
        b"\n@xds.route_name=",
        b"\n@metadata.jwt.sub=",
        b"\ncontent-type=application/grpc",
        b"OPTIONS",
        b"\xe2\x80\xae",
        b"\x1b[2J",
    ],
    longest: 64 * 1024,
    bounds: Bounds {
        us: 20_000,
        ns_per_byte: 3_000,
        kib: 8 * 1024,
        bytes_per_byte: 400,
    },
};

fn run(input: &[u8]) {
    let mut world = world::new();
    for (stream, request) in (1..).zip(world::requests(input)) {
        world::set(&world, request);
        if let Some(reply) = world.decide(stream) {
            let values = reply.headers.iter().map(|(_, value)| value.as_str());
            world::check_texts(values);
            world::check_texts([reply.details.as_str()]);
            assert!((400..=599).contains(&reply.status), "{}", reply.status);
        }
        world.pass(Nanos::from_millis(700));
    }
    world::check_texts(world.texts().iter().map(String::as_str));
}

fn seeds() -> Vec<Vec<u8>> {
    const FULL: &[u8] = b"POST /reply/7?q=1&api_key=vip%207\n:authority=a.example.com:80\n\
        cookie=a=b; session=\"s1\"; plan=free\nx-user-id=alice\nx-cost=2\ncontent-length=2500\n\
        @source.address=10.1.2.3:4567\n@xds.route_name=r\n@metadata.jwt.sub=alice";
    const GRPC: &[u8] = b"POST /pkg.Service/Call\ncontent-type=application/grpc\nx-user-id=bob\n\
        @source.address=[2001:db8::7]:1";
    vec![
        b"GET /".to_vec(),
        FULL.to_vec(),
        [FULL, FULL, FULL, FULL].join(&0x1e),
        [GRPC, GRPC, GRPC, GRPC, GRPC].join(&0x1e),
        b"GET /x?q=&api_key=bad".to_vec(),
    ]
}
