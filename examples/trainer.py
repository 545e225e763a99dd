"""Trains a tiny GPT-2 with random weights by the Trainer of Hugging Face's transformers, under any launcher."""

import argparse
import os
import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

from stallpoint.measure.probe import huggingface

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=4, help="samples of one worker's mini-batch")
parser.add_argument("--seed", type=int, default=0)
arguments = parser.parse_args()
WORDS, LENGTH = 100, 16

tokens = torch.randint(0, WORDS, (512, LENGTH))
special = {"bos_token_id": 0, "eos_token_id": 0}
model = GPT2LMHeadModel(GPT2Config(vocab_size=WORDS, n_positions=LENGTH, n_embd=16, n_layer=2, n_head=2, **special))
trainer = Trainer(
    model,
    TrainingArguments(
        tempfile.mkdtemp(),
        per_device_train_batch_size=arguments.batch,
        num_train_epochs=100,
        seed=arguments.seed,
        use_cpu=True,
        ddp_backend="gloo" if "WORLD_SIZE" in os.environ else None,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    ),
    train_dataset=[{"input_ids": one, "labels": one} for one in tokens],
)
huggingface.probe(trainer)
trainer.train()
