#!/usr/bin/env bash
# Builds quickjs.wasm: the JavaScript engine as a WebAssembly file that starts from a snapshot.
#
#   build.sh [OUT.wasm]     default: quickjs.wasm beside this script, with quickjs.wasm.sha256
#
# In: the engine's C sources of the crate rquickjs-sys at the version and checksum below (cargo downloads them), main.c and
# closed.c, prelude/*.js. Needs Debian's clang-14, lld-14, wasi-libc, libclang-rt-14-dev-wasm32, and cargo.
# Out: the same bytes every time; a test compares.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=${1:-$here/quickjs.wasm}
version=0.14.0
checksum=cee271d0eeba64f0915b846cb7ae02e16faf3dfdffdca91731101d9d30fe3423
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The crate file itself, checked, not the unpacked copy that cargo keeps.
crate=$(find "${CARGO_HOME:-$HOME/.cargo}/registry/cache" -name "rquickjs-sys-$version.crate" 2>/dev/null | head -n 1)
if [ -z "$crate" ]; then
    mkdir "$work/fetch" "$work/fetch/src"
    touch "$work/fetch/src/lib.rs"
    printf '[package]\nname = "fetch"\nedition = "2024"\n[workspace]\n[dependencies]\nrquickjs-sys = { version = "=%s", default-features = false }\n' \
        "$version" >"$work/fetch/Cargo.toml"
    cargo fetch --quiet --manifest-path "$work/fetch/Cargo.toml"
    crate=$(find "${CARGO_HOME:-$HOME/.cargo}/registry/cache" -name "rquickjs-sys-$version.crate" | head -n 1)
fi
echo "$checksum  $crate" | sha256sum --check --quiet
tar --extract --file "$crate" --directory "$work"
engine=$work/rquickjs-sys-$version/quickjs

cat "$here"/prelude/*.js | od -An -v -tx1 | sed 's/ \(..\)/0x\1,/g; $ s/,$//' >"$work/prelude.inc"
flags=(--target=wasm32-wasi -O2 -DNDEBUG -D_GNU_SOURCE -I"$engine" -I"$work" -ffile-prefix-map="$work"=. -w)
objects=()
for source in "$engine"/{libregexp,libunicode,dtoa}.c "$here"/{engine,main,closed}.c; do
    object=$work/$(basename "$source" .c).o
    clang-14 "${flags[@]}" -c "$source" -o "$object"
    objects+=("$object")
done
# The stack comes first in memory: running over its end is a trap, not another variable's new value.
clang-14 --target=wasm32-wasi -mexec-model=reactor "${objects[@]}" -o "$work/linked.wasm" \
    -Wl,-z,stack-size=1048576 -Wl,--stack-first -Wl,--strip-all
cargo run --quiet --locked --manifest-path "$here/../../../../Cargo.toml" --example snapshot -- "$work/linked.wasm" "$out"
(cd "$(dirname "$out")" && sha256sum "$(basename "$out")" >"$(basename "$out").sha256")
