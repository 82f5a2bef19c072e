"""An autoencoder of handwritten digits: 784 pixels to 3 numbers and back."""
import torch


class Autoencoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = torch.nn.Sequential(torch.nn.Linear(784, 64), torch.nn.ReLU(), torch.nn.Linear(64, 3))
        self.decoder = torch.nn.Sequential(torch.nn.Linear(3, 64), torch.nn.ReLU(), torch.nn.Linear(64, 784))

    def forward(self, pictures):
        return self.decoder(self.encoder(pictures))

    def loss(self, batch):
        """The mean squared error of a batch of pictures, uint8 (n, 28, 28)."""
        pictures = torch.as_tensor(batch).reshape(-1, 784).float() / 255
        return torch.nn.functional.mse_loss(self(pictures), pictures)


def optimizer(model):
    return torch.optim.Adam(model.parameters(), lr=1e-3)
