"""A character LSTM, 4.3 million parameters."""

from torch import Tensor, nn

from laconic.lab.workloads.text import VOCABULARY, Text
from laconic.lab.workloads.workload import Workload


class CharacterLSTM(nn.Module):
    def __init__(self, width: int = 576, embedding: int = 128, layers: int = 2) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, embedding)
        self.lstm = nn.LSTM(embedding, width, layers, batch_first=True)
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, characters: Tensor) -> Tensor:
        hidden, _ = self.lstm(self.embedding(characters))
        scores: Tensor = self.head(hidden)
        return scores


LSTM = Workload(
    name="lstm",
    summary="character LSTM, 2 layers of 576",
    model=CharacterLSTM,
    data=lambda path: Text(path, length=32),
    batch=16,
    learning_rate=0.8,
    clip=1.0,
)
