//! Decides how the module is linked.

use std::env;

fn main() {
    // The exception handling of `libgcc_s.so` is linked into the module, because Envoy's distroless
    // image does not have this library.
    println!("cargo::rustc-link-lib=static:-bundle=gcc_eh");
    // Lets unit tests link without Envoy, whose functions they do not call. The linker of a release
    // does not know this option.
    if env::var_os("RUSTC_LINKER").is_none() {
        println!("cargo::rustc-link-arg=-Wl,--unresolved-symbols=ignore-all");
    }
    println!("cargo::rerun-if-changed=build.rs");
}
