import lightning as L
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, random_split


class Coder(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.save_hyperparameters()
        self.encoder = torch.nn.Sequential(torch.nn.Linear(784, 64), torch.nn.BatchNorm1d(64), torch.nn.ReLU(), torch.nn.Linear(64, 3))
        self.decoder = torch.nn.Linear(3, 784)

    def forward(self, x):
        return self.encoder(x)

    def training_step(self, batch, batch_idx):
        x, _ = batch
        x = x.view(x.size(0), -1)
        loss = F.mse_loss(self.decoder(self.encoder(x)), x)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        x, _ = batch
        self.log("val", F.mse_loss(self.decoder(self.encoder(x)), x), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def fabric_loop(data):
    fabric = L.Fabric(accelerator="cuda", devices=2, precision="16-mixed")
    fabric.launch()
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = fabric.setup(model, optimizer)
    loader = fabric.setup_dataloaders(DataLoader(data, batch_size=8, shuffle=True))
    for epoch in range(3):
        for i, x in enumerate(loader):
            busy = (i + 1) % 4 != 0
            with fabric.no_backward_sync(model, enabled=busy):
                loss = model(x).mean() / 4
                fabric.backward(loss)
            if not busy:
                fabric.clip_gradients(model, optimizer, max_norm=1.0)
                optimizer.step()
                optimizer.zero_grad()
        if fabric.is_global_zero:
            print(epoch)
        fabric.barrier()


if __name__ == "__main__":
    from mnist import data

    train, val = random_split(data, [55000, 5000])
    trainer = L.Trainer(max_epochs=3, devices=2, strategy="ddp")
    trainer.fit(Coder(), DataLoader(train, batch_size=32, shuffle=True, num_workers=4), DataLoader(val, batch_size=32))
    fabric_loop(train)
