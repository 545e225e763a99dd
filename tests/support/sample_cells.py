"""A cell of each kind, which tests change."""

from stallpoint.study.kinds.collectives_kind import CollectivesCell
from stallpoint.study.kinds.convergence_kind import ConvergenceCell
from stallpoint.study.kinds.sgemm_kind import SgemmCell
from stallpoint.study.kinds.storage_kind import StorageCell
from stallpoint.study.kinds.train_kind import TrainCell

COMMON = {
    "hardware": "cpu", "repeat": 1, "workers_per_node": 1, "device": "cpu", "threads_per_worker": 1, "seed": 1,
    "precision": "float32", "anonymise": True, "visits": 4,
}  # fmt: skip
TRAIN = TrainCell(
    **COMMON, nodes=1, network="alexnet", batch=8, storage="raw", scaling="strong", sync="naive", prefetch=0,
    worker_batch=8, iterations=4, warmup=1, readers=1, storage_path="images", storage_format="raw",
    preset={"reduction": "library"}, own_network=None,
)  # fmt: skip
SGEMM = SgemmCell(**COMMON, nodes=1, network="alexnet", batches=[1, 2], samples=3, own_network=None)
COLLECTIVES = CollectivesCell(
    **COMMON, nodes=4, backend="mpi", reduction="library", message_bytes=[1024, 2**20], samples=3
)  # fmt: skip
STORAGE = StorageCell(**COMMON, nodes=2, storage="raw", storage_path="images", storage_format="raw", samples=50)
TO_TARGET = ConvergenceCell(
    **COMMON, nodes=1, network="lenet", batch=10, storage="raw", sync="wfbp", recipe="momentum", trial=1, prefetch=0,
    readers=1, storage_path="images", storage_format="raw", validation_storage="raw", validation_path="images",
    validation_format="raw", validation_share=0.1, preset={"reduction": "library"}, settings={}, own_network=None,
    target=0.8, max_epochs=1.0, evaluation_epochs=0.1, patience=None, max_minutes=None, noise_steps=None,
)  # fmt: skip
