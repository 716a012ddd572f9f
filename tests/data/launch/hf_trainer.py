"""A tiny GPT-2 from a config, trained by transformers' Trainer under the doctor's callback."""

import sys

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

from gpudoctor.integrations.transformers import DoctorCallback


class Tokens(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        tokens = torch.randint(0, 50, (16,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": tokens, "labels": tokens}


def main():
    model = GPT2LMHeadModel(GPT2Config(vocab_size=50, n_positions=16, n_embd=16, n_layer=1, n_head=2))
    arguments = TrainingArguments(
        output_dir=sys.argv[1] + "/hf", per_device_train_batch_size=4, max_steps=6, report_to=[], use_cpu=not torch.cuda.is_available(),
        logging_strategy="no", save_strategy="no", eval_strategy="steps", eval_steps=3, disable_tqdm=True,
    )
    Trainer(model, arguments, train_dataset=Tokens(), eval_dataset=Tokens(), callbacks=[DoctorCallback(sys.argv[2])]).train()


if __name__ == "__main__":
    main()
