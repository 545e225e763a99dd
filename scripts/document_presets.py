"""Write docs/presets.md, what each preset does and where that comes from, from `stallpoint.strategies.presets`.

usage: document_presets.py > docs/presets.md
"""

from collections.abc import Iterator
from dataclasses import fields

from stallpoint.strategies.presets import CHOICES, PRESETS, Preset
from stallpoint.text import listed

HEAD = """# Synchronisation presets

What a framework does with the workers' gradients or weights is a few choices. A study names presets under `sync`, and
can define its own under `presets`, each by what differs from another one ([Adding a preset](extending/preset.md)):

```yaml
presets:
  wfbp-16-bit: {like: wfbp, gradient_bits: 16}
  wfbp-sparse: {like: wfbp, top_k: 0.01}
```

Each preset runs for real ([How it measures](measuring.md)). They imitate what the papers say the frameworks do, not
their transports: all of them communicate through the site's MPI library (`tensorflow` with the copies that gRPC makes),
except those of PyTorch's own (`ddp` and its variants, `zero-1`, `fsdp`, `hsdp`), a study's with `backend: torch`, and
algorithms with servers that answer each worker for itself, which have sockets ([Algorithms](models/algorithms.md) says
what these compute, and what is predicted of them).

`accumulate` goes with every preset but `pipeline` and `one-weird-trick`: `fsdp-4: {like: fsdp, accumulate: 4}` computes
each worker's mini-batch in four parts and sends gradients after the last. So does `activation_checkpointing`, and what
products are computed in is said by the hardware entry (`precision`). All of it is predicted, but PowerSGD:
[Sharding](models/sharding.md), [Pipeline](models/pipeline.md), [One weird trick](models/one-weird-trick.md).

(Generated from `src/stallpoint/strategies/presets.py` by `scripts/document_presets.py`.)
"""


def differences(preset: Preset) -> str:
    """The choices that are not those of wait-free back-propagation layer by layer."""
    plain = Preset()
    changed = [field.name for field in fields(Preset) if getattr(preset, field.name) != getattr(plain, field.name)]
    return ", ".join(f"`{name}: {str(getattr(preset, name)).lower()}`" for name in changed) or "none: it is `wfbp`"


def alike() -> Iterator[str]:
    """The presets that do the same on a CPU."""
    does: dict[Preset, list[str]] = {}
    for name, known in PRESETS.items():
        does.setdefault(known.preset.on("cpu"), []).append(f"`{name}`")
    return (listed(names) for names in does.values() if len(names) > 1)


def lines() -> Iterator[str]:
    """The whole page."""
    yield HEAD
    yield "| preset | what it does | differs from `wfbp` in | source |"
    yield "| --- | --- | --- | --- |"
    for name, known in PRESETS.items():
        yield f"| `{name}` | {known.description} | {differences(known.preset)} | {known.source} |"
    yield f"\nOn a CPU some differ in name alone: {'; '.join(alike())}."
    yield "Any difference between their curves is chance; a report names those of its study. On a GPU `caffe-mpi`"
    yield "differs: it reads ahead into the device's memory."
    yield "\n## The choices\n"
    yield "| choice | value | meaning |"
    yield "| --- | --- | --- |"
    for choice, values in CHOICES.items():
        for value, meaning in values.items():
            yield f"| `{choice}` | `{value}` | {meaning} |"
    yield "| `gather_ahead` | number | blocks whose weights `fsdp` gathers while others compute |"
    yield "| `reshard` | `true` or `false` | `fsdp` frees gathered weights after a block's forward pass |"
    yield "| `bucket_view` | `true` or `false` | gradients lie in the buckets that `ddp` sends |"
    yield "| `static_graph` | `true` or `false` | `ddp` is told that every iteration does the same |"
    yield "| `hook_rank` | number | rank of PowerSGD's factors |"
    yield "| `accumulate` | number | parts that a mini-batch is computed in; gradients are sent after the last |"
    yield "| `micro_batches` | number | of `stages`: parts of the global mini-batch that go through them one by one |"
    yield "| `activation_checkpointing` | `true` or `false` | blocks do their forward pass again in the backward pass |"
    yield "| `servers` | number | ranks that serve a share of each message of `sharded-servers`; 0 for all |"
    yield "| `fusion_bytes` | bytes | size at which a fused group is sent |"
    yield "| `segment_bytes` | bytes | longest piece of a message handed to MPI at once; 0 hands over whole messages |"
    yield "| `device_prefetch` | `true` or `false` | mini-batches read ahead are also copied ahead to the device |"
    yield "| `gradient_bits` | `32`, `16` or `8` | bits for each gradient value sent |"
    yield "| `top_k` | share | the largest values of each message, sent alone; the rest is added next time |"
    yield "| `blocks` | number | of `synchronous`: blocks of layers, each an iteration later than the next |"
    yield "| `period` | iterations | from one exchange to the next; of `downpour`, from push to push |"
    yield "| `pull_period` | iterations | of `downpour`, from pull to pull |"
    yield "| `synchronous_steps` | iterations | of `averaging`, at the beginning, after each of which is averaged |"
    yield "| `outer_step`, `outer_momentum` | numbers | of `averaging`, of the outer optimiser; 1 and 0 take the mean |"
    yield "| `gradients_per_update` | number | of `asynchronous`, those of an update; 0 for as many as workers |"
    yield "| `staleness_bound` | iterations | of `asynchronous`, most lead over the slowest worker; any without it |"
    yield "| `elasticity` | share | of `elastic`, n times the part of the distance to the centre of an exchange |"


if __name__ == "__main__":
    print("\n".join(lines()))
