"""Write docs/networks.md, what each network is made of and how large others say it is, from `stallpoint.networks`.

usage: document_networks.py > docs/networks.md
"""

from collections.abc import Iterator

from stallpoint.networks import NETWORKS

HEAD = """# Networks

What can be named under `network`. A network of yours is a function and an entry in the study:
[Adding a network](extending/network.md).
"""
TAIL = """
(Generated from `src/stallpoint/networks/__init__.py` by `scripts/document_networks.py`. Tests hold ours against the
published values, to their digits, and against what PyTorch counts.)

Multiply-adds are those of the matrix products of convolutions, fully-connected layers and attention (the whole square,
also where GPT-2's mask hides half of it), as the `sgemm` jobs measure them.

Networks of images take a storage of any image format; networks of tokens take one of format `tokens` (`generate` makes
a text whose tokens are as frequent as words are), where a sample is a sequence. A network is never fed from a storage
of the other kind: such combinations are left out, and listed by `snakemake -n`.

Before anything is measured, each network is described in `results/<study>/networks`: every layer with its type,
parameters and multiply-adds (table [network_layers](records.md#network_layers)). Table II of Keuper & Pfreundt is
regenerated from that, theirs beside ours with each difference explained (`results/<study>/published`, and in the
report).

A *layer* is a leaf module, or a container with parameters of its own, of any network.
`stallpoint/measure/training/layer_timing.py` says exactly whose time is whose."""


def lines() -> Iterator[str]:
    """The whole page."""
    yield HEAD
    yield "| network | what it is | takes | parameters | multiply-adds of a sample's forward pass | source |"
    yield "| --- | --- | --- | ---: | ---: | --- |"
    for network in NETWORKS.values():
        size = f"{network.parameters:,} | {network.multiply_adds / 1e9:.3g} billion"
        yield f"| `{network.name}` | {network.description} | {network.takes} | {size} | {network.source} |"
    yield "\n## Published sizes\n"
    yield "| network | parameters | multiply-adds |"
    yield "| --- | --- | --- |"
    for network in NETWORKS.values():
        told = " | ".join(f"{said.text} ({said.source})" for said in network.published)
        yield f"| `{network.name}` | {told} |"
    yield TAIL


if __name__ == "__main__":
    print("\n".join(lines()))
