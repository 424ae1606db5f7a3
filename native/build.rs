//! Lets unit tests link without Envoy, whose functions they do not call.

fn main() {
    println!("cargo::rustc-link-arg=-Wl,--unresolved-symbols=ignore-all");
}
