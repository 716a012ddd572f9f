import argparse

import torch
from accelerate import Accelerator
from datasets import load_dataset
from torch.optim import AdamW
from torch.utils.data import DataLoader
from transformers import AutoModelForSequenceClassification, AutoTokenizer, get_linear_schedule_with_warmup, set_seed


def get_loaders(accelerator, batch):
    tokenizer = AutoTokenizer.from_pretrained("bert-base-cased")
    data = load_dataset("glue", "mrpc")

    def tokenize(examples):
        return tokenizer(examples["sentence1"], examples["sentence2"], truncation=True)

    with accelerator.main_process_first():
        rows = data.map(tokenize, batched=True)

    def collate(examples):
        return tokenizer.pad(examples, padding="longest", return_tensors="pt")

    return (DataLoader(rows["train"], shuffle=True, collate_fn=collate, batch_size=batch, drop_last=True),
            DataLoader(rows["validation"], shuffle=False, collate_fn=collate, batch_size=32))


def training_function(config, args):
    accelerator = Accelerator(mixed_precision=args.mixed_precision, gradient_accumulation_steps=args.accumulate, log_with="all")
    set_seed(config["seed"])
    train_loader, eval_loader = get_loaders(accelerator, config["batch"])
    model = AutoModelForSequenceClassification.from_pretrained("bert-base-cased", return_dict=True)
    model = model.to(accelerator.device)
    optimizer = AdamW(params=model.parameters(), lr=config["lr"])
    scheduler = get_linear_schedule_with_warmup(optimizer=optimizer, num_warmup_steps=100,
                                                num_training_steps=(len(train_loader) * config["epochs"]) // args.accumulate)
    model, optimizer, train_loader, eval_loader, scheduler = accelerator.prepare(model, optimizer, train_loader, eval_loader, scheduler)
    for epoch in range(config["epochs"]):
        model.train()
        total = 0
        for step, batch in enumerate(train_loader):
            batch.to(accelerator.device)
            with accelerator.accumulate(model):
                output = model(**batch)
                total += output.loss.detach().float()
                accelerator.backward(output.loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
        model.eval()
        for step, batch in enumerate(eval_loader):
            with torch.no_grad():
                outputs = model(**batch)
            guesses, labels = accelerator.gather_for_metrics((outputs.logits.argmax(dim=-1), batch["labels"]))
            print((guesses == labels).float().mean())
        accelerator.print(f"epoch {epoch}:", total.item())
        accelerator.wait_for_everyone()
        if accelerator.is_main_process:
            accelerator.unwrap_model(model).save_pretrained("out", save_function=accelerator.save)
    accelerator.end_training()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--mixed_precision", default=None)
    parser.add_argument("--accumulate", type=int, default=1)
    args = parser.parse_args()
    training_function({"lr": 2e-5, "epochs": 3, "seed": 42, "batch": 16}, args)


if __name__ == "__main__":
    main()
