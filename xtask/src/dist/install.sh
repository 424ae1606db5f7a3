#!/bin/sh
# Installs the command `loudou` of a release, after a check of its SHA-256. It needs no root.
#
#   LOUDOU_VERSION   the version, instead of @VERSION@
#   LOUDOU_PREFIX    the folder that gets bin/ and share/, instead of ~/.local
#   LOUDOU_RELEASES  the address of the releases, such as a mirror
set -eu

fail() {
    printf 'install.sh: %s\n' "$1" >&2
    exit 1
}

# A function, so that a download that breaks off runs nothing.
main() {
    version=${LOUDOU_VERSION:-@VERSION@}
    releases=${LOUDOU_RELEASES:-@RELEASES@}
    prefix=${LOUDOU_PREFIX:-$HOME/.local}
    [ "$(uname -s)" = Linux ] || fail "there are programs for Linux only, and this is $(uname -s)"
    case $(uname -m) in
        x86_64 | amd64) triple=x86_64-unknown-linux-musl ;;
        aarch64 | arm64) triple=aarch64-unknown-linux-musl ;;
        *) fail "there is no program for the processor $(uname -m), only for x86_64 and aarch64" ;;
    esac
    for tool in curl sha256sum tar; do
        command -v "$tool" > /dev/null || fail "$tool is missing: install it with your package manager"
    done
    name=loudou-$version-$triple
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
    for file in SHA256SUMS "$name.tar.gz"; do
        curl -fsSL -o "$folder/$file" "$releases/v$version/$file" ||
            fail "cannot download $releases/v$version/$file"
    done
    sum=$(grep "  $name.tar.gz\$" "$folder/SHA256SUMS") || fail "SHA256SUMS does not name $name.tar.gz"
    (cd "$folder" && printf '%s\n' "$sum" | sha256sum -c - > /dev/null 2>&1) ||
        fail "$name.tar.gz has another checksum than SHA256SUMS says, so it is not installed"
    tar -xzf "$folder/$name.tar.gz" -C "$folder"
    mkdir -p "$prefix/bin"
    for program in "$folder/$name/bin"/*; do
        # A program that runs can be replaced, and not be written to.
        cp "$program" "$prefix/bin/.loudou.new"
        mv -f "$prefix/bin/.loudou.new" "$prefix/bin/${program##*/}"
    done
    cp -R "$folder/$name/share" "$prefix/"
    echo "installed $prefix/bin/loudou"
    case :$PATH: in
        *:"$prefix/bin":*) ;;
        *) echo "add $prefix/bin to PATH to run it as loudou" ;;
    esac
}

main
