"""Synchronisation of the workers' gradients, by a `stallpoint.strategies.presets.Preset`.

Gradients are summed: each worker scales its loss by 1/ranks, so that the sum is the gradient of the global mini-batch.
`assembly` builds the synchronisation of a preset from these parts:

- `gradients`: memory layout of gradients, and content of a message;
- `engine`: when and by which thread messages are sent, and whether ranks sum gradients or a parameter server updates;
- `compression`: encoding of a message;
- `interface`: methods that an iteration calls, and a worker's part in training, made by strategies;
- `exchanging`: algorithms that exchange all weights or gradients in one message: `averaging` (and gossip) by
  collectives, `served` (asynchronous SGD, Downpour SGD, elastic averaging) with a `server`;
- `delayed`: delayed gradients;
- `communicator`: library that moves the bytes: `mpi_communicator` or `torch_distributed`;
- `ddp`, `zero` and `fsdp` use PyTorch's own synchronisation; `pipeline_stages` makes a pipeline, without sums of
  gradients; `outputs` splits fully-connected layers, and leaves the other layers' gradients to the parts above.
"""

from stallpoint.measure.synchronisation.assembly import begin
from stallpoint.measure.synchronisation.interface import Gathered, Received, Synchronisation, Transfer, Worker

__all__ = ["Gathered", "Received", "Synchronisation", "Transfer", "Worker", "begin"]
