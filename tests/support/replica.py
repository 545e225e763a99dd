"""A replica that trains with the server at a port, and never ends by itself: ``python replica.py PORT``."""

import sys

import torch

from stallpoint.measure.synchronisation.served import Servers
from stallpoint.measure.synchronisation.server import TOKEN_BYTES, Ask

TOKEN = b"t" * TOKEN_BYTES
AIM = [1.0, -2.0, 3.0]
"""Weights of the least loss."""


def step(servers: Servers) -> None:
    """Make one asynchronous step towards the aim."""
    servers.ask(Ask.PUSH, 0.1 * (servers.ask(Ask.PULL) - torch.tensor(AIM)))


if __name__ == "__main__":
    server = Servers([("127.0.0.1", int(sys.argv[1]))], TOKEN, 1, 3)
    for number in range(10**9):
        step(server)
        if number == 5:
            print("trains", flush=True)
