"""What grpcio makes of a refused call, against a real Envoy before a server of its own: python3 grpc_retry.py

It prints the port of the server, and reads the address of Envoy. The rule `calls` has a capacity of 1 and gives it back
after some seconds; a call of `Never` costs more than its rule has.
"""

import json
import sys
from concurrent import futures

import grpc
from google.rpc import error_details_pb2
from grpc_status import rpc_status

SERVICE = "reply.v1.Replies"
ATTEMPTS = "grpc-previous-rpc-attempts"
PUSHBACK = "grpc-retry-pushback-ms"
# Without a pushback the second try, which is the last one, would come at once and in vain.
POLICY = {
    "maxAttempts": 2,
    "initialBackoff": "0.001s",
    "maxBackoff": "0.001s",
    "backoffMultiplier": 1,
    "retryableStatusCodes": ["RESOURCE_EXHAUSTED"],
}
CONFIG = {"methodConfig": [{"name": [{"service": SERVICE}], "retryPolicy": POLICY}]}


def attempts(_request, context):
    """The answer of the server: the number of earlier attempts."""
    return dict(context.invocation_metadata()).get(ATTEMPTS, "0").encode()


def call(channel, method):
    """The answer to a call, or its error."""
    try:
        # The longest time that a test may take.
        return channel.unary_unary(f"/{SERVICE}/{method}")(b"", timeout=60)
    except grpc.RpcError as error:
        return error


def refused(error):
    """The pushback of a refusal, and the delay of its RetryInfo, both in milliseconds."""
    assert isinstance(error, grpc.RpcError), error
    assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED, error
    pushback = int(dict(error.trailing_metadata())[PUSHBACK])
    status = rpc_status.from_call(error)
    assert status.message == error.details(), (status, error)
    for detail in status.details:
        info = error_details_pb2.RetryInfo()
        assert detail.Unpack(info), detail
        return pushback, info.retry_delay.ToNanoseconds() / 1_000_000
    return pushback, None


handler = grpc.unary_unary_rpc_method_handler(attempts)
server = grpc.server(futures.ThreadPoolExecutor())
methods = {"Send": handler, "Never": handler}
server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(SERVICE, methods)])
port = server.add_insecure_port("127.0.0.1:0")
server.start()
print(port, flush=True)
address = sys.stdin.readline().strip()

with grpc.insecure_channel(address, [("grpc.enable_retries", 0)]) as plain:
    assert call(plain, "Send") == b"0"
    pushback, delay = refused(call(plain, "Send"))
    assert pushback - 1 < delay <= pushback, (pushback, delay)
    print("grpcio (RESOURCE_EXHAUSTED, RetryInfo): ok")

with grpc.insecure_channel(address, [("grpc.service_config", json.dumps(CONFIG))]) as retrying:
    # Refused at first; the one try more comes after the pushback, and is admitted.
    answer = call(retrying, "Send")
    assert answer == b"1", answer
    # No try more, whatever the policy.
    assert refused(call(retrying, "Never")) == (-1, None)
    print("grpcio (retries): ok")

server.stop(None)
