"""The training of train.py with Lightning, whose checkpoint has the position in the epoch."""
import os
import sys

import lightning
import torch
from model import Autoencoder, optimizer
from penstock.data import Dataset, Loader


class Training(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = Autoencoder()

    def training_step(self, batch, _):
        loss = self.model.loss(batch)
        self.log("loss", loss, prog_bar=True)
        return loss

    def configure_optimizers(self):
        return optimizer(self.model)


torch.manual_seed(7)
loader = Loader(Dataset(sys.argv[1]), 32, shuffle=True, seed=7)
output = os.environ.get("DEEPSQUARE_OUTPUT", ".")
keeper = lightning.pytorch.callbacks.ModelCheckpoint(output, "last", every_n_train_steps=10)
trainer = lightning.Trainer(accelerator="cpu", devices=1, max_epochs=2, callbacks=[keeper], logger=False)
last = os.path.join(output, "last.ckpt")
trainer.fit(Training(), loader.dataloader(), ckpt_path=last if os.path.exists(last) else None)
print(f"trained {trainer.global_step} steps")
