"""What HTTP clients of PyPI make of Loudou's headers, against a real Envoy: python3 clients.py URL

The rule has a capacity of 2 and gives one back each second.
"""

import sys

import http_sf
import urllib3

url = sys.argv[1]
user = {"x-user-id": "python"}
pool = urllib3.PoolManager(retries=False)


def of(answer, name):
    """A header, read by a parser of RFC 9651."""
    return http_sf.parse(answer.headers[name].encode(), tltype="list")


for remaining, status in [(1, 200), (0, 200), (0, 429)]:
    answer = pool.request("GET", url, headers=user)
    assert answer.status == status, answer.status
    [(policy, numbers)] = of(answer, "ratelimit-policy")
    assert (policy, numbers["q"], numbers["w"]) == ("r.l", 2, 2), (policy, numbers)
    [(policy, numbers)] = of(answer, "ratelimit")
    assert (policy, numbers["r"]) == ("r.l", remaining), (policy, numbers)
    assert 0 <= numbers["t"] <= 1, numbers
    # The same numbers under the names of draft 7 and of the legacy headers.
    names = {"limit": 2, "remaining": remaining, "reset": numbers["t"]}
    for name, number in names.items():
        assert numbers[name] == number, (name, numbers)
        assert answer.headers[f"x-ratelimit-{name}"] == str(number), name
print("http_sf (RFC 9651): ok")

# It waits for Retry-After, and one try more is enough.
retry = urllib3.Retry(total=1, status_forcelist=[429], respect_retry_after_header=True)
answer = pool.request("GET", url, headers=user, retries=retry)
assert answer.status == 200, answer.status
print("urllib3: ok")
