"""Batch scripts in the forms that people publish, each with its mistakes.

Every script is written for this file, as short as its form allows; `repository path` names where the form was found.
The second of two equal names is the same form with a mistake planted.
"""

from __future__ import annotations

from typing import NamedTuple


class Script(NamedTuple):
    form: str
    asked: str
    body: str
    mistakes: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        return "#!/bin/bash\n" + "".join(f"#SBATCH --{one}\n" for one in self.asked.split()) + self.body


BLOOM = "bigscience-workshop/bigscience train/tr11-176B-ml/tr11-176B-ml.slurm"
BLOOM_BODY = r"""
NODES=$SLURM_NNODES
SRUN_ARGS=" \
    --wait=60 \
    %s --kill-on-bad-exit=1 \
    "
GPT_ARGS="--layers 70 \
    --kind 'type:a|b' \
    "
cat <<EOT > ds.json
{ "stage": 0 }
EOT
export LAUNCHER="python -u -m torch.distributed.run \
    --nproc_per_node 8 \
    %s \
    "
export CMD=" `pwd`/pretrain.py $GPT_ARGS"
clear; srun $SRUN_ARGS --jobid $SLURM_JOB_ID bash -c "$LAUNCHER --node_rank \$SLURM_PROCID $CMD" 2>&1 | tee log.txt
"""
BLOOM_ASKED = "nodes=48 ntasks-per-node=1 cpus-per-task=64 gres=gpu:8"
MEETING = "--nnodes $NODES --rdzv_endpoint $HEAD:6000 --rdzv_backend c10d"

HF = "bigscience-workshop/bigscience experiments/gpt2-hf-ds/hf_ds_gpt2_perf_n16.slurm"
HF_BODY = r"""
if [[ ${SIZE} == 7 ]]; then HIDDEN=4096
elif [[ ${SIZE} == 14 ]]; then HIDDEN=6144
fi
HEAD=`perl -le '$_=$ENV{"SLURM_JOB_NODELIST"}; s/,.*//; print'`
export LAUNCHER="python -u -m torch.distributed.launch --nproc_per_node 4 %s "
export CMD="run_clm.py --overrides "n_embd=$HIDDEN" --fp16"
python -c "print(f'{$HIDDEN * 2}')"
srun --jobid $SLURM_JOBID bash -c '$LAUNCHER --node_rank $SLURM_PROCID $CMD' 2>&1 | tee -a out.txt
"""

REDUCE = "bigscience-workshop/bigscience experiments/bandwidth/all_reduce_bench-a100-n4.slurm"
REDUCE_BODY = """
export NNODES=$SLURM_NNODES
export PER_NODE=8
export HEAD=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)
srun %s --jobid $SLURM_JOBID bash -c 'python -m torch.distributed.launch --nnodes $NNODES --nproc_per_node $PER_NODE \
--node_rank $SLURM_PROCID --master_addr $HEAD bench.py' 2>&1 | tee $LOG
"""

FSDP = "aws-samples/awsome-distributed-training 3.test_cases/pytorch/FSDP/1.distributed-training-llama2.sbatch"
FSDP_BODY = """
declare -a TORCHRUN_ARGS=(
    --nproc_per_node=8
    %s
    --rdzv_backend=c10d
    --rdzv_endpoint=$(hostname)
)
export TORCHRUN=torchrun
declare -a TRAINING_ARGS=(
    --width=4096 # 7b: 4096, don't take 5120
    --data='allenai/c4'
)
RESUME=""
if [ -d "/opt/cluster" ]; then
    echo "resuming"
    RESUME="--auto-resume=1"
fi
srun ${RESUME} -l ${TORCHRUN} "${TORCHRUN_ARGS[@]}" ./train.py "${TRAINING_ARGS[@]}"
"""

PICOTRON = "aws-samples/awsome-distributed-training 3.test_cases/23.picotron/SmolLM-1.7B/slurm/train.sbatch"
PICOTRON_BODY = """
declare -a SRUN_ARGS=(
    --container-image  $PWD/picotron.sqsh
    --container-mounts "$PWD"
)
declare -a TORCHRUN_ARGS=(
    --nproc_per_node=8 \\
    --nnodes=$SLURM_JOB_NUM_NODES \\
    %s
)
srun -l "${SRUN_ARGS[@]}" torchrun "${TORCHRUN_ARGS[@]}" \\
    /picotron/train.py --config ${PWD}/conf.json
"""

NSYS = "aws-samples/awsome-distributed-training 3.test_cases/19.FSDP-llama2-profiling/03.nsys_train.sbatch"
NSYS_BODY = """
ARGS=(--nproc_per_node=8 --nnodes=%s --rdzv_backend=c10d --rdzv_endpoint=$(hostname))
srun -l /opt/nsight/nsys profile --sample none --delay 30 --force-overwrite true \\
    --output /fsx/report%%q{SLURM_PROCID} torchrun "${ARGS[@]}" train.py
"""

MPT = "aws-samples/awsome-distributed-training 3.test_cases/03.MPT/2.train-mpt-manual-distributed.sbatch"
MPT_BODY = """
: "${IMAGE:=/apps/llm.sqsh}"
declare -a ARGS=(
    --container-image $IMAGE
)
NODES=( $( scontrol show hostnames $SLURM_JOB_NODELIST ) )
WORLD=$(( $SLURM_JOB_NUM_NODES * 8 ))
srun -l "${ARGS[@]}" python -c "import streaming; streaming.clean()"
function run_compose() {
    %s srun --nodelist=${NODE} --ntasks=1 -l "${ARGS[@]}" composer --world_size ${WORLD} --nproc 8 \\
        --node_rank ${RANK} --master_addr ${HEAD} train.py a.yaml
}
for (( RANK=1; RANK<${SLURM_JOB_NUM_NODES}; RANK++ ))
do
    NODE=${NODES[$RANK]}
    run_compose &
done
wait
"""

TITAN = "pytorch/torchtitan multinode_trainer.slurm"
TITAN_BODY = """
nodes=( $( scontrol show hostnames $SLURM_JOB_NODELIST ) )
head=$(srun --nodes=1 --ntasks=1 -w "$nodes" hostname --ip-address)
# export NCCL_P2P_DISABLE=1
%s
dcgmi profile --pause
srun %s torchrun --nnodes 4 --nproc_per_node 8 --rdzv_backend c10d --rdzv_endpoint "$head:29500" -m titan.train "$@"
"""

ACCELERATE = "huggingface/accelerate examples/slurm/submit_multinode.sh"
ACCELERATE_BODY = r"""
source activate.sh
export PER_NODE=4
head=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)
export LAUNCHER="accelerate launch \
    --num_processes $((SLURM_NNODES * PER_NODE)) \
    --num_machines $SLURM_NNODES \
    --rdzv_backend c10d \
    --main_process_ip $head \
    "
export CMD="$LAUNCHER nlp.py --fp16"
srun %s $CMD
"""

DEEPSPEED = "CSCfi/pytorch-ddp-examples run-deepspeed-gpu8.sh"
ON_ONE_NODE = "CSCfi/pytorch-ddp-examples run-gpu4-dist-mahti.sh"
WRAPPED = "CSCfi/pytorch-ddp-examples run-accelerate-gpu8.sh"
LIGHTNING = "CSCfi/pytorch-ddp-examples run-lightning-gpu8.sh"
MIRRORED = "PrincetonUniversity/multi_gpu_training 04_tensorflow/job.slurm"
DDP = "PrincetonUniversity/multi_gpu_training 02_pytorch_ddp/job.slurm"

MASKS = "Lumi-supercomputer/LUMI-AI-Guide 05-multi-gpu-and-node/run_ddp_srun_4.sh"
MASKS_BODY = r"""
SIF=/appl/torch.sif
MASKS="0xfe,0xfe00,0xfe0000"
srun %s singularity run $SIF bash -c "export LOCAL_RANK=\$SLURM_LOCALID && python ddp.py"
"""
LUMI = "Lumi-supercomputer/LUMI-AI-Guide 05-multi-gpu-and-node/run_ddp_torchrun_4.sh"
LUMI_BODY = r"""
SIF=/appl/torch.sif
export HEAD=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)
srun -c 56 singularity run $SIF bash -c 'python -m torch.distributed.run %s --nproc_per_node=8 \
--rdzv_id=\$SLURM_JOB_ID --rdzv_backend=c10d --rdzv_endpoint="$HEAD:29400" ddp.py'
"""
OLMO = "allenai/OLMo scripts/lumi/mitchish70.sh"
OLMO_BODY = """
srun \\
  --cpus-per-task=$SLURM_CPUS_PER_TASK \\
  --kill-on-bad-exit \\
  scripts/run_with_environment.sh singularity exec -B"$SCRATCH:$SCRATCH" -B /opt/cray:/opt/cray torch.sif \\
    python scripts/train.py a.yaml ${@}
"""
SHIFTER = "NERSC/nersc-dl-multigpu submit_batch_shifter.sh"
SHIFTER_BODY = """
env=/global/env
cmd="python train.py --config=default"
srun %s -l shifter --env PYTHONUSERBASE=${env} \\
    bash -c "
    source export_DDP_vars.sh
    $cmd
    "
"""
SHELL = "slitvinov/deepseek-slurm main2.sh"
SHELL_BODY = """
head=`srun "$@" sh -xeuc 'if test $SLURM_PROCID -eq 0; then hostname; fi'`
srun sh -xeuc '
     torchrun \\
       --master-addr '$head' \\
       %s \\
       --node-rank $SLURM_NODEID \\
       --nproc-per-node gpu \\
       main.py'
"""
HOROVOD = "sara-nl/PraceHPML2020 codes/parallel_ml/run_2_gpus.sh"
MPIRUN = "ULHPC/tutorials deep_learning/horovod/app/multinode-multigpu-test.sh"
JAX = "aws-samples/awsome-distributed-training 3.test_cases/jax/jax.sbatch"
ELASTIC = "jamesafranke/ViT_clouds scripts/jim_bash.bash"
NO_SSH = "FFGGSSJJ/DeepSpeedExamples training/HelloDeepSpeed/run_ds.sh"

SCRIPTS = (
    Script(BLOOM, BLOOM_ASKED, BLOOM_BODY % ("--cpus-per-task=64", MEETING)),
    Script(BLOOM, BLOOM_ASKED, BLOOM_BODY % ("", MEETING), ("cpus_per_task",)),
    Script(BLOOM, BLOOM_ASKED, BLOOM_BODY % ("-c 64", ""), ("nodes_apart",)),
    Script(HF, "nodes=16 ntasks-per-node=1 gres=gpu:4", HF_BODY % "--nnodes 16 --master_addr $HEAD"),
    Script(HF, "nodes=16 ntasks-per-node=1 gres=gpu:4", HF_BODY % "--nnodes 16", ("nodes_apart",)),
    Script(HF, "nodes=16 ntasks-per-node=4 gres=gpu:4", HF_BODY % MEETING, ("launcher_in_launcher",)),
    Script(REDUCE, "nodes=4 ntasks-per-node=1 cpus-per-task=40 gres=gpu:8", REDUCE_BODY % "-c40"),
    Script(REDUCE, "nodes=4 ntasks-per-node=1 cpus-per-task=40 gres=gpu:8", REDUCE_BODY % "", ("cpus_per_task",)),
    Script(FSDP, "nodes=4", FSDP_BODY % "--nnodes=$SLURM_JOB_NUM_NODES"),
    Script(FSDP, "nodes=4", FSDP_BODY % "", ("nodes_apart",)),
    Script(PICOTRON, "nodes=2", PICOTRON_BODY % "--rdzv_endpoint=$(hostname) \\"),
    Script(PICOTRON, "nodes=2", PICOTRON_BODY % "", ("nodes_apart",)),
    Script(NSYS, "nodes=2", NSYS_BODY % "$SLURM_JOB_NUM_NODES"),
    Script(NSYS, "nodes=2", NSYS_BODY % "1", ("nodes_apart",)),
    Script(MPT, "nodes=2 ntasks=2 ntasks-per-node=1 gpus-per-node=8", MPT_BODY % ""),
    Script(MPT, "nodes=2 ntasks-per-node=1 gpus-per-node=8", MPT_BODY % "NCCL_IB_DISABLE=1", ("switched_off",)),
    Script(TITAN, "ntasks=4 nodes=4 gpus-per-task=8 cpus-per-task=96", TITAN_BODY % ("", "-c 96")),
    Script(
        TITAN,
        "ntasks=4 nodes=4 gpus-per-task=8 cpus-per-task=96",
        TITAN_BODY % ("export OMP_NUM_THREADS=1", ""),
        ("cpus_per_task", "one_thread"),
    ),
    Script(ACCELERATE, "nodes=4 ntasks-per-node=1 gres=gpu:4 cpus-per-task=160", ACCELERATE_BODY % "-c 160"),
    Script(
        ACCELERATE,
        "nodes=4 ntasks-per-node=4 gres=gpu:4 cpus-per-task=40",
        ACCELERATE_BODY % "",
        ("cpus_per_task", "launcher_in_launcher"),
    ),
    Script(
        DEEPSPEED,
        "nodes=2 ntasks-per-node=4 cpus-per-task=10 gres=gpu:v100:4,nvme:100",
        "export SRUN_CPUS_PER_TASK=10\nsrun --gpu-bind=closest python3 t.py --deepspeed --deepspeed_config ds.json\n",
    ),
    Script(
        DEEPSPEED,
        "nodes=2 ntasks-per-node=1 cpus-per-task=10 gres=gpu:v100:4,nvme:100",
        "srun -c10 python3 t.py --deepspeed --deepspeed_config ds.json\n",
        ("one_task",),
    ),
    Script(
        ON_ONE_NODE,
        "nodes=1 ntasks=1 gres=gpu:a100:4",
        "srun python3 -m torch.distributed.run --standalone --nnodes=1 --nproc_per_node=4 $*\n",
    ),
    Script(
        ON_ONE_NODE,
        "nodes=2 ntasks-per-node=1 gres=gpu:a100:4",
        "srun python3 -m torch.distributed.run --standalone --nnodes=1 --nproc_per_node=4 $*\n",
        ("nodes_apart",),
    ),
    Script(
        WRAPPED,
        "nodes=2 ntasks-per-node=1 gres=gpu:v100:4",
        "srun accelerate.sh --multi_gpu --num_processes=8 --num_machines=2 --main_process_ip=$IP t.py\n",
    ),
    Script(
        WRAPPED,
        "nodes=2 ntasks-per-node=1 gres=gpu:v100:4",
        "srun accelerate launch --multi_gpu --num_processes=4 --mixed_precision=no t.py\n",
        ("nodes_apart",),
    ),
    Script(
        LIGHTNING,
        "nodes=2 ntasks-per-node=4 cpus-per-task=10 gres=gpu:v100:4",
        "srun -c 10 --gpu-bind=none python3 t.py --gpus=4 --nodes=2\n",
    ),
    Script(
        LIGHTNING,
        "nodes=2 ntasks-per-node=4 cpus-per-task=10 gres=gpu:v100:4",
        "srun --gpu-bind=none python3 t.py --gpus=4 --nodes=2 --data ~/set\n",
        ("cpus_per_task", "data_at_home"),
    ),
    Script(MIRRORED, "nodes=1 ntasks=1 cpus-per-task=16 gres=gpu:2", "conda activate tf2\npython classify.py\n"),
    Script(
        DDP,
        "nodes=2 ntasks-per-node=2 cpus-per-task=8 gres=gpu:2",
        "export WORLD_SIZE=$(($SLURM_NNODES * $SLURM_NTASKS_PER_NODE))\nsrun python ddp.py --epochs=2\n",
        ("cpus_per_task", "gpu_bind"),
    ),
    Script(
        MASKS,
        "nodes=4 gpus-per-node=8 ntasks-per-node=8 cpus-per-task=7",
        MASKS_BODY % "--cpu-bind=v,mask_cpu=$MASKS",
    ),
    Script(
        MASKS,
        "nodes=4 gpus-per-node=8 ntasks-per-node=8 cpus-per-task=7",
        MASKS_BODY % "",
        ("cpus_per_task", "gpu_bind"),
    ),
    Script(
        LUMI, "nodes=4 gpus-per-node=8 tasks-per-node=1 cpus-per-task=56", LUMI_BODY % "--nnodes=$SLURM_JOB_NUM_NODES"
    ),
    Script(
        LUMI,
        "nodes=4 gpus-per-node=8 tasks-per-node=8 cpus-per-task=56",
        LUMI_BODY % "",
        ("nodes_apart", "launcher_in_launcher"),
    ),
    Script(OLMO, "nodes=64 ntasks-per-node=8 gpus-per-node=8 cpus-per-task=6", OLMO_BODY),
    Script(SHIFTER, "nodes=2 ntasks-per-node=4 gpus-per-task=1 cpus-per-task=32", SHIFTER_BODY % "-c 32"),
    Script(SHIFTER, "nodes=2 gpus-per-node=4 cpus-per-task=32", SHIFTER_BODY % "-c 32", ("one_task",)),
    Script(SHELL, "nodes=2 gpus-per-node=2", SHELL_BODY % "--nnodes $SLURM_NNODES"),
    Script(SHELL, "nodes=2 gpus-per-node=2", SHELL_BODY % "", ("nodes_apart",)),
    Script(
        HOROVOD,
        "ntasks=2 ntasks-per-node=2 cpus-per-task=3 gres=gpu:gtx1080ti:2",
        "LIST=$(scontrol show hostname | sed -z 's/\\n/\\:1,/g')\nhorovodrun -np 2 --hosts $LIST python t.py\n",
    ),
    Script(
        HOROVOD,
        "ntasks=2 ntasks-per-node=2 cpus-per-task=3 gres=gpu:gtx1080ti:2",
        "srun -c 3 horovodrun -np 2 python t.py\n",
        ("launcher_in_launcher",),
    ),
    Script(MPIRUN, "nodes=2 gpus-per-node=4", "mpirun -n 8 python t.py\n"),
    Script(
        MPIRUN,
        "nodes=2 gpus-per-node=4",
        "mpirun -np 8 -x PATH torchrun --nproc_per_node=4 --nnodes=2 --master_addr=$HEAD t.py\n",
        ("launcher_in_launcher",),
    ),
    Script(JAX, "nodes=2 gpus-per-node=8", "srun --container-image /fsx/jax.sqsh -N $NODES /bin/bash run_paxml.sh\n"),
    Script(ELASTIC, "gres=gpu:4", "torchrun --nnodes=1:2 --nproc_per_node=4 --rdzv_endpoint=localhost:6000 t.py\n"),
    Script(
        ELASTIC,
        "nodes=2 gres=gpu:4",
        "torchrun --nnodes=1:2 --nproc_per_node=4 --rdzv_endpoint=localhost:6000 t.py\n",
        ("nodes_apart",),
    ),
    Script(
        NO_SSH,
        "nodes=2 ntasks-per-node=1 gres=gpu:4",
        "srun deepspeed --hostfile='./hosts' --no_ssh --node_rank=$SLURM_NODEID --master_addr=$1 t.py\n",
    ),
    Script(
        NO_SSH,
        "nodes=2 ntasks-per-node=4 gres=gpu:4",
        "srun deepspeed --hostfile='./hosts' --no_ssh --node_rank=$SLURM_NODEID --master_addr=$1 t.py\n",
        ("launcher_in_launcher",),
    ),
)
