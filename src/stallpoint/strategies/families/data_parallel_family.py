"""Data parallelism: every worker has all layers, and gradients are synchronised.

Options for compression, for the start of communication, for grouping and for the reduction scheme combine freely.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from stallpoint.strategies.options import MIB
from stallpoint.strategies.strategy import PresetEntry, Strategy

SHI_SECTION = "Shi et al. (2018), section IV-C"


class DataParallel(Strategy):
    """Data parallelism, the default strategy."""

    presets: ClassVar[Mapping[str, PresetEntry]] = {
        "naive": PresetEntry(
            "layer by layer, after the whole backward pass",
            "Shi et al. (2018), eq. (2)",
            {"start": "after-backward"},
            look=("vermilion", "square"),
        ),
        "wfbp": PresetEntry(
            "wait-free back-propagation: layer by layer, during the backward pass",
            "Shi et al. (2018), eq. (4); Zhang et al. (2017), Poseidon",
            look=("blue", "circle"),
        ),
        "intelcaffe": PresetEntry(
            "one MPI all-reduce for each layer, hidden behind the computation as long as there is any left",
            "Keuper & Pfreundt (2016), sections I-B2 and II",
            alias_of="wfbp",
            look=("lilac", "triangle-left"),
        ),
        "firecaffe": PresetEntry(
            "gradients up a binary reduction tree, sums down by broadcast",
            "Iandola et al. (2016), FireCaffe; Keuper & Pfreundt (2016), section II-A and Fig. 3",
            {"reduction": "binary-tree", "start": "after-backward"},
            look=("red", "diamond"),
        ),
        "caffe-mpi": PresetEntry(
            "wait-free back-propagation; mini-batches are read ahead into the device's memory",
            SHI_SECTION,
            {"device_prefetch": True},
            look=("green", "diamond"),
        ),
        "mxnet": PresetEntry(
            "wait-free back-propagation; mini-batches are read ahead into the host's memory only; its kvstore "
            "dist_sync is sharded-servers",
            SHI_SECTION,
            alias_of="wfbp",
            look=("pink", "triangle-down"),
        ),
        "tensorflow": PresetEntry(
            "as mxnet, with the copies of gRPC around each message (not its latency, some 0.18 ms a message); two of "
            "its parameter servers are sharded-servers with servers: 2",
            SHI_SECTION,
            {"backend": "mpi-copied"},
            look=("sky", "triangle-right"),
        ),
        "cntk": PresetEntry(
            "communication after the whole backward pass; mini-batches are read ahead into the host's memory only. "
            "The paper says no more; that CNTK packs gradients of up to 32 KiB into one first message is not imitated",
            SHI_SECTION,
            alias_of="naive",
            look=("orange", "cross"),
        ),
        "parameter-server": PresetEntry(
            "gradients to one rank as they become ready; it updates the weights and sends them back",
            "Li et al. (2014); Keuper & Pfreundt (2016), footnote 13",
            {"reduction": "parameter-server"},
            look=("violet", "triangle-down"),
        ),
        "sharded-servers": PresetEntry(
            "a parameter server beside every worker, each for an equal share of every message, as MXNet's dist_sync "
            "cuts large arrays; the servers add gradients, and the workers update their weights",
            "Li et al. (2014); Chen et al. (2015), MXNet",
            {"reduction": "sharded-servers"},
            look=("violet", "square"),
        ),
        "horovod": PresetEntry(
            "ring all-reduce of fused tensors; groups are fixed by size, without Horovod's timer, as all ranks know "
            "them",
            "Sergeev & Del Balso (2018)",
            {"reduction": "ring", "grouping": "fused", "fusion_bytes": 64 * MIB},
            look=("lime", "square"),
        ),
        "ddp": PresetEntry(
            "PyTorch's DistributedDataParallel with its default buckets: the reference",
            "Li et al. (2020), PyTorch Distributed",
            {"backend": "ddp", "grouping": "fused", "fusion_bytes": 25 * MIB},
            look=("olive", "cross"),
        ),
        "ddp-fp16": PresetEntry(
            "ddp with its hook that sends gradients in half precision",
            "Li et al. (2020), PyTorch Distributed; torch.distributed.algorithms.ddp_comm_hooks",
            {"backend": "ddp", "grouping": "fused", "fusion_bytes": 25 * MIB, "hook": "fp16"},
            look=("olive", "square"),
        ),
        "ddp-bf16": PresetEntry(
            "ddp with its hook that sends gradients in bfloat16",
            "torch.distributed.algorithms.ddp_comm_hooks",
            {"backend": "ddp", "grouping": "fused", "fusion_bytes": 25 * MIB, "hook": "bf16"},
            look=("olive", "diamond"),
        ),
        "ddp-powersgd": PresetEntry(
            "ddp with its hook that sends factors of rank 1 of each weight's gradient, from the third iteration on; "
            "on a CPU one bucket after the other",
            "Vogels, Karimireddy & Jaggi (2019), PowerSGD; torch.distributed.algorithms.ddp_comm_hooks",
            {"backend": "ddp", "grouping": "fused", "fusion_bytes": 25 * MIB, "hook": "powersgd"},
            look=("olive", "triangle-down"),
        ),
        "mg-wfbp": PresetEntry(
            "wait-free back-propagation with layers merged where the α-β model says that it saves time",
            "Shi, Chu & Li (2019), MG-WFBP",
            {"grouping": "merged"},
            look=("sky", "diamond"),
        ),
        "segmented": PresetEntry(
            "one message after the backward pass, handed to MPI in segments that stay in the processor's cache",
            "stallpoint: fastest where ranks share memory and all cores compute, see docs/measuring.md",
            {"start": "after-backward", "grouping": "fused", "fusion_bytes": 1024 * MIB, "segment_bytes": MIB},
            look=("orange", "triangle-left"),
        ),
        "wfbp-segmented": PresetEntry(
            "wait-free back-propagation of fused layers, handed to MPI in segments that stay in the processor's cache",
            "stallpoint, see docs/measuring.md",
            {"grouping": "fused", "fusion_bytes": 25 * MIB, "segment_bytes": MIB},
            look=("green", "triangle-right"),
        ),
        "delayed-gradients": PresetEntry(
            "wfbp, but the gradients of all blocks of layers before the last are applied later, by an iteration for "
            "each block in between. That blocks then go backward at once needs a device for each, and is not built",
            "Huo et al. (2018), Decoupled Parallel Backpropagation, section 3; the survey",
            {"blocks": 2},
            look=("olive", "circle"),
        ),
        "none": PresetEntry(
            "sends nothing, every rank updates with its own gradients: what another preset takes beyond it is what "
            "communicating costs there; ranks do not train together, so it is none to choose",
            "Serebryakov (2017), TensorFlow's variable update `independent`; see docs/models/interventions.md",
            {"start": "never"},
            look=("grey", "circle"),
        ),
    }
