"""Bringing the workers' gradients together, as a `stallpoint.strategies.presets.Preset` says.

Gradients are summed: each worker has scaled its loss by 1/ranks before, so that the sum is the gradient of the
global mini-batch. `assembly` puts together what a preset asks for:

- `gradients`: where they lie, and what a message is made of;
- `engine`: when messages are sent, and by which thread; `merging`: which layers travel together;
- `message_exchange`: what a message does (sum, or parameter server); `compression`: what is sent of it;
- `interface`: what an iteration asks for, and a worker's part in training, which strategies begin;
- `exchanging`: algorithms that exchange all weights or gradients in one message: `averaging` and `gossip` over MPI;
  `asynchronous`, `downpour` and `elastic` with a `server` each asks for itself (`served`);
- `delayed`: gradients that are put off;
- `communicator`: who moves the bytes: `mpi_communicator` or `torch_distributed`;
- `ddp`, `zero` and `fsdp` do everything by themselves; `stages` bring no gradients together, but make a pipeline;
  `outputs` splits fully-connected layers, and leaves the gradients of the others to the rest.
"""

from stallpoint.measure.synchronisation.assembly import begin
from stallpoint.measure.synchronisation.interface import Gathered, Received, Sent, Synchronisation, Worker

__all__ = ["Gathered", "Received", "Sent", "Synchronisation", "Worker", "begin"]
