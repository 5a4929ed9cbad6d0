"""Agreement: every rank holds the same facts, or every rank raises the same error, before any payload moves."""

import hashlib
from collections.abc import Mapping

import torch

from laconic.comm.protocol import Comm
from laconic.errors import Disagreement


def agree(comm: Comm, facts: Mapping[str, str]) -> None:
    """Compare texts over all ranks, cheaply by digest; where they differ, name the first line that does.

    The facts are compared in order, so that the root of a difference is named and not its consequence.
    """
    digest = hashlib.sha256("\0".join(facts.values()).encode()).digest()
    mine = torch.frombuffer(bytearray(digest), dtype=torch.uint8).clone()
    everyone = comm.gather(mine)
    if bool((everyone == everyone[0]).all()):
        return
    for subject, text in facts.items():
        texts = exchange_texts(comm, text)
        if len(set(texts)) > 1:
            raise Disagreement(_describe(subject, texts))
    raise Disagreement("the ranks compare different facts: do all run the same version of laconic?")


def exchange_texts(comm: Comm, text: str) -> list[str]:
    """Everyone's text, by rank."""
    raw = text.encode()
    sizes = comm.gather(torch.tensor([len(raw)])).flatten().tolist()
    padded = torch.zeros(max(1, *sizes), dtype=torch.uint8)
    padded[: len(raw)] = torch.frombuffer(bytearray(raw), dtype=torch.uint8) if raw else padded[:0]
    rows = comm.gather(padded)
    return [bytes(row[:size].tolist()).decode() for row, size in zip(rows, sizes, strict=True)]


def _describe(subject: str, texts: list[str]) -> str:
    """The first line on which a rank differs from rank 0: the same words on every rank."""
    lines = [text.splitlines() for text in texts]
    length = max(map(len, lines))
    for at in range(length):
        held = [rank[at].strip() if at < len(rank) else "(nothing)" for rank in lines]
        if len(set(held)) > 1:
            other = next(rank for rank, line in enumerate(held) if line != held[0])
            return (
                f"the ranks differ in their {subject}: rank 0 has {held[0]}, rank {other} has {held[other]}. "
                f"Give every rank the same {subject}."
            )
    return f"the ranks differ in their {subject}"
