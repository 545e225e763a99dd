"""What a round trip by gRPC takes beyond one by a TCP connection: the part of TensorFlow that `tensorflow` lacks.

``uv run --no-project --with grpcio benchmarks/grpc_round_trip.py``: bytes go to a server of the same machine and back.
"""

import socket
import statistics
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import grpc

SIZES = (0, 1_000, 100_000, 1_000_000, 4_000_000)
PAIRS = 200
ANY_SIZE = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


def received(connection: socket.socket, size: int) -> bytearray:
    content = bytearray(size)
    rest = memoryview(content)
    while rest:
        rest = rest[connection.recv_into(rest) :]
    return content


def echo(listening: socket.socket) -> None:
    connection = accepted(listening.accept()[0])
    for size in SIZES:
        for _ in range(PAIRS):
            connection.sendall(received(connection, size))


def accepted(connection: socket.socket) -> socket.socket:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def main() -> None:
    methods = {"echo": grpc.unary_unary_rpc_method_handler(lambda message, _context: message)}
    handler = grpc.method_handlers_generic_handler("stallpoint", methods)
    server = grpc.server(ThreadPoolExecutor(1), handlers=[handler], options=ANY_SIZE)
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    call = grpc.insecure_channel(address, options=ANY_SIZE).unary_unary("/stallpoint/echo")
    call(b"")  # the first call connects
    listening = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=echo, args=[listening], daemon=True).start()
    connection = accepted(socket.create_connection(listening.getsockname()))
    for size in SIZES:
        message, beyond = bytes(size), []
        for _ in range(PAIRS):
            begin = time.perf_counter()
            connection.sendall(message)
            received(connection, size)
            middle = time.perf_counter()
            call(message)
            beyond.append(time.perf_counter() - middle - (middle - begin))
        low, median, high = statistics.quantiles(beyond, n=4)
        print(f"{size:>9,} B: {1e3 * median:.2f} ms beyond TCP (middle half {1e3 * low:.2f} to {1e3 * high:.2f})")


main()
