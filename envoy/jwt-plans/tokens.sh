#!/bin/sh
# Makes a key pair, and with it the tokens of this example: prints the key for `local_jwks` and writes
# alice.jwt, bob.jwt and carol.jwt into the folder that it is given. Nobody keeps the private key, so new
# tokens take a new key. Needs OpenSSL 3.
set -eu
cd "$1"
key=$(mktemp)
trap 'rm -f "$key"' EXIT
openssl genpkey -algorithm ed25519 -out "$key"

base64url() { openssl base64 -A | tr '+/' '-_' | tr -d '='; }

token() { # NAME CLAIMS
    head=$(printf '{"alg":"EdDSA","kid":"example"}' | base64url)
    # 4102444800 is the first second of 2100.
    body=$(printf '{"iss":"https://login.example.com","exp":4102444800,"sub":"%s"%s}' "$1" "$2" | base64url)
    printf '%s.%s' "$head" "$body" > "$1.jwt"
    signature=$(openssl pkeyutl -sign -rawin -inkey "$key" -in "$1.jwt" | base64url)
    printf '.%s\n' "$signature" >> "$1.jwt"
}

token alice ',"tenant":1042,"roles":["reader"]'
token bob ',"tenant":77,"daily":5000,"roles":["reader","pro"]'
token carol ',"tenant":1042'

# The last 32 bytes of the public key in DER are the key itself.
x=$(openssl pkey -in "$key" -pubout -outform DER | tail -c 32 | base64url)
printf '{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"example","alg":"EdDSA","x":"%s"}]}\n' "$x"
