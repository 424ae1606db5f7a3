//! Rule files: as `loudou check` reads them, and as the filter gets them from Envoy.

use loudou::cli::fuzzing::{loudou, unsafe_character};
use loudou_filter::plugin;
use serde_json::Value;

use super::{Bounds, Target};

const RULES: &[u8] = include_bytes!("../rules.json");

pub(super) const RULE_FILE: Target = Target {
    name: "rule-file",
    about: "rule files, Envoy files and manifests, JSON and YAML, as `loudou check` reads them",
    run: check,
    seeds: texts,
    words: &[
        b"\n  ",
        b"- ",
        b": ",
        b"&a ",
        b"*a",
        b"!!str ",
        b"|\n",
        b">\n",
        b"---\n",
        b"\"\\u0000\"",
        b"rules:",
        b"name:",
        b"match:",
        b"key:",
        b"limits:",
        b"algorithm:",
        b"capacity:",
        b"rate:",
        b"window:",
        b"regex:",
        b"overrides:",
        b"version: 1",
        b"30/60s",
        b"366d",
        b"1e9",
        b"null",
        b"funnel",
        b"token_bucket",
        b"sliding_window",
        b"concurrency",
        b"smooth_warmup",
        b"leaky_queue",
        b"[",
        b"{",
        b"%YAML 1.2",
        b"apiVersion: ",
        b"kind: List\nitems:\n",
        b"kind: WasmPlugin\n",
        b"match: [{ mode: SERVER }]",
        b"sha256: ",
        b"<<:",
        b"?",
        b"\xef\xbb\xbf",
        b"\t",
    ],
    longest: 64 * 1024,
    bounds: Bounds {
        us: 60_000,
        ns_per_byte: 8_000,
        kib: 16 * 1024,
        bytes_per_byte: 2_000,
    },
};

pub(super) const STRUCT: Target = Target {
    name: "struct",
    about: "plugin configurations as Envoy passes them: a Struct in protobuf's encoding, or JSON",
    run: configure,
    seeds: structs,
    words: &[
        b"\x0a\x05rules",
        b"\x12",
        b"\x1a",
        b"\x2a",
        b"\x32",
        b"\x11\0\0\0\0\0\0\xf8\x7f",
        b"\x20\x01",
        b"\x08\0",
        b"version",
        b"limits",
        b"{\"",
        b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    ],
    longest: 64 * 1024,
    bounds: Bounds {
        us: 20_000,
        ns_per_byte: 4_000,
        kib: 8 * 1024,
        bytes_per_byte: 1_000,
    },
};

fn check(input: &[u8]) {
    for arguments in [&["check", "-"][..], &["check", "-", "--output", "json"]] {
        let (code, printed) = loudou(arguments, input);
        assert!(code <= 1, "exit code {code}");
        let bad = unsafe_character(&printed);
        assert!(bad.is_none(), "prints {bad:?}: {printed:?}");
    }
    configure(input);
}

fn configure(input: &[u8]) {
    let problems = match plugin::read(input) {
        Ok((_, problems)) | Err(problems) => problems,
    };
    for line in problems {
        let bad = line.chars().find(|c| c.is_control());
        assert!(bad.is_none(), "a control character in {line:?}");
    }
}

fn texts() -> Vec<Vec<u8>> {
    const YAML: &[u8] = b"version: 1\nstore:\n  buckets: 64\nrules:\n- name: a\n  match:\n    path: { prefix: /x }\n    \
        not: { methods: [GET] }\n  key: [source, { header: x-user-id }]\n  limits:\n  - algorithm: token_bucket\n    \
        capacity: 5\n    rate: 1/s\n    refill: interval\n  - { name: w, algorithm: smooth_warmup, rate: 5/s, warmup: 3s }\n  \
        mode: shadow\n  overrides:\n    alice: { scale: 2.5 }\n";
    const ENVOY: &[u8] = b"static_resources:\n  listeners:\n  - filter_chains:\n    - filters:\n      - typed_config:\n          \
        http_filters:\n          - name: loudou\n            typed_config:\n              config:\n                \
        configuration:\n                  \"@type\": type.googleapis.com/google.protobuf.StringValue\n                  \
        value: |\n                    {\"version\":1,\"rules\":[]}\n";
    const PLUGIN: &[u8] = b"apiVersion: extensions.istio.io/v1alpha1\nkind: WasmPlugin\nmetadata: { name: loudou }\nspec:\n  \
        selector: { matchLabels: { app: a } }\n  url: oci://x/loudou:1\n  match: [{ mode: CLIENT }]\n  pluginConfig:\n    \
        version: 1\n    rules: []\n---\napiVersion: gateway.envoyproxy.io/v1alpha1\nkind: EnvoyExtensionPolicy\nmetadata: \
        { name: b }\nspec:\n  wasm:\n  - code: { type: HTTP, http: { url: \"http://x/loudou\" } }\n    config: { version: 1, \
        rules: [] }\n";
    const PATCH: &[u8] = b"apiVersion: networking.istio.io/v1alpha3\nkind: EnvoyFilter\nmetadata: { name: a }\nspec:\n  \
        configPatches:\n  - applyTo: EXTENSION_CONFIG\n    patch:\n      value:\n        name: loudou-admin\n        \
        typed_config:\n          \"@type\": type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm\n          \
        config:\n            vm_config: { vm_id: a, code: { remote: { sha256: nil } } }\n            configuration: \
        { \"@type\": a/google.protobuf.StringValue, value: '{\"admin\":{\"role\":\"admin\"}}' }\n";
    vec![
        RULES.to_vec(),
        YAML.to_vec(),
        ENVOY.to_vec(),
        PLUGIN.to_vec(),
        PATCH.to_vec(),
    ]
}

fn structs() -> Vec<Vec<u8>> {
    let document = serde_json::from_slice(RULES).unwrap_or_default();
    vec![fields(&document), RULES.to_vec()]
}

/// The fields of an object in protobuf's encoding of a Struct.
fn fields(object: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, value) in object.as_object().into_iter().flatten() {
        let mut entry = tagged(0x0a, name.as_bytes());
        entry.extend(tagged(0x12, &encoded(value)));
        bytes.extend(tagged(0x0a, &entry));
    }
    bytes
}

fn encoded(value: &Value) -> Vec<u8> {
    match value {
        Value::Null => vec![0x08, 0],
        Value::Bool(bit) => vec![0x20, u8::from(*bit)],
        Value::Number(number) => {
            let double = number.as_f64().unwrap_or_default();
            [&[0x11], double.to_le_bytes().as_slice()].concat()
        }
        Value::String(text) => tagged(0x1a, text.as_bytes()),
        Value::Object(_) => tagged(0x2a, &fields(value)),
        Value::Array(items) => {
            let items = items.iter().flat_map(|item| tagged(0x0a, &encoded(item)));
            tagged(0x32, &items.collect::<Vec<_>>())
        }
    }
}

/// A field of bytes, with its length before it.
fn tagged(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![tag];
    let mut length = content.len();
    while let (low, high @ 1..) = (length & 0x7f, length >> 7) {
        bytes.push(u8::try_from(low).unwrap_or_default() | 0x80);
        length = high;
    }
    bytes.push(u8::try_from(length).unwrap_or_default());
    bytes.extend(content);
    bytes
}
