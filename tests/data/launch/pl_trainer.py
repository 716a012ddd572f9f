"""A tiny model trained by Lightning, which starts its second rank itself, under the doctor's callback."""

import sys

import lightning
import torch

from gpudoctor.integrations.lightning import DoctorCallback


class Tiny(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def training_step(self, batch, index):
        return self.layer(batch[0]).square().mean()

    def validation_step(self, batch, index):
        self.layer(batch[0])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def main():
    data = torch.utils.data.TensorDataset(torch.randn(48, 8, generator=torch.Generator().manual_seed(0)))
    trainer = lightning.Trainer(
        accelerator="cpu", devices=2, strategy="ddp", max_epochs=1, callbacks=[DoctorCallback(sys.argv[1])],
        logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0,
    )
    trainer.fit(Tiny(), torch.utils.data.DataLoader(data, batch_size=4, shuffle=True), torch.utils.data.DataLoader(data, batch_size=4))


if __name__ == "__main__":
    main()
